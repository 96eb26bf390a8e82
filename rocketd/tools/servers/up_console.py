"""The console of ``rocketd up``: the option of its port, and its start beside the servers."""

from typing import Final

import click
from twisted.application.service import IService

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import PORT
from rocketd.common.command_line.output import show
from rocketd.common.event_loop.reactor import IReactor
from rocketd.console.settings import ACCOUNTS, DEFAULT_PORT, NO_LOGIN, ConsoleConfig, ConsoleSettings
from rocketd.console.tap import MISSING, PACKAGES
from rocketd.remoting.serving.server import ListenError
from rocketd.remoting.tls.contexts import ENFORCING

OFF: Final = -1
"""The port that means no console."""

ConsolePort = int | None
"""A port, OFF, or None: the default port or a free one, if the packages of the console are installed."""


def console_port(text: str) -> ConsolePort:
    """Return the value of ``--console``."""
    if text == "off":
        return OFF
    try:
        return int(PORT(text))
    except click.BadParameter as error:
        raise click.BadParameter(f"{error}, or off") from None


def start_console(reactor: IReactor, port: ConsolePort, namesrv: str, settings: BrokerSettings) -> IService | None:
    """Start the console for a name server, and print its address. Return None without one.

    ``settings`` are the broker's: with accounts, users of the console must sign in. Raises CommandError if the port cannot
    be opened, or if packages are missing for a port that was asked for.
    """
    if port == OFF:
        return None
    try:
        from rocketd.console.service import make_console
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        if port is None:
            return None
        raise CommandError(MISSING) from None
    for number in (DEFAULT_PORT, 0) if port is None else (port,):
        config = ConsoleConfig(
            namesrv_addr=namesrv,
            console_port=number,
            console_login=ACCOUNTS if settings.broker.acl_enable else NO_LOGIN,
            console_cluster_tls="unverified" if settings.tls.server_mode == ENFORCING else "off",
        )
        try:
            console = make_console(ConsoleSettings(console=config), reactor)
            console.startService()
        except ListenError as error:
            failure = error
            continue
        show(f"console      {console.address}")
        return console
    raise CommandError(failure.advise("--console"))


CONSOLE_OPTION = click.option(
    "--console",
    type=console_port,
    default=None,
    metavar="PORT",
    help=f"Port of the web console on this machine, or off. Default: {DEFAULT_PORT} or a free one, if it is installed.",
)
