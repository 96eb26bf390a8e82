"""How a command of the console script runs: a coroutine on the reactor, one line for an error, an exit status.

Answers to the main methods and shutdown hooks of Apache's command line tools.
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

from rocketd.common.command_line import give_up_output
from rocketd.common.daemon import exit_cleanly_on_signals
from rocketd.common.monotonic_reactor import use_monotonic_clock

Command = Callable[[Any], Coroutine[Deferred[Any], Any, int]]
"""Gets the reactor; returns the exit status. It is cancelled when the user wants to stop, and tidies up then."""


class CommandError(Exception):
    """Why a command cannot do what it was asked for, in one line, and the exit status that this is."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class OutputClosedError(Exception):
    """Who read standard output does so no longer: nothing is left to do, and nobody to be told."""


def show(*words: str, sep: str = " ") -> None:
    """Print a line on standard output now.

    Characters that its encoding lacks are written as escapes. Raises OutputClosedError when the reader is gone, and
    CommandError when the line cannot be written for another reason; nothing can be printed from then on.
    """
    text = sep.join(words)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError as error:
        give_up_output()
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError() from None
        raise CommandError(f"standard output: {error.strerror}") from None


def complain(name: str, text: str) -> None:
    """Print what is wrong as one line on standard error."""
    print(f"{name}: {' '.join(text.split())}", file=sys.stderr)


def run(name: str, command: Command, expected: tuple[type[Exception], ...]) -> int:
    """Run a command to its end, or until SIGINT or SIGTERM, and return the exit status.

    An error of an expected kind is one line on standard error and status 1, or a CommandError's own; any other is a
    traceback and status 1. An OutputClosedError is status 1 without a word.
    """
    from twisted.internet import reactor

    use_monotonic_clock(reactor)
    statuses: list[int] = []

    def ended(result: int | Failure) -> None:
        statuses.append(_status(name, result, expected) if isinstance(result, Failure) else result)
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
    return statuses[0] if statuses else 1


def show_log(level: LogLevel, *, file: Any = None, file_level: LogLevel = LogLevel.info) -> None:
    """Write what is logged from ``level`` on to standard error, and from ``file_level`` on to a file."""
    observers = [_from_level(level, sys.stderr)]
    if file is not None:
        observers.append(_from_level(file_level, file))
    globalLogBeginner.beginLoggingTo(observers, redirectStandardIO=False)


def _from_level(level: LogLevel, file: IO[Any]) -> ILogObserver:
    return FilteringLogObserver(textFileLogObserver(file), [LogLevelFilterPredicate(level)])


def _status(name: str, failure: Failure, expected: tuple[type[Exception], ...]) -> int:
    if failure.check(CancelledError):
        return 0
    if failure.check(OutputClosedError):
        return 1
    if not failure.check(*expected):
        failure.printTraceback(sys.stderr)
        return 1
    complain(name, str(failure.value))
    return failure.value.status if isinstance(failure.value, CommandError) else 1
