"""The configuration of a client: the cluster, and the client itself.

Counterpart: `ClientConfig` (Apache). Plain values, checked on creation.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from os import PathLike, fspath
from time import time
from typing import Any, Literal, Protocol, Self

from rocketd.acl.credentials import Credentials
from rocketd.client.errors import IllegalOptionError
from rocketd.client.settings.option_names import check_names, takes_fields
from rocketd.client.settings.option_types import SECRET, check_types
from rocketd.client.settings.wrong_calls import check_call
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.settings.checks import ADDRESSES, is_address_list
from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.settings import NettyClientConfig, TlsConfig
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.versions import own_version

NAMESRV_VARIABLE = "NAMESRV_ADDR"
"""Environment variable with the default name servers."""

DEFAULT_NAMESRV = "127.0.0.1:9876"
"""The name server if neither program nor environment names any: that of ``rocketd up``."""

_URL = re.compile(r"http://[^\s/?#@]+(?:/[^\s?#]*)?", re.ASCII)

Duration = float | timedelta
"""Seconds, or a timedelta."""


def milliseconds(option: str, duration: Duration, *, zero: bool = False) -> float:
    """Return a duration in ms. Raises IllegalOptionError unless it is a positive duration, or 0 with ``zero``."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 < value < float("inf") or (zero and value == 0))
    ):
        least = "from 0 on" if zero else "above 0"
        raise IllegalOptionError(f"{option}={duration!r}: accepted is a timedelta or a number of seconds {least}")
    return value * 1000.0


class ClientEnvironment(Protocol):
    """The environment of clients if it is not this machine and its time, as in ``rocketd.testing``."""

    def reactor_on(self, reactor: IReactor) -> Any:
        """Return a replacement for a reactor: it makes the connections, and has the time. Reactor thread."""

    def now_ms(self) -> float:
        """Return Unix milliseconds. Any thread."""


class RequestHook(Protocol):
    """Sees each request of a client before it is sent, and the answer. Reactor thread. Both may be changed.

    It has the methods of `IRPCHook`, an interface, which type checkers do not accept as a type.
    """

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """See the request."""

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """See the answer; None without one."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """The cluster and the identity of a client. Raises IllegalOptionError for an invalid value.

    Clients of one process with equal configs share their connections.
    """

    namesrv: str | Sequence[str] = ""
    """Name servers, ``host:port``, separated by semicolons or as a sequence. If empty, those of the environment
    variable NAMESRV_ADDR; without it, 127.0.0.1:9876.
    """

    name_server_url: str | None = None
    """Web page with the name servers in its first line, in place of ``namesrv``. It is requested by HTTP at the
    start and every two minutes. With ``unit_name``, the page is ``URL-UNIT?nofix=1``.
    """

    instance_name: str | None = None
    """Name of this client among those of its machine, a part of the client id. If None, a unique name is generated."""

    unit_name: str | None = None
    """Last part of the client id. None for no such part."""

    client_ip: str | None = None
    """Address in the client id. If None, the address of outgoing traffic."""

    namespace: str = ""
    """Prefix of the names of topics and groups. It separates tenants of one cluster."""

    credentials: Credentials | None = field(default=None, metadata=SECRET)
    """Access key and secret for signing requests. None signs nothing."""

    tls: bool | Literal["unverified"] | TlsConfig = False
    """Whether to use TLS. True verifies the servers by the authorities of this system, or by those of ``ca``.
    ``unverified`` accepts every server. A TlsConfig has more settings, such as the client's certificate, and needs
    ``test_mode_enable=False`` for them.
    """

    ca: str | PathLike[str] | None = None
    """File with the certificates of trusted authorities, in PEM, for ``tls=True``."""

    vip_channel: bool = False
    """Whether requests other than pulls go to the brokers' second port, two below the first."""

    timeout: Duration = 3.0
    """Default timeout of requests."""

    route_interval: Duration = 30.0
    """Interval at which routes are refreshed."""

    heartbeat_interval: Duration = 30.0
    """Interval of the heartbeats to brokers."""

    remoting: NettyClientConfig = field(default_factory=NettyClientConfig)
    """Limits of connections: idle time, connect timeout, requests in progress."""

    hooks: Sequence[RequestHook] = ()
    """Hooks called before each request and after each answer."""

    environment: ClientEnvironment | None = field(default=None, repr=False)
    """Source of connections and time, for tests. If None, this machine."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Create a config. Raises TypeError for an unknown option, with the right one if there is one, and a wrong call.

        A subclass with its own ``__init__`` may have other keywords.
        """
        if takes_fields(cls):
            check_names(cls.__name__, options, [field.name for field in fields(cls)])
            check_call(cls.__name__, cls.__init__, arguments, options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for option in ("timeout", "route_interval", "heartbeat_interval"):
            milliseconds(option, getattr(self, option))
        check_types(self)
        if self.ca is not None and self.tls is not True:
            raise IllegalOptionError(f"ca={self.ca!r} is for tls=True, but tls is {self.tls!r}")
        if isinstance(self.tls, TlsConfig):
            _check_tls(self.tls)
        self._check_url()
        self.name_servers()
        try:
            own_version()
        except RemotingCommandError as error:
            raise IllegalOptionError(str(error)) from None
        if "%" in self.namespace:
            raise IllegalOptionError(f"namespace={self.namespace!r}: a namespace has no %")

    def _check_url(self) -> None:
        url = self.name_server_url
        if url is None:
            return
        if self.namesrv:
            raise IllegalOptionError("namesrv and name_server_url: give only one of them")
        if not _URL.fullmatch(url):
            raise IllegalOptionError(f"name_server_url={url!r}: accepted is http://HOST:PORT/PATH")

    def tls_settings(self) -> TlsConfig | None:
        """Return the settings of TLS; None without TLS."""
        if isinstance(self.tls, TlsConfig):
            return self.tls
        if self.tls is True:
            path = None if self.ca is None else fspath(self.ca)
            return TlsConfig(test_mode_enable=False, client_auth_server=True, client_trust_cert_path=path)
        return TlsConfig(test_mode_enable=True, client_auth_server=False) if self.tls else None

    def name_servers(self) -> list[str]:
        """Return the addresses of the name servers; empty if they come from ``name_server_url``.

        The default are those of the environment variable NAMESRV_ADDR, or 127.0.0.1:9876.
        """
        if self.name_server_url is not None:
            return []
        given = self.namesrv if isinstance(self.namesrv, str) else ";".join(self.namesrv)
        text = given or os.environ.get(NAMESRV_VARIABLE, "")
        if not text:
            return [DEFAULT_NAMESRV]
        if not is_address_list(text):
            where = "namesrv" if given else f"environment variable {NAMESRV_VARIABLE}"
            raise IllegalOptionError(f"{where}={text!r} is not a list of name servers: accepted is {ADDRESSES}")
        return [part.strip() for part in text.rstrip("; ").split(";")]

    def reactor_on(self, reactor: IReactor) -> Any:
        """Return the reactor to use in place of the running one. Reactor thread."""
        return reactor if self.environment is None else self.environment.reactor_on(reactor)

    def now_ms(self) -> float:
        """Return Unix milliseconds. Any thread."""
        return time() * 1000 if self.environment is None else self.environment.now_ms()

    @property
    def timeout_ms(self) -> float:
        """``timeout`` in ms."""
        return milliseconds("timeout", self.timeout)


def _check_tls(tls: TlsConfig) -> None:
    """Raise IllegalOptionError for settings that would have no effect, so that servers would be trusted unverified."""
    unused = ("client_auth_server", "client_trust_cert_path", "client_cert_path", "client_key_path")
    given = next((name for name in unused if getattr(tls, name)), None)
    if tls.test_mode_enable and given is not None:
        raise IllegalOptionError(
            f"tls: {given}={getattr(tls, given)!r} of the TlsConfig has no effect with test_mode_enable=True, the default, "
            "which trusts every server: add test_mode_enable=False"
        )
    if tls.client_trust_cert_path and not tls.client_auth_server:
        raise IllegalOptionError(
            f"tls: client_trust_cert_path={tls.client_trust_cert_path!r} of the TlsConfig has no effect with "
            "client_auth_server=False, the default, which trusts every server: add client_auth_server=True"
        )


def config_of(cluster: "str | Sequence[str] | ClientConfig | None") -> ClientConfig:
    """Return a config of addresses of name servers. A given config is returned unchanged."""
    return cluster if isinstance(cluster, ClientConfig) else ClientConfig(namesrv=cluster or "")
