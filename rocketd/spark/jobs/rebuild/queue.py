"""Makes the files of one queue from its entries in the order of the log.

The bytes are those of `rocketd.store.queue.consume_queue.ConsumeQueue.put` for the same records: duplicate entries are
skipped, and missing ones are filled. Runs in Spark's tasks; does not import PySpark.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rocketd.spark.archive.format.durable import make_dirs, sync_dir
from rocketd.spark.jobs.rebuild.parts import PLACED, Placed
from rocketd.spark.jobs.stopped_store.dispatched import QueueKey
from rocketd.spark.jobs.stopped_store.files import Entries, MappedQueues
from rocketd.spark.records.parse import ENTRY
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, FILLER_SIZE, offset_to_file_name, queue_dir

LIKELY_GAP = 1000
"""The most entries that may be missing in one place on the evidence of a single record."""


@dataclass(frozen=True, slots=True)
class EntrySlice:
    """Entries of one queue in the file of one part: the path, the first entry and the count."""

    path: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class QueueToMake:
    """One queue to make. `expired` is the store's directory of queues, the source of entries for expired records."""

    key: QueueKey
    slices: tuple[EntrySlice, ...]
    file_size: int
    log_begin: int
    expired: str


@dataclass(frozen=True, slots=True)
class QueueMade:
    """The result of a queue: `begin` and `end` are queue offsets, without the end. The other fields count entries.

    `filled` entries were missing and `doubled` ones existed already. `restarted` ones date from before the topic was
    deleted and recreated. `unlikely` ones belong to records whose queue offset is probably damaged.
    """

    key: QueueKey
    begin: int = 0
    end: int = 0
    expired: int = 0
    filled: int = 0
    doubled: int = 0
    restarted: int = 0
    unlikely: int = 0


class QueueWriter:
    """Writes consecutive entries into the files of a queue. Offsets are queue offsets."""

    def __init__(self, directory: str, file_size: int) -> None:
        self._directory = directory
        self._file_size = file_size
        self._fd = -1
        self._opened = -1
        self.begin = -1
        self.next = -1
        self.filled = self.doubled = self.restarted = self.unlikely = 0
        self._doubtful = np.empty(0, PLACED)

    def put(self, placed: Placed) -> None:
        """Write more entries, in the order of the log. Raises OSError."""
        if len(self._doubtful):
            placed = np.concatenate((self._doubtful, placed), dtype=PLACED)
            self._doubtful = placed[:0]
        runs = list(_runs(placed))
        for number, run in enumerate(runs):
            first = int(run["queue_offset"][0])
            if 0 <= self.next < first - LIKELY_GAP and len(run) == 1:
                if number + 1 == len(runs):
                    # The next record decides.
                    self._doubtful = run.copy()
                    return
                if int(runs[number + 1]["queue_offset"][0]) <= self.next:
                    self.unlikely += 1
                    continue
            self._put_run(first, run["entry"])

    def _put_run(self, first: int, entries: Entries) -> None:
        if first < 0:
            self.unlikely += len(entries)
            return
        if self.next < 0:
            self.begin = self.next = first
            self._fill(first - first % (self._file_size // CONSUME_QUEUE_UNIT), first)
        elif first == 0 and self.next > 0:
            # The topic was deleted, and its queue begun again.
            self.restarted += self.next - self.begin
            self._start_again()
        elif first > self.next:
            self.filled += first - self.next
            self._fill(self.next, first)
        elif first < self.next:
            known = min(len(entries), self.next - first)
            self.doubled += known
            entries = entries[known:]
        if len(entries):
            self._append(self.next, entries.tobytes())
            self.next += len(entries)

    def begin_with(self, first: int, entries: Entries, real_from: int) -> None:
        """Begin with existing entries; `real_from` is the offset of the first entry that is not a filler."""
        self._fill(first - first % (self._file_size // CONSUME_QUEUE_UNIT), first)
        self._append(first, entries.tobytes())
        self.begin, self.next = real_from, first + len(entries)

    def finish(self) -> None:
        """Bring everything to the disk. Raises OSError."""
        if len(self._doubtful):
            # No later record confirms it.
            self.unlikely += 1
        self._close()
        if os.path.isdir(self._directory):
            sync_dir(self._directory)

    def _fill(self, first: int, end: int) -> None:
        step = self._file_size // CONSUME_QUEUE_UNIT
        filler = np.zeros(1, ENTRY)
        filler["size"] = FILLER_SIZE
        for at in range(first, end, step):
            self._append(at, np.repeat(filler, min(step, end - at)).tobytes())
        self.next = end

    def _append(self, offset: int, data: bytes) -> None:
        place = offset * CONSUME_QUEUE_UNIT
        view = memoryview(data)
        while view:
            begin = place - place % self._file_size
            self._open(begin)
            some = view[: begin + self._file_size - place]
            written = os.pwrite(self._fd, some, place - begin)
            view = view[written:]
            place += written

    def _open(self, begin: int) -> None:
        if begin == self._opened:
            return
        self._close()
        make_dirs(self._directory)
        path = os.path.join(self._directory, offset_to_file_name(begin))
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, self._file_size)
        self._opened = begin

    def _close(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
        self._fd = self._opened = -1

    def _start_again(self) -> None:
        self._close()
        shutil.rmtree(self._directory)
        self.begin = self.next = 0


def _runs(placed: Placed) -> Iterator[Placed]:
    """Yield runs of entries with consecutive queue offsets."""
    begins = np.flatnonzero(np.diff(placed["queue_offset"], prepend=-2) != 1)
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(placed)], strict=True):
        yield placed[begin:end]


def make_queue(new_root: str, task: QueueToMake) -> QueueMade:
    """Make the files of one queue below `new_root`, laid out as a store. Existing files are recreated."""
    topic, queue_id = task.key
    directory = queue_dir(new_root, topic, queue_id)
    making = directory + ".making"
    for left in (making, directory):
        shutil.rmtree(left, ignore_errors=True)
    writer = QueueWriter(making, task.file_size)
    expired = 0
    if task.expired:
        first, entries = expired_entries(MappedQueues(task.expired), task.key, task.log_begin)
        if len(entries):
            expired = int((entries["size"] != FILLER_SIZE).sum())
            writer.begin_with(first, entries, first + len(entries) - expired)
    for placed in _read(task.slices):
        writer.put(placed)
    writer.finish()
    if os.path.isdir(making):
        os.rename(making, directory)
        sync_dir(os.path.dirname(directory))
    return QueueMade(
        task.key,
        max(0, writer.begin),
        max(0, writer.next),
        expired,
        writer.filled,
        writer.doubled,
        writer.restarted,
        writer.unlikely,
    )


def _read(slices: Iterable[EntrySlice]) -> Iterator[Placed]:
    for one in slices:
        yield np.fromfile(one.path, PLACED, one.count, offset=one.first * PLACED.itemsize)


def expired_entries(files: MappedQueues, key: QueueKey, log_begin: int) -> tuple[int, Entries]:
    """Return the first entries of a queue, whose records lie before the beginning of the log: queue offset and entries."""
    found: list[Entries] = []
    begin = -1
    for first, path in files.files(*key):
        entries = files.file(path)
        offsets, sizes = entries["offset"], entries["size"]
        right = (sizes > 0) & (offsets >= 0) & ((sizes == FILLER_SIZE) | (offsets < log_begin))
        count = len(entries) if right.all() else int(np.argmin(right))
        if begin < 0:
            begin = first
        elif begin + sum(map(len, found)) != first:
            break
        found.append(entries[:count])
        if count < len(entries):
            break
    whole = np.concatenate(found, dtype=ENTRY) if found else np.empty(0, ENTRY)
    real = np.flatnonzero(whole["size"] != FILLER_SIZE)
    # Fillers before existing records are recreated with those.
    return max(0, begin), whole[: int(real[-1]) + 1] if len(real) else whole[:0]
