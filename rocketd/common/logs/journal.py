"""Log lines for the journal of systemd: without a time, which the journal adds, and with the level in front.

Only standard output is written, with the prefixes of sd-daemon(3): ``<3>`` for an error, for example. So the journal knows
the priority of each line.
"""

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from twisted.logger import FileLogObserver, ILogObserver, LogEvent, LogLevel, eventAsText

_PRIORITIES = {LogLevel.debug: 7, LogLevel.info: 6, LogLevel.warn: 4, LogLevel.error: 3, LogLevel.critical: 2}
_INFO = 6


def is_journal(environ: Mapping[str, str], descriptor: int = 1) -> bool:
    """Return whether a file descriptor, by default that of standard output, leads to the journal."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def journal_observer() -> ILogObserver:
    """Return the observer for twistd's option ``--logger``."""
    return observer_of(sys.__stdout__ or sys.stdout)


def observer_of(file: TextIO) -> ILogObserver:
    """Return an observer that writes lines for the journal to a file. Every line of a traceback has the priority."""
    return FileLogObserver(file, _lines)


def _lines(event: LogEvent) -> str | None:
    text = eventAsText(event, includeTimestamp=False)
    if not text:
        return None
    prefix = f"<{_PRIORITIES.get(event.get('log_level', LogLevel.info), _INFO)}>"
    return "".join(f"{prefix}{line}\n" for line in text.rstrip("\n").replace("\n", "\n\t").split("\n"))
