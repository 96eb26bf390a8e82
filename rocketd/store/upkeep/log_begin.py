"""Records where the commit log begins, so a start notices if its oldest files are missing.

In Apache, a log without its oldest files only seems to begin later, and the queue files for them are deleted. Here the
beginning is kept in a small file, written before log files are deleted. So the log begins after the noted offset only if
files were removed by other means. Each start compares both, independent of the settings. See docs/decisions/0024.
"""

import contextlib
import os
import threading
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.base.checked_note import read_note, write_note
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue

NOTE_SECONDS = 1.0
_VERSION = 1

_log = Logger()


class NotedBegin(NamedTuple):
    """The log begins at this offset or before. These directories had files of it."""

    offset: int
    directories: tuple[str, ...]


def log_begin_path(root: str) -> str:
    """Return the path of the note."""
    return os.path.join(root, "rocketd-log-begin")


def read_log_begin(fs: IFileSystem, root: str) -> NotedBegin | None:
    """Return the note, None without a readable one. Raises OSError."""
    items = read_note(fs, log_begin_path(root), _VERSION)
    if items is None:
        return None
    offset, directories = items
    return NotedBegin(offset, tuple(directories))


def write_log_begin(fs: IFileSystem, root: str, noted: NotedBegin) -> None:
    """Replace the note. It is on disk when this returns. Raises OSError."""
    write_note(fs, log_begin_path(root), _VERSION, noted)


class LogBegin:
    """Keeps the note of an open store.

    A task of the maintenance thread. `take_over` belongs to the thread that starts the store. `note` and `deleting_to`
    may be called by any thread except the reactor's.
    """

    def __init__(self, fs: IFileSystem, root: str, log: MappedFileQueue[LogFile]) -> None:
        self._fs = fs
        self._root = root
        self._log = log
        self._noted: NotedBegin | None = None
        self._seen = (-1, -1)
        self._failing = False
        self._deleted_to = 0
        self._guard = threading.Lock()

    def take_over(self) -> None:
        """Bring the note of the last run up to date. The log must be loaded. Raises OSError.

        Do this before the mark is set that no other program has run: with the mark, an old note refuses the next start.
        """
        if self._log.files:
            self._noted = read_log_begin(self._fs, self._root)
            self.note()
        else:
            # A new log is not compared with the beginning of an old one.
            self._fs.remove(log_begin_path(self._root))

    def run_once(self, now: float) -> float:
        """Write the note if it has changed. `now` is in seconds. Return the time of the next call."""
        self.note()
        return now + NOTE_SECONDS

    def note(self) -> None:
        """Write the beginning of the log and its directories, if they have changed."""
        with self._guard:
            files = self._log.files
            if not files:
                return
            seen = files[0].file_from_offset, files[-1].file_from_offset
            if seen != self._seen or self._failing:
                self._seen = seen
                self._write(max(files[0].file_from_offset, self._deleted_to))

    def deleting_to(self, offset: int) -> None:
        """Record that the files before an offset are about to be deleted."""
        with self._guard:
            self._deleted_to = offset
            self._write(offset)

    def _write(self, offset: int) -> None:
        noted = NotedBegin(offset, tuple(sorted({os.path.dirname(file.path) for file in self._log.files})))
        if noted == self._noted and not self._failing:
            return
        try:
            write_log_begin(self._fs, self._root, noted)
            self._noted = noted
            self._failing = False
        except OSError as error:
            if not self._failing:
                _log.error("cannot write {path}: {error}", path=log_begin_path(self._root), error=error)
            self._failing = True
            # Files may have to be deleted because the disk is full. The old note would be wrong then.
            with contextlib.suppress(OSError):
                self._fs.remove(log_begin_path(self._root))
