"""What rocketd logs goes to the standard ``logging``, where no Twisted application has begun to log.

Answers to Apache's ClientLogger, but opens no file and sets up no output. Events of ``rocketd.*`` go to the logger of the
same name, once: neither to Twisted's buffer for a log that has not begun nor to its copy of critical events on standard
error. As soon as the application begins a log of Twisted's, whether before or after the client started, they go there
instead.
"""

import logging
import sys
from types import FrameType
from typing import Any

from twisted.logger import (
    ILogObserver,
    LogEvent,
    LogLevel,
    LogPublisher,
    formatEvent,
    globalLogBeginner,
    globalLogPublisher,
)
from twisted.logger._global import LogBeginner
from zope.interface import implementer

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
    """An observer in the place of the one that Twisted has until a log begins. Any thread may call it."""

    def __init__(self, publisher: LogPublisher = globalLogPublisher, beginner: LogBeginner = globalLogBeginner) -> None:
        self._publisher = publisher
        self._beginner = beginner
        self._others: ILogObserver | None = None

    def install(self) -> None:
        """Observe from now on, until a log of Twisted's begins; does nothing when one has, or a second time."""
        waiting = self._beginner._temporaryObserver
        if waiting is None or waiting is self:
            return
        self._others = waiting
        # The beginner itself removes what stands here when a log begins, before it replays what was buffered.
        self._beginner._temporaryObserver = self
        self._publisher.addObserver(self)
        self._publisher.removeObserver(waiting)

    def uninstall(self) -> None:
        """Put back what was observing before."""
        if self._others is None or self._beginner._temporaryObserver is not self:
            return
        self._beginner._temporaryObserver = self._others
        self._publisher.addObserver(self._others)
        self._publisher.removeObserver(self)

    def __call__(self, event: LogEvent) -> None:
        """Hand an event on: ours to ``logging``, others to where they would have gone."""
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
    code, line = _place()
    text = formatEvent(event)
    logger.handle(logger.makeRecord(name, level, code.co_filename, line, text, (), trace, code.co_name))


def _place() -> tuple[Any, int]:
    """Return the code object and the line that called Twisted's logger."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module != __name__ and not module.startswith("twisted.logger"):
            break
        frame = frame.f_back
    assert frame is not None
    return frame.f_code, frame.f_lineno
