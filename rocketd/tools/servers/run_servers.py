"""``rocketd broker run``, ``namesrv run`` and ``console run``: one server in the foreground, as by its twistd command.

Counterpart: `mqbroker` and `mqnamesrv` (Apache). The arguments go unread to twistd, so that options, errors and exit
statuses are those of ``twistd -n --pidfile= rocketd-broker``. Only ``--help`` and ``--version`` are answered here. Within
a unit of systemd, the log has the form of its journal.
"""

import os
import sys
from collections.abc import Callable

import click

from rocketd.common.command_line.commands import LazyGroup, RocketdCommand
from rocketd.common.logs.journal import is_journal

namesrv_group = LazyGroup(
    "namesrv",
    {
        "run": (f"{__name__}:run_namesrv_command", "Run a name server in the foreground."),
        "list": ("rocketd.tools.admin.name_servers:list_command", "List the name servers."),
        "config": ("rocketd.tools.admin.name_servers:config_command", "Print or change the settings of name servers."),
    },
    help="Run a name server, list the name servers, and work with their settings.",
)

console_group = LazyGroup(
    "console",
    {"run": (f"{__name__}:run_console_command", "Run the console in the foreground.")},
    help="Run the console, which shows and changes a cluster in a browser.",
)


class _ServerCommand(RocketdCommand):
    """A command whose arguments are those of a twistd command. Its declared options serve the help and completion."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep all arguments. Print the help or the version if one of them asks for it."""
        given = tuple(args)
        if ctx.resilient_parsing or not {"-h", "--help", "--version"}.isdisjoint(given):
            super().parse_args(ctx, args)
        ctx.params = {"given": given}
        return []


def _server_options(function: Callable[..., int]) -> Callable[..., int]:
    options = (
        click.option("-c", "--config", metavar="FILE", help="Settings file, in Java properties syntax."),
        click.option("-n", "--namesrv-addr", metavar="HOST:PORT", help="Name servers, separated by semicolons."),
        click.option("-o", "--option", metavar="KEY=VALUE", help="Setting, before those of the file. May be repeated."),
        click.option("-p", "--print-config", is_flag=True, help="Print all settings in effect, and exit."),
        click.option("-m", "--print-important", is_flag=True, help="Print the important settings in effect, and exit."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _server_command(name: str) -> Callable[[Callable[..., int]], click.Command]:
    def make(function: Callable[..., int]) -> click.Command:
        return click.command(name, cls=_ServerCommand)(_server_options(function))

    return make


@_server_command("run")
def run_broker_command(given: tuple[str, ...]) -> int:
    """Run a broker in the foreground until SIGTERM or Ctrl-C. SIGHUP makes it read its files again.

    The exit status is 0 after a stop, and 1 if the start or the command line fails.
    """
    return _run("rocketd-broker", given)


@_server_command("run")
def run_namesrv_command(given: tuple[str, ...]) -> int:
    """Run a name server in the foreground until SIGTERM or Ctrl-C. SIGHUP makes it read its files again.

    The exit status is 0 after a stop, and 1 if the start or the command line fails.
    """
    return _run("rocketd-namesrv", given)


@_server_command("run")
def run_console_command(given: tuple[str, ...]) -> int:
    """Run the console in the foreground until SIGTERM or Ctrl-C. It needs the extra "console".

    The exit status is 0 after a stop, and 1 if the start or the command line fails.
    """
    return _run("rocketd-console", given)


def _run(command: str, given: tuple[str, ...]) -> int:
    from twisted.scripts.twistd import run

    log = ("--logger=rocketd.common.logs.journal.journal_observer",) if is_journal(os.environ) else ()
    sys.argv[1:] = ["--nodaemon", "--pidfile=", *log, command, *given]
    start: Callable[[], None] = run
    start()
    return 0
