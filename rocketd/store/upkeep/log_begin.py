"""Records where the commit log begins, so a start notices if its oldest files are missing.

In Apache, a log without its oldest files only seems to begin later, and the queue files for them are deleted. Here the
begin is kept in a small file, written before log files are deleted. So the log begins after the noted offset only if
files were removed by other means. Each start compares both, independent of the settings. See docs/decisions/0024.
"""

import contextlib
import os
import threading
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.base.checked_note import read_note, write_note
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_UNIT, FILLER_SIZE
from rocketd.store.index.service import IndexService
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.log.queue_file import QueueFile
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable

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
    """Keeps the note of an open store, and tells whether the log's begin can be trusted.

    A task of the maintenance thread. `take_over` belongs to the thread that starts the store. `note` and `deleting_to`
    may be called by any thread except the reactor's. Any thread may read `held`.
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
        self.held = False
        """Whether deletion of queue and index files before the log's begin is suspended."""

    @property
    def certain_begin(self) -> int:
        """Offset before which records are certainly gone, so entries for them are not needed."""
        return 0 if self.held else self._log.min_offset

    def take_over(self, queues: ConsumeQueueTable, index: IndexService | None) -> None:
        """Check whether the note or the other files explain where the log begins. If not, hold deletions and log an
        error.

        The files must be loaded. Raises OSError.
        """
        begin = self._log.min_offset
        self._noted = read_log_begin(self._fs, self._root)
        explained = self._noted is not None and begin <= self._noted.offset
        lowest = -1 if explained else lowest_expired(queues, index, begin)
        self.held = lowest >= 0
        if self.held:
            _log.error(
                "the log begins at {begin}, but files of queues or index hold only messages before it, from {lowest} "
                "on{noted}; cleaning never leaves such files, so a directory of the log may be missing (looked in "
                "{directories}). No queue or index file is deleted because of the begin in this run. Correct "
                "storePathCommitLog and "
                "readOnlyCommitLogStorePaths, or mount the disk; if the messages are to be given up, stop the broker and "
                "run 'rocketd store accept-begin {root} --write'",
                begin=begin,
                lowest=lowest,
                noted="" if self._noted is None else f", and the log began at {self._noted.offset}",
                directories=", ".join(self._log.directories),
                root=self._root,
            )
        if self.held or begin < 0:
            # The note is outdated. Without it, the next start examines the other files again.
            self._noted = None
            self._fs.remove(log_begin_path(self._root))

    def run_once(self, now: float) -> float:
        """Write the note if it has changed. `now` is in seconds. Return the time of the next call."""
        self.note()
        return now + NOTE_SECONDS

    def note(self) -> None:
        """Write the begin of the log and its directories, if they have changed."""
        with self._guard:
            files = self._log.files
            if not files or self.held:
                return
            seen = files[0].file_from_offset, files[-1].file_from_offset
            if seen != self._seen or self._failing:
                self._seen = seen
                self._write(max(files[0].file_from_offset, self._deleted_to))

    def deleting_to(self, offset: int) -> None:
        """Record that the files before an offset are about to be deleted."""
        with self._guard:
            if not self.held:
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


def lowest_expired(queues: ConsumeQueueTable, index: IndexService | None, begin: int) -> int:
    """Return the lowest log offset with whole queue or index files before the log's begin, -1 without such a file.

    The last file of a queue or of the index does not count, because it is never deleted. Neither Apache's cleaner nor
    ours leaves other such files, unless the broker is killed right after log files were deleted.
    """
    found = [_first_record(queue.files.files[0]) for _, queue in queues.all() if _is_expired(queue.files.files, begin)]
    if index is not None and len(index.files) > 1 and index.files[0].end_physical_offset < begin:
        found.append(index.files[0].begin_physical_offset)
    return min(found, default=-1)


def _is_expired(files: list[QueueFile], begin: int) -> bool:
    return len(files) > 1 and _entry(files[0], files[0].file_size - CONSUME_QUEUE_UNIT)[0] < begin


def _first_record(file: QueueFile) -> int:
    offset, size = _entry(file, 0)
    return max(0, offset if size != FILLER_SIZE else _entry(file, file.file_size - CONSUME_QUEUE_UNIT)[0])


def _entry(file: QueueFile, position: int) -> tuple[int, int]:
    offset, size, _ = CONSUME_QUEUE_ENTRY.unpack_from(file.view, position)
    return offset, size
