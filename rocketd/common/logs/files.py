"""Named, rotating log files, one for each part of a daemon, like Apache's logback files.

Lines are formatted by the logging thread and written by one separate thread, so a slow disk never blocks the reactor.
If that thread falls behind, lines are dropped and counted.
"""

import json
import os
import threading
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

from twisted.application.service import Service
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    formatEventAsClassicLogText,
    formatTime,
    globalLogPublisher,
)
from twisted.python.logfile import LogFile
from zope.interface import implementer

from rocketd.common.logs.settings import LogConfig

QUEUE_LIMIT = 10_000
"""Lines that may wait for the disk."""
_STOP_SECONDS = 5.0

NAMES: tuple[tuple[str, str], ...] = (
    ("rocketd.broker.base.watermark", "watermark"),
    ("rocketd.broker.pull.slow_readers", "protection"),
    ("rocketd.broker.fast_failure", "protection"),
    ("rocketd.broker.transaction", "transaction"),
    ("rocketd.broker.replication", "replication"),
    ("rocketd.broker.stats", "stats"),
    ("rocketd.broker.tables.filters.consumer_filters", "filter"),
    ("rocketd.filter", "filter"),
    ("rocketd.acl", "acl"),
    ("rocketd.broker.access.access_control", "acl"),
    ("rocketd.store", "store"),
    ("rocketd.remoting", "remoting"),
    ("rocketd.namesrv", "namesrv"),
    ("rocketd.broker", "broker"),
)
"""Log file of a logger by the beginning of its name; the first match counts. All others go to other.log."""


class LogDirectoryError(Exception):
    """The directory of the log files is unusable. The text has the directory and the reason."""


class Line(NamedTuple):
    """A line for a file, named without ``.log``."""

    name: str
    text: str


def name_of(namespace: str) -> str:
    """Return the name of the file for the lines of a logger."""
    for beginning, name in NAMES:
        if namespace.startswith(beginning):
            return name
    return "other"


def as_json(event: LogEvent) -> str:
    """Return an event as one line of JSON: time, level, logger, message, and the traceback of a failure."""
    line = {
        "time": formatTime(event.get("log_time")),
        "level": getattr(event.get("log_level"), "name", "info"),
        "logger": event.get("log_namespace", ""),
        "message": formatEvent(event),
    }
    failure = event.get("log_failure")
    if failure is not None:
        line["traceback"] = failure.getTraceback()
    return json.dumps(line, ensure_ascii=False)


@implementer(ILogObserver)
class LogFiles(Service):
    """Takes log events of all threads and writes them on one separate thread while it runs.

    Events may come from any thread. ``startService`` and ``stopService`` belong to the reactor thread.
    """

    def __init__(self, config: LogConfig, limit: int = QUEUE_LIMIT) -> None:
        self._config = config
        self._queue: Queue[Line] = Queue(limit)
        self._files: dict[str, LogFile] = {}
        self._format: Callable[[LogEvent], str | None] = (
            as_json if config.log_format == "json" else formatEventAsClassicLogText
        )
        level = LogLevel.levelWithName(config.log_level)
        self._observer = FilteringLogObserver(self, [LogLevelFilterPredicate(level)])
        self._dropped = 0
        self._stopping = threading.Event()
        self._reopening = threading.Event()
        self._thread: threading.Thread | None = None

    def startService(self) -> None:
        """Create the directory and start writing. Raises LogDirectoryError if this fails."""
        directory = self._config.log_dir
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise LogDirectoryError(f"logDir = {directory}: {error.strerror}; name another directory") from error
        if not os.access(directory, os.W_OK):
            raise LogDirectoryError(f"logDir = {directory}: it cannot be written; name another directory")
        super().startService()
        self._thread = threading.Thread(target=self._run, name="log-files", daemon=True)
        self._thread.start()
        globalLogPublisher.addObserver(self._observer)

    def stopService(self) -> None:
        """Write the waiting lines, for at most 5 s, and close the files."""
        super().stopService()
        globalLogPublisher.removeObserver(self._observer)
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def reopen(self) -> None:
        """Open all files again within a second, because another program may have renamed them. Any thread."""
        self._reopening.set()

    def __call__(self, event: LogEvent) -> None:
        """Queue the line of an event. Any thread."""
        text = self._format(event)
        if not text:
            return
        if not text.endswith("\n"):
            text += "\n"
        try:
            self._queue.put_nowait(Line(name_of(str(event.get("log_namespace", ""))), text))
        except Full:
            self._dropped += 1

    def _run(self) -> None:
        while True:
            try:
                line = self._queue.get(timeout=0.05 if self._stopping.is_set() else 1.0)
            except Empty:
                if self._stopping.is_set():
                    for file in self._files.values():
                        file.close()
                    return
                self._reopen_if_wanted()
                continue
            try:
                self._reopen_if_wanted()
                self._write(line)
            except OSError:
                # A full disk must not end the thread, and there is no other place to report it.
                self._dropped += 1

    def _reopen_if_wanted(self) -> None:
        if not self._reopening.is_set():
            return
        self._reopening.clear()
        for name, file in list(self._files.items()):
            try:
                file.reopen()
            except OSError:
                del self._files[name]  # the next line tries again

    def _write(self, line: Line) -> None:
        file: Any = self._files.get(line.name)
        if file is None:
            file = self._files[line.name] = LogFile(
                f"{line.name}.log",
                self._config.log_dir,
                rotateLength=self._config.log_file_size,
                maxRotatedFiles=self._config.log_file_count,
            )
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            file.write(f"({dropped} lines were dropped: the disk was too slow or refused them)\n")
        file.write(line.text)
