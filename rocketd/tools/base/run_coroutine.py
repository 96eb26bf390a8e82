"""Runs a command's coroutine on the reactor, and chooses the log's levels.

Counterpart: the main methods and shutdown hooks of Apache's command line tools.
"""

import sys
from collections.abc import Callable, Coroutine
from typing import IO, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
    textFileLogObserver,
)
from twisted.python.failure import Failure

from rocketd.common.command_line.errors import CommandError, OutputClosedError
from rocketd.common.event_loop.monotonic_reactor import use_monotonic_clock
from rocketd.common.event_loop.reactor import IReactor, global_reactor
from rocketd.common.process.exit_signals import exit_cleanly_on_signals


def run_command(
    command: Callable[[IReactor], Coroutine[Deferred[Any], Any, int]],
    expected: tuple[type[Exception], ...],
    reactor: IReactor | None = None,
) -> int:
    """Run a coroutine to its end, or until SIGINT or SIGTERM, and return the exit status.

    `command` gets the reactor and returns the exit status. It is cancelled when the user wants to stop, tidies up then,
    and the status is 0. An unexpected error is a traceback and status 1. The default of `reactor` is the global one.

    Raises:
        CommandError: `command` raised it, or one of the errors in `expected`, whose text it has then.
        OutputClosedError: `command` raised it.
    """
    reactor = reactor or global_reactor()
    use_monotonic_clock(reactor)
    outcomes: list[int | Failure] = []

    def ended(outcome: int | Failure) -> None:
        outcomes.append(outcome)
        if reactor.running and not stopping:
            reactor.stop()

    def stop() -> Deferred[int]:
        stopping.append(True)
        running[0].cancel()
        return running[0]

    def start() -> None:
        running.append(Deferred.fromCoroutine(command(reactor)))
        reactor.addSystemEventTrigger("before", "shutdown", stop)
        running[0].addBoth(ended)

    running: list[Deferred[Any]] = []
    stopping: list[bool] = []
    reactor.callWhenRunning(start)
    exit_cleanly_on_signals(reactor)
    reactor.run()
    return _status(outcomes[0], expected) if outcomes else 1


def show_log(level: LogLevel, *, file: Any = None, file_level: LogLevel = LogLevel.info) -> None:
    """Write the log to standard error from ``level`` on, and to a file from ``file_level`` on."""
    observers = [_from_level(level, sys.stderr)]
    if file is not None:
        observers.append(_from_level(file_level, file))
    globalLogBeginner.beginLoggingTo(observers, redirectStandardIO=False)


def _from_level(level: LogLevel, file: IO[Any]) -> ILogObserver:
    return FilteringLogObserver(textFileLogObserver(file), [LogLevelFilterPredicate(level)])


def _status(outcome: int | Failure, expected: tuple[type[Exception], ...]) -> int:
    if not isinstance(outcome, Failure):
        return outcome
    if outcome.check(CancelledError):
        return 0
    if outcome.check(CommandError, OutputClosedError):
        outcome.raiseException()
    if outcome.check(*expected):
        raise CommandError(str(outcome.value)) from outcome.value
    outcome.printTraceback(sys.stderr)
    return 1
