"""The options of the commands for a cluster, and the client of these commands.

Counterpart: the common options of the commands of `MQAdminStartup` (Apache).
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import click
from click.core import ParameterSource
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel

from rocketd.acl.credentials import Credentials
from rocketd.acl.errors import AclFileError
from rocketd.client.admin import AdminEngine
from rocketd.client.errors import BrokerError, RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.config import DEFAULT_NAMESRV, NAMESRV_VARIABLE, ClientConfig, RequestHook
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import name_servers
from rocketd.common.event_loop.reactor import IReactor
from rocketd.tools.base.contexts_file import (
    CONTEXT_VARIABLE,
    ClusterContext,
    context_name,
    contexts_path,
    read_contexts,
)
from rocketd.tools.base.lacking_requests import reason_of
from rocketd.tools.base.light_reactor import light_reactor
from rocketd.tools.base.run_coroutine import run_command, show_log
from rocketd.tools.base.watch import watched


@dataclass(frozen=True)
class ClusterAccess:
    """How to reach a cluster: its name servers (``host:port``), the account, and TLS.

    ``tls`` and ``ca`` are those of ClientConfig.
    """

    namesrv: Sequence[str]
    credentials: Credentials | None = None
    tls: bool | Literal["unverified"] = False
    ca: str | None = None

    @asynccontextmanager
    async def client(self, reactor: IReactor, hooks: Sequence[RequestHook] = ()) -> AsyncIterator[ClientInstance]:
        """Start a client, and stop it at the end. ``hooks`` see its requests and the answers."""
        config = ClientConfig(namesrv=self.namesrv, tls=self.tls, ca=self.ca, credentials=self.credentials, hooks=hooks)
        client = ClientInstance(reactor, config)
        client.startService()
        try:
            yield client
        finally:
            await client.stopService()

    @asynccontextmanager
    async def admin(self, reactor: IReactor) -> AsyncIterator[AdminEngine]:
        """Start a client for administration, and stop it at the end."""
        async with self.client(reactor) as client:
            admin = AdminEngine(client)
            await admin.start()
            yield admin


def cluster_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a cluster to a command's function, and pass them as a ClusterAccess, the first argument."""

    @click.option(
        "-n",
        "--namesrv",
        type=name_servers,
        envvar=NAMESRV_VARIABLE,
        show_envvar=True,
        default=DEFAULT_NAMESRV,
        show_default=True,
        metavar="HOST:PORT",
        help="Name servers, separated by semicolons.",
    )
    @click.option(
        "--context",
        "context_name",
        type=context_name,
        envvar=CONTEXT_VARIABLE,
        show_envvar=True,
        metavar="NAME",
        help="Cluster with this name in the file of contexts, unless --namesrv is given.",
    )
    @click.option(
        "--credentials",
        type=_credentials,
        metavar="FILE",
        help="File with the accessKey and secretKey for signing requests, in the form of conf/tools.yml.",
    )
    @click.option("--tls", is_flag=True, help="Use TLS, and verify the servers by the authorities of this system.")
    @click.option(
        "--tls-ca",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Use TLS, and verify the servers by the authorities in this file (PEM).",
    )
    @click.option(
        "--tls-unverified",
        is_flag=True,
        help="Use TLS, and accept every server: whoever is in between can read and change everything.",
    )
    @wraps(function)
    def with_access(
        namesrv: list[str],
        context_name: str | None,
        credentials: Credentials | None,
        tls: bool,
        tls_ca: str | None,
        tls_unverified: bool,
        **given: Any,
    ) -> int:
        if tls_unverified and (tls or tls_ca):
            raise click.UsageError("--tls-unverified cannot be given with --tls or --tls-ca")
        how: bool | Literal["unverified"] = "unverified" if tls_unverified else tls or tls_ca is not None
        context = _context(context_name)
        if context is None:
            return function(ClusterAccess(namesrv, credentials, how, tls_ca), **given)
        if not how:
            how, tls_ca = context.tls, context.tls_ca
        if credentials is None and context.credentials is not None:
            try:
                credentials = _credentials(context.credentials)
            except click.BadParameter as error:
                raise CommandError(error.message) from error
        return function(ClusterAccess(name_servers(context.namesrv), credentials, how, tls_ca), **given)

    return with_access


def _context(name: str | None) -> ClusterContext | None:
    """Return the context of the command that runs; None if its name servers are given otherwise.

    Nothing of a context is used with other name servers: its account is for its cluster alone. Raises CommandError.
    """
    command = click.get_current_context()
    source = command.get_parameter_source("namesrv")
    if source is ParameterSource.COMMANDLINE:
        if command.get_parameter_source("context_name") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--namesrv cannot be given with --context")
        return None
    if name is not None:
        return read_contexts().get(name)
    if source is not ParameterSource.DEFAULT or not contexts_path().exists():
        return None
    contexts = read_contexts()
    return None if contexts.used is None else contexts.get(contexts.used)


def run_client_command(command: Callable[[IReactor], Coroutine[Deferred[Any], Any, int]]) -> int:
    """Run a coroutine with a client, as `run_command` does. Errors of the client end it with one line."""

    async def with_reasons(reactor: IReactor) -> int:
        try:
            return await command(reactor)
        except BrokerError as error:
            raise CommandError(reason_of(error)) from error

    show_log(LogLevel.critical)
    return run_command(watched(with_reasons), (RocketMQError,), light_reactor())


def _credentials(path: str) -> Credentials:
    # Imported here: most commands need no account, and its library of YAML takes longer than a short command.
    from rocketd.acl.credentials_file import read_credentials

    try:
        return read_credentials(path)
    except AclFileError as error:
        raise click.BadParameter(str(error)) from None
