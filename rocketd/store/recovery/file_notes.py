"""Notes about the files of queues and index, so a start notices missing files.

The notes are a small file of the store. The checkpoint tells whether they match the store. They are written when files
have changed, and before a topic's queues are removed. So every noted file exists, unless it has expired since (the
noted offsets tell) or was removed by other means.
"""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.base.checked_note import read_note, write_note
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_UNIT
from rocketd.store.index.file import IndexFile
from rocketd.store.index.service import IndexService
from rocketd.store.log.queue_file import QueueFile
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.upkeep.maintenance import PeriodicTask

NOTE_SECONDS = 1.0
_VERSION = 1

_log = Logger()


class NotedQueueFile(NamedTuple):
    """A file of a queue.

    `offset` is its offset in bytes of the queue. `first` and `last` are the log offsets of the records of its first and
    last entry; -1 without an entry, and `last` is -1 if the file is not full.
    """

    offset: int
    first: int
    last: int


class NotedIndexFile(NamedTuple):
    """An index file: log offsets of its first and its last message, and the store time of the last in ms.

    `end` is -1 if the file is not full.
    """

    name: str
    begin: int
    end: int
    end_timestamp: int


class QueueCut(NamedTuple):
    """A queue to rebuild from a byte of it on, with the records from an offset of the log on."""

    topic: str
    queue_id: int
    offset: int
    after: int


class IndexCut(NamedTuple):
    """The index is rebuilt from this file on, with the records from an offset of the log on.

    `first` tells that nothing was indexed before it.
    """

    name: str
    begin: int
    first: bool


class RebuildPlan(NamedTuple):
    """Queues and index files to rebuild."""

    queues: tuple[QueueCut, ...] = ()
    index_cut: IndexCut | None = None

    def __bool__(self) -> bool:
        return bool(self.queues) or self.index_cut is not None

    @property
    def begin(self) -> int:
        """Offset of the log where the reading for the plan begins. The plan must not be empty."""
        begins = [cut.after for cut in self.queues]
        return min(begins if self.index_cut is None else [*begins, self.index_cut.begin])


class Notes(NamedTuple):
    """Noted files: queue files by topic and queue id, index files (oldest first), and an unfinished rebuild.

    `ends` are the bytes of the queues after their last entries. They are only valid after a clean stop.
    """

    queues: dict[tuple[str, int], tuple[NotedQueueFile, ...]]
    index_files: tuple[NotedIndexFile, ...]
    rebuild: RebuildPlan = RebuildPlan()
    ends: dict[tuple[str, int], int] = {}


def notes_path(root: str) -> str:
    """Return the path of the notes."""
    return os.path.join(root, "rocketd-files")


def read_notes(fs: IFileSystem, root: str) -> Notes | None:
    """Return the notes, None without readable ones. Raises OSError."""
    parts = read_note(fs, notes_path(root), _VERSION)
    if parts is None:
        return None
    queues, ends, index, rebuilt_queues, rebuilt_index, *_ = parts
    return Notes(
        {
            (topic, int(queue_id)): tuple(NotedQueueFile(*file) for file in files)
            for topic, ids in queues.items()
            for queue_id, files in ids.items()
        },
        tuple(NotedIndexFile(*file) for file in index),
        RebuildPlan(
            tuple(QueueCut(*cut) for cut in rebuilt_queues),
            None if rebuilt_index is None else IndexCut(*rebuilt_index),
        ),
        {(topic, int(queue_id)): end for topic, ids in ends.items() for queue_id, end in ids.items()},
    )


def write_notes(fs: IFileSystem, root: str, notes: Notes) -> None:
    """Replace the notes. They are on disk when this returns. Raises OSError."""
    parts: list[object] = [_by_topic(notes.queues), _by_topic(notes.ends), notes.index_files, *notes.rebuild]
    write_note(fs, notes_path(root), _VERSION, parts)


def _by_topic(values: Mapping[tuple[str, int], object]) -> dict[str, dict[int, object]]:
    found: dict[str, dict[int, object]] = {}
    for (topic, queue_id), value in values.items():
        found.setdefault(topic, {})[queue_id] = value
    return found


class FileNotes:
    """Keeps the notes of an open store. A task of the maintenance thread.

    `take_over` belongs to the thread that starts the store. `note` may be called by any thread except the reactor's.
    """

    def __init__(
        self,
        fs: IFileSystem,
        root: str,
        queues: ConsumeQueueTable,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
    ) -> None:
        self._fs = fs
        self._root = root
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._guard = threading.Lock()
        self._seen: dict[tuple[str, int], list[QueueFile]] = {}
        self._seen_index: tuple[IndexFile, ...] | None = None
        self._noted: dict[tuple[str, int], tuple[NotedQueueFile, ...]] = {}
        self._noted_index: tuple[NotedIndexFile, ...] = ()
        self._rebuild = RebuildPlan()
        self._stale = True
        self._failing = False

    def take_over(self, notes: Notes | None, rebuild: RebuildPlan) -> None:
        """Begin with the notes of an earlier process, None without any. Full files need not be read again then.

        `rebuild` is the work left to the next start.
        """
        if notes is not None:
            self._noted = dict(notes.queues)
        self._rebuild = rebuild

    def run_once(self, now: float) -> float:
        """Write the notes if they have changed. `now` is in seconds. Return the time of the next call."""
        self.note()
        return now + NOTE_SECONDS

    def note(self, last: bool = False) -> None:
        """Write the notes if the files have changed, or if this is the `last` time.

        The last time includes the ends of all queues. After a failure, which is logged, there are no notes.
        """
        with self._guard:
            if not (self._examine_queues() | self._examine_index() | self._stale | last):
                return
            self._stale = True
            ends = {key: queue.files.max_offset for key, queue in self._queues.all()} if last else {}
            try:
                notes = Notes(self._noted, self._noted_index, self._rebuild, ends)
                write_notes(self._fs, self._root, notes)
                self._stale = self._failing = False
                self._checkpoint.files_noted = True
            except OSError as error:
                if not self._failing:
                    _log.error("cannot write {path}: {error}", path=notes_path(self._root), error=error)
                self._failing = True
                # The old notes may be wrong now.
                with contextlib.suppress(OSError):
                    self._fs.remove(notes_path(self._root))

    def _examine_queues(self) -> bool:
        """Examine the queues whose files have changed. Return whether their notes changed."""
        queues = dict(self._queues.all())
        news = False
        for key, queue in queues.items():
            files = queue.files.files
            if self._seen.get(key) is files:
                continue
            noted = _noted_queue_files(files, self._noted.get(key, ()))
            if all(file.first >= 0 for file in noted):
                self._seen[key] = files
            if noted and noted != self._noted.get(key):
                self._noted[key] = noted
                news = True
        for key in self._noted.keys() - queues.keys():
            del self._noted[key]
            self._seen.pop(key, None)
            news = True
        return news

    def _examine_index(self) -> bool:
        files = () if self._index is None else self._index.files
        if files is self._seen_index:
            return False
        self._seen_index = files
        noted = tuple(
            NotedIndexFile(
                file.name,
                file.begin_physical_offset,
                file.end_physical_offset if file.is_write_full() else -1,
                file.end_timestamp if file.is_write_full() else 0,
            )
            for file in files
        )
        news = noted != self._noted_index
        self._noted_index = noted
        return news


class NotedTask:
    """Wraps a task of the maintenance thread that removes files: the files are noted before each step."""

    def __init__(self, notes: FileNotes, task: PeriodicTask) -> None:
        self._notes = notes
        self._task = task

    def run_once(self, now: float) -> float:
        """See PeriodicTask."""
        self._notes.note()
        return self._task.run_once(now)


def _noted_queue_files(files: Sequence[QueueFile], before: Sequence[NotedQueueFile]) -> tuple[NotedQueueFile, ...]:
    """Return the notes about a queue's files. Files known to be full are not read: their pages may be on disk only."""
    known = {file.offset: file for file in before if file.last >= 0}
    noted = []
    for file in files:
        old = known.get(file.file_from_offset)
        if old is None or not file.full:
            first = CONSUME_QUEUE_ENTRY.unpack_from(file.view, 0)[0] if file.wrote_position else -1
            last = (
                CONSUME_QUEUE_ENTRY.unpack_from(file.view, file.file_size - CONSUME_QUEUE_UNIT)[0] if file.full else -1
            )
            old = NotedQueueFile(file.file_from_offset, first, last)
        noted.append(old)
    return tuple(noted)
