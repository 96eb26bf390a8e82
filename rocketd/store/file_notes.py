"""Notes of which files the queues and the index have, so that a start sees when one is missing.

Apache has no counterpart: its broker does not notice. The notes are a small file of the store; whether they are of the store
as it is, the checkpoint tells. They are written when the files have changed, and before a topic's queues are removed: so
what is in them is there, but for what has expired since, which the noted offsets tell, and what somebody has removed.
"""

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.checkpoint import StoreCheckpoint
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.filesystem import IFileSystem
from rocketd.store.index_file import IndexFile
from rocketd.store.index_service import IndexService
from rocketd.store.layout import CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_UNIT
from rocketd.store.maintenance import PeriodicTask
from rocketd.store.mapped_file import LogFile, QueueFile
from rocketd.store.mapped_file_queue import MappedFileQueue
from rocketd.store.small_file import replace_file

NOTE_SECONDS = 1.0
_VERSION = 1
_CHECKSUM_SIZE = 9
"""Eight hexadecimal digits and a line feed."""

_log = Logger()


class NotedQueueFile(NamedTuple):
    """A file of a queue: its offset in bytes of the queue, and where in the log the records of its first and its last
    entry begin; -1 where there is none yet, and as the last of a file that is not full.
    """

    offset: int
    first: int
    last: int


class NotedIndexFile(NamedTuple):
    """An index file: the offsets of the log of its first and its last message, and the store time of the last in ms. The
    end is -1 of a file that is not full.
    """

    name: str
    begin: int
    end: int
    end_timestamp: int


class NotedLogDirectory(NamedTuple):
    """One of several directories of the log: the offsets of its first and last file, and how many it has."""

    path: str
    first: int
    last: int
    file_count: int


class QueueCut(NamedTuple):
    """A queue that is to be made again from a byte of it on, with the records from an offset of the log on."""

    topic: str
    queue_id: int
    offset: int
    after: int


class IndexCut(NamedTuple):
    """The index is to be made again from the file of this name on, with the records from an offset of the log on;
    `first` says that nothing was indexed before it.
    """

    name: str
    begin: int
    first: bool


class RebuildPlan(NamedTuple):
    """What is to be made again."""

    queues: tuple[QueueCut, ...] = ()
    index_cut: IndexCut | None = None

    def __bool__(self) -> bool:
        return bool(self.queues) or self.index_cut is not None

    @property
    def begin(self) -> int:
        """Offset of the log from which it has to be read for that; for a plan that is not empty."""
        begins = [cut.after for cut in self.queues]
        return min(begins if self.index_cut is None else [*begins, self.index_cut.begin])


class Notes(NamedTuple):
    """Files by topic and queue id, the index files oldest first, a rebuilding that has begun but is not done; the bytes of
    the queues behind their last entries, which are only right after a clean stop; and the directories that have files of a
    log which lies in several.
    """

    queues: dict[tuple[str, int], tuple[NotedQueueFile, ...]]
    index_files: tuple[NotedIndexFile, ...]
    rebuild: RebuildPlan = RebuildPlan()
    ends: dict[tuple[str, int], int] = {}
    log_directories: tuple[NotedLogDirectory, ...] = ()


def notes_path(root: str) -> str:
    """The file of the notes."""
    return os.path.join(root, "rocketd-files")


def read_notes(fs: IFileSystem, root: str) -> Notes | None:
    """The notes; None where there are none that can be read. Raises OSError."""
    path = notes_path(root)
    data = fs.read_file(path) if fs.exists(path) else b""
    content = data[_CHECKSUM_SIZE:]
    if data[:_CHECKSUM_SIZE] != b"%08x\n" % zlib.crc32(content):
        return None
    version, *parts = json.loads(content)
    if version != _VERSION:
        return None
    queues, ends, index, rebuilt_queues, rebuilt_index, *directories = parts
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
        tuple(NotedLogDirectory(*directory) for directory in directories),
    )


def write_notes(fs: IFileSystem, root: str, notes: Notes) -> None:
    """Replace the notes; they are on the disk when this returns. Raises OSError."""
    parts: list[object] = [_VERSION, _by_topic(notes.queues), _by_topic(notes.ends), notes.index_files, *notes.rebuild]
    parts += notes.log_directories
    content = json.dumps(parts, separators=(",", ":")).encode()
    replace_file(fs, notes_path(root), b"%08x\n" % zlib.crc32(content) + content, keep_old=False)


def _by_topic(values: Mapping[tuple[str, int], object]) -> dict[str, dict[int, object]]:
    found: dict[str, dict[int, object]] = {}
    for (topic, queue_id), value in values.items():
        found.setdefault(topic, {})[queue_id] = value
    return found


class FileNotes:
    """Keeps the notes of an open store: a task of the maintenance thread.

    `take_over` belongs to the thread that starts the store; `note` may be called by any thread but the reactor's.
    """

    def __init__(
        self,
        fs: IFileSystem,
        root: str,
        queues: ConsumeQueueTable,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        log: MappedFileQueue[LogFile] | None = None,
    ) -> None:
        """`log` are the files of a log that lies in several directories."""
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
        self._log = log
        self._seen_log: list[LogFile] | None = None
        self._noted_log: tuple[NotedLogDirectory, ...] = ()
        self._rebuild = RebuildPlan()
        self._stale = True
        self._failing = False

    def take_over(self, notes: Notes | None, rebuild: RebuildPlan) -> None:
        """Begin with what an earlier process has noted, None for nothing: full files need not be looked at again.
        `rebuild` is what is still to be made again at the next start.
        """
        if notes is not None:
            self._noted = dict(notes.queues)
        self._rebuild = rebuild

    def run_once(self, now: float) -> float:
        """Note what has changed; `now` is in seconds, returns when to call again."""
        self.note()
        return now + NOTE_SECONDS

    def note(self, last: bool = False) -> None:
        """Write the notes if the files have changed, or if it is the `last` time, behind the last entry of all queues. When
        that fails, there are none: a failure is a line in the log.
        """
        with self._guard:
            if not (self._look_at_queues() | self._look_at_index() | self._look_at_log() | self._stale | last):
                return
            self._stale = True
            ends = {key: queue.files.max_offset for key, queue in self._queues.all()} if last else {}
            try:
                notes = Notes(self._noted, self._noted_index, self._rebuild, ends, self._noted_log)
                write_notes(self._fs, self._root, notes)
                self._stale = self._failing = False
                self._checkpoint.files_noted = True
            except OSError as error:
                if not self._failing:
                    _log.error("cannot write {path}: {error}", path=notes_path(self._root), error=error)
                self._failing = True
                # What it said may no longer be there.
                with contextlib.suppress(OSError):
                    self._fs.remove(notes_path(self._root))

    def _look_at_queues(self) -> bool:
        """Look at the queues whose files have changed; returns whether that is news."""
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

    def _look_at_index(self) -> bool:
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

    def _look_at_log(self) -> bool:
        files = self._seen_log if self._log is None else self._log.files
        if files is self._seen_log or files is None:
            return False
        self._seen_log = files
        offsets: dict[str, list[int]] = {}
        for file in files:
            offsets.setdefault(os.path.dirname(file.path), []).append(file.file_from_offset)
        noted = tuple(NotedLogDirectory(path, at[0], at[-1], len(at)) for path, at in sorted(offsets.items()))
        news = noted != self._noted_log
        self._noted_log = noted
        return news


class NotedTask:
    """Another task of the maintenance thread, before each step of which the files are noted: for one that removes files."""

    def __init__(self, notes: FileNotes, task: PeriodicTask) -> None:
        self._notes = notes
        self._task = task

    def run_once(self, now: float) -> float:
        """See PeriodicTask."""
        self._notes.note()
        return self._task.run_once(now)


def _noted_queue_files(files: Sequence[QueueFile], before: Sequence[NotedQueueFile]) -> tuple[NotedQueueFile, ...]:
    """What is to be noted of a queue's files; of those that were full already it is known, whose pages may be far away."""
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
