"""Passes rocketd's log events to the standard ``logging``, unless a Twisted application has begun to log.

Counterpart: `ClientLogger` (Apache), but no file is opened and no output is set up. Events of ``rocketd.*`` go to the logger
of the same name, once. They go neither to Twisted's buffer before a log begins nor to its copy of critical events on
standard error. As soon as the application begins a Twisted log, before or after the client started, they go there instead.
"""

import logging
import sys
from types import FrameType
from typing import Any

from twisted.logger import (
    ILogObserver,
    LogBeginner,
    LogEvent,
    LogLevel,
    LogPublisher,
    formatEvent,
    globalLogBeginner,
    globalLogPublisher,
)
from zope.interface import implementer

from rocketd.client.runtime.tracebacks import LoggedError

NAMESPACE = "rocketd"

_LEVELS = {
    LogLevel.debug: logging.DEBUG,
    LogLevel.info: logging.INFO,
    LogLevel.warn: logging.WARNING,
    LogLevel.error: logging.ERROR,
    LogLevel.critical: logging.CRITICAL,
}


@implementer(ILogObserver)
class LoggingBridge:
    """An observer that replaces Twisted's until a log begins. Any thread may call it."""

    def __init__(self, publisher: LogPublisher = globalLogPublisher, beginner: LogBeginner = globalLogBeginner) -> None:
        self._publisher = publisher
        self._beginner = beginner
        self._others: ILogObserver | None = None

    def install(self) -> None:
        """Observe until a Twisted log begins. Do nothing if one has begun, or on a second call."""
        waiting = self._beginner._temporaryObserver
        if waiting is None or waiting is self:
            return
        self._others = waiting
        # The beginner itself removes this observer when a log begins, before it replays the buffered events.
        self._beginner._temporaryObserver = self
        self._publisher.addObserver(self)
        self._publisher.removeObserver(waiting)

    def uninstall(self) -> None:
        """Restore the previous observer."""
        if self._others is None or self._beginner._temporaryObserver is not self:
            return
        self._beginner._temporaryObserver = self._others
        self._publisher.addObserver(self._others)
        self._publisher.removeObserver(self)

    def __call__(self, event: LogEvent) -> None:
        """Pass an event on: rocketd's to ``logging``, others to their usual place."""
        name = event.get("log_namespace") or ""
        if name == NAMESPACE or name.startswith(NAMESPACE + "."):
            _log(name, event)
        elif self._others is not None:
            self._others(event)


bridge = LoggingBridge()


def _log(name: str, event: LogEvent) -> None:
    logger = logging.getLogger(name)
    level = _LEVELS.get(event.get("log_level", LogLevel.info), logging.INFO)
    if not logger.isEnabledFor(level):
        return
    failure = event.get("log_failure")
    trace: Any = None
    if failure is not None:
        trace = (failure.type, failure.value, failure.getTracebackObject())
    logged = event.get("trace")
    if isinstance(logged, LoggedError):
        trace = (type(logged.error), logged.error, logged.traceback)
        event = {**event, "trace": ""}
    code, line = _place()
    text = formatEvent(event)
    logger.handle(logger.makeRecord(name, level, code.co_filename, line, text, (), trace, code.co_name))


def _place() -> tuple[Any, int]:
    """Return the code object and the line of the call of Twisted's logger."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module != __name__ and not module.startswith("twisted.logger"):
            break
        frame = frame.f_back
    assert frame is not None
    return frame.f_code, frame.f_lineno
