"""The option ``--watch``: run a command again and again, for tables that stay up to date."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import click
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rocketd.client.errors import RocketMQError
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import seconds
from rocketd.common.command_line.output import complain, show_bytes
from rocketd.common.event_loop.reactor import IReactor

ClientCommand = Callable[[IReactor], Coroutine[Deferred[Any], Any, int]]

_META: Final = "rocketd.watch"
_CLEAR: Final = b"\x1b[H\x1b[2J"
"""Moves the cursor of a terminal to the top left, and clears the screen."""


def _keep(context: click.Context, _: click.Parameter, value: float | None) -> None:
    context.meta[_META] = value


WATCH = click.option(
    "--watch",
    type=seconds,
    metavar="SECONDS",
    expose_value=False,
    callback=_keep,
    help="Run the command again each time after so many seconds, until Ctrl-C.",
)


def watched(command: ClientCommand) -> ClientCommand:
    """Return a command that is repeated if the command line that runs has ``--watch``."""
    interval: float | None = click.get_current_context().meta.get(_META)
    return command if interval is None else lambda reactor: repeat(reactor, interval, command)


async def repeat(reactor: IReactor, interval: float, command: ClientCommand) -> int:
    """Run a command, wait for ``interval`` seconds, and so on until cancelled. An error is printed, and ends nothing."""
    while True:
        if sys.stdout.isatty():
            show_bytes(_CLEAR)
        try:
            await command(reactor)
        except (CommandError, RocketMQError) as error:
            complain(str(error))
        await deferLater(reactor, interval)
