"""``rocketd context``: names for clusters, so that no command needs their addresses and accounts.

mqadmin has no counterpart.
"""

import os

import click

from rocketd.common.command_line.commands import LazyGroup, command
from rocketd.common.command_line.option_types import name_servers
from rocketd.common.command_line.output import complain
from rocketd.tools.base.contexts_file import ClusterContext, context_name, read_contexts
from rocketd.tools.base.rows import AS_JSON, show_rows

_NONE = "-"

context_group = LazyGroup(
    "context",
    {
        "list": (f"{__name__}:list_command", "List the contexts."),
        "add": (f"{__name__}:add_command", "Add or replace a context."),
        "use": (f"{__name__}:use_command", "Use a context for all further commands."),
        "remove": (f"{__name__}:remove_command", "Remove a context."),
    },
    help="Give names to clusters. A command takes the context of --context, else of ROCKETD_CONTEXT, else the used one.",
)


@command("list")
@AS_JSON
def list_command(as_json: bool) -> int:
    """Print a line for each context: context, used, name servers, credentials and TLS."""
    contexts = read_contexts()
    rows = [
        (name, "yes" if name == contexts.used else "no", each.namesrv, each.credentials or _NONE, _tls(each))
        for name, each in sorted(contexts.named.items())
    ]
    show_rows(("context", "used", "name servers", "credentials", "tls"), rows, as_json=as_json)
    return 0


def _tls(context: ClusterContext) -> str:
    if isinstance(context.tls, str):
        return context.tls
    return context.tls_ca or ("yes" if context.tls else "no")


@command("add")
@click.argument("name", type=context_name)
@click.option("-n", "--namesrv", type=name_servers, required=True, metavar="HOST:PORT", help="Name servers.")
@click.option(
    "--credentials", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="File of the account."
)
@click.option("--tls", is_flag=True, help="Use TLS, and verify the servers by the authorities of this system.")
@click.option(
    "--tls-ca",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Use TLS, and verify the servers by the authorities in this file (PEM).",
)
@click.option("--tls-unverified", is_flag=True, help="Use TLS, and accept every server.")
def add_command(
    name: str, namesrv: list[str], credentials: str | None, tls: bool, tls_ca: str | None, tls_unverified: bool
) -> int:
    """Add the context NAME, or replace it. The file of the account is read by each command, and not copied."""
    if tls_unverified and (tls or tls_ca):
        raise click.UsageError("--tls-unverified cannot be given with --tls or --tls-ca")
    contexts = read_contexts()
    word = "replaced" if name in contexts.named else "added"
    contexts.named[name] = ClusterContext(
        ";".join(namesrv),
        None if credentials is None else os.path.abspath(credentials),
        "unverified" if tls_unverified else tls or tls_ca is not None,
        None if tls_ca is None else os.path.abspath(tls_ca),
    )
    contexts.write()
    complain(f"{word} context {name}")
    return 0


@command("use")
@click.argument("name", type=context_name, required=False)
@click.option("--none", is_flag=True, help="Use none of them.")
def use_command(name: str | None, none: bool) -> int:
    """Use the context NAME for all further commands that are given no other cluster."""
    if (name is None) is not none:
        raise click.UsageError("accepted is a NAME, or --none")
    contexts = read_contexts()
    if name is not None:
        contexts.get(name)
    contexts.used = name
    contexts.write()
    return 0


@command("remove")
@click.argument("name", type=context_name)
def remove_command(name: str) -> int:
    """Remove the context NAME. The file of its account stays."""
    contexts = read_contexts()
    contexts.get(name)
    del contexts.named[name]
    if contexts.used == name:
        contexts.used = None
    contexts.write()
    return 0
