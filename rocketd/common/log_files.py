"""Named, rotating log files: each part of a daemon has its own, as with Apache's logback files.

Lines are formatted where they are logged and written by one thread, so that a slow disk never blocks the reactor. If the
thread falls behind, lines are dropped and counted.
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

from rocketd.common.log_settings import LogConfig

QUEUE_LIMIT = 10_000
"""Lines that may wait for the disk."""
_STOP_SECONDS = 5.0

NAMES: tuple[tuple[str, str], ...] = (
    ("rocketd.broker.watermark", "watermark"),
    ("rocketd.broker.slow_readers", "protection"),
    ("rocketd.broker.fast_failure", "protection"),
    ("rocketd.broker.transaction", "transaction"),
    ("rocketd.broker.replication", "replication"),
    ("rocketd.broker.stats", "stats"),
    ("rocketd.broker.consumer_filter", "filter"),
    ("rocketd.filter", "filter"),
    ("rocketd.acl", "acl"),
    ("rocketd.broker.access_control", "acl"),
    ("rocketd.store", "store"),
    ("rocketd.remoting", "remoting"),
    ("rocketd.namesrv", "namesrv"),
    ("rocketd.broker", "broker"),
)
"""Which file has the lines of a logger, by the beginning of its name; the first that fits. All others are in other.log."""


class LogDirectoryError(Exception):
    """The directory of the log files cannot be used; the text says which and why."""


class Line(NamedTuple):
    """A line for a file, which it names without ``.log``."""

    name: str
    text: str


def name_of(namespace: str) -> str:
    """Return the name of the file that has the lines of a logger."""
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
    """Takes log events of all threads and writes them in one thread of its own while it runs.

    Calls may come from any thread, ``startService`` and ``stopService`` from the reactor thread.
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
        self._thread: threading.Thread | None = None

    def startService(self) -> None:
        """Make the directory and begin to write. Raises LogDirectoryError if that cannot be."""
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
        """Write the lines that wait, for at most 5 s, and close the files."""
        super().stopService()
        globalLogPublisher.removeObserver(self._observer)
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

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
                continue
            try:
                self._write(line)
            except OSError:
                # A full disk must not end the thread, and there is no other place to tell it.
                self._dropped += 1

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
