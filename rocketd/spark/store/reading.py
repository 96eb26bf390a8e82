"""Reads a range of a queue from a store's files: first the entries, then the records they point to.

Nothing is skipped silently: offsets without a message are lost. A loss is an error, or reported to the caller.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

from rocketd.common.java_hash import java_string_hash
from rocketd.common.names import LMQ_PREFIX, SCHEDULE_TOPIC
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import SQL92, Selector, compile_selector
from rocketd.spark.errors import DataLossError, OptionError, StoreFilesError
from rocketd.spark.ranges import OnLoss, QueueRange, ReadPlan
from rocketd.spark.records.parse import HEADER_COLUMNS, Frames, batches_of, columns_of
from rocketd.spark.records.properties import Properties, raw_properties
from rocketd.spark.store.files import Entries, FileRow, QueueEntries, StoreFile
from rocketd.store.base.layout import FILLER_SIZE, MAX_EXT_ADDRESS

_ENTRIES_AT_ONCE = 1 << 16
_HEADS_FACTOR = 8

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a read: tag hashes, tag texts, and a condition over the properties."""

    hashes: npt.NDArray[np.int64] | None
    tags: pa.Array | None
    selector: Selector | None

    @classmethod
    def of(cls, plan: ReadPlan, topic: str) -> "Filters":
        """Return the filters of a plan. Raises OptionError for an invalid condition."""
        hashes = tags = selector = None
        if plan.tags is not None:
            tags = pa.array(sorted(plan.tags), pa.string())
            if topic != SCHEDULE_TOPIC:  # its entries hold the delivery time instead of a tag hash
                hashes = np.array([java_string_hash(tag) for tag in sorted(plan.tags)], np.int64)
        if plan.sql92:
            try:
                selector = compile_selector(SQL92, plan.sql92)
            except SelectorError as error:
                raise OptionError(f"sql92 {plan.sql92!r} is not a condition: {error}") from error
        return cls(hashes, tags, selector)

    def by_hash(self, entries: Entries) -> npt.NDArray[np.bool_]:
        """Return a mask of the entries that may point to wanted messages."""
        if self.hashes is None:
            return np.ones(len(entries), np.bool_)
        codes = entries["tag_hash"].astype(np.int64)
        return np.isin(codes, self.hashes) | (codes <= MAX_EXT_ADDRESS)

    def by_record(self, frames: Frames) -> npt.NDArray[np.bool_]:
        """Return a mask of the wanted records."""
        wanted = np.ones(frames.count, np.bool_)
        if self.tags is not None and frames.count:
            found = pa.compute.is_in(Properties(frames).tags, value_set=self.tags)
            wanted &= found.to_numpy(zero_copy_only=False)
        if self.selector is not None:
            matches = self.selector.matches
            strings = raw_properties(frames).to_pylist()
            wanted &= np.fromiter(map(matches, strings), np.bool_, frames.count)
        return wanted


class RangeReader:
    """Reads one range. `log` is scanned again if an entry points beyond the known files."""

    def __init__(self, directory: str, log: FileRow, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None) -> None:
        self._queue = QueueEntries(directory)
        self._log = log
        self._part = part
        self._plan = plan
        self._on_loss = on_loss
        self._filters = Filters.of(plan, part.queue.topic)
        self._needs_topic = not HEADER_COLUMNS.issuperset(plan.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches by ascending queue offset. Raises DataLossError, StoreFilesError."""
        part = self._part
        first, last = self._queue.bounds(self._log)
        # Reported as one range, however long.
        if part.start < min(first, part.end):
            self._lost(part.start, min(first, part.end))
        for begin in range(max(part.start, first), min(part.end, last), _ENTRIES_AT_ONCE):
            end = min(begin + _ENTRIES_AT_ONCE, part.end, last)
            for batch in self._chunk(begin, self._queue.entries(begin, end)):
                if batch.num_rows:  # the filters may leave an empty batch
                    yield batch
        if max(part.start, first, last) < part.end:
            self._lost(max(part.start, first, last), part.end)

    def _chunk(self, first: int, entries: Entries) -> Iterator[pa.RecordBatch]:
        offsets = entries["offset"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        there = (sizes > 0) & (sizes != FILLER_SIZE) & (offsets >= 0)
        holders = self._log.holders(offsets, np.where(there, sizes, 0))
        if (there & (holders < 0) & (offsets >= self._log.end)).any():
            self._log = FileRow(*self._log.directories)
            holders = self._log.holders(offsets, np.where(there, sizes, 0))
        holders[~there] = -1
        # Runs of entries whose records are in one file, or in none.
        changes = np.flatnonzero(np.diff(holders)) + 1
        for begin, end in zip([0, *changes.tolist()], [*changes.tolist(), len(holders)], strict=True):
            holder = int(holders[begin])
            if holder < 0:
                self._lost(first + begin, first + end)
                continue
            file = self._log.files[holder]
            mapped = file.map()
            if mapped is None:
                self._lost(first + begin, first + end)
                continue
            rows = begin + np.flatnonzero(self._filters.by_hash(entries[begin:end]))
            for some in self._cut(rows, sizes):
                yield from batches_of(
                    some,
                    lambda some, mapped=mapped, file=file: self._batch(mapped, file, first, some, offsets, sizes),  # type: ignore[misc]
                )

    def _cut(self, rows: Rows, sizes: npt.NDArray[np.int64]) -> Iterator[Rows]:
        """Split the rows into parts whose records have about `batch_bytes` bytes."""
        if not len(rows):
            return
        # If only the record heads are read, larger batches do no harm.
        limit = self._plan.batch_bytes * (1 if self._needs_topic else _HEADS_FACTOR)
        parts = np.cumsum(sizes[rows]) // max(1, limit)
        yield from np.split(rows, np.flatnonzero(np.diff(parts)) + 1)

    def _batch(
        self, mapped: Buffer, file: StoreFile, first: int, rows: Rows, offsets: Rows, sizes: Rows
    ) -> pa.RecordBatch:
        plan = self._plan
        queue = self._part.queue
        frames = Frames(mapped, offsets[rows] - file.begin, file.path)
        self._compare(frames, file, first + rows, offsets[rows], sizes[rows])
        if self._filters.tags is not None or self._filters.selector is not None:
            wanted = self._filters.by_record(frames)
            if not wanted.all():
                frames = Frames(mapped, (offsets[rows] - file.begin)[wanted], file.path)
        topic = queue.topic if self._needs_topic and not queue.topic.startswith(LMQ_PREFIX) else None
        return columns_of(frames, plan.columns, queue.broker, plan.decompress, plan.verify_crc, topic)

    def _compare(self, frames: Frames, file: StoreFile, numbers: Rows, offsets: Rows, sizes: Rows) -> None:
        """Raise StoreFilesError unless the records match their entries."""
        queue = self._part.queue
        right = (frames.sizes == sizes) & (frames.field("commit_log_offset", np.int64) == offsets)
        # Entries of light queues point to the records of other queues.
        if not queue.topic.startswith(LMQ_PREFIX):
            right &= frames.field("queue_id", np.int64) == queue.queue_id
            right &= frames.field("queue_offset", np.int64) == numbers
            if self._needs_topic:
                right &= frames.have_topic(queue.topic.encode())
        if not right.all():
            row = int(np.argmin(right))
            raise StoreFilesError(
                f"offset {int(numbers[row])} of {queue} leads to {int(sizes[row])} bytes of the log at {int(offsets[row])}, "
                f"but there, in {file.path}, is {frames.name(row)} with {int(frames.sizes[row])} bytes: the queue or the "
                "log is damaged; `rocketd store verify` tells more"
            )

    def _lost(self, begin: int, end: int) -> None:
        lost = QueueRange(self._part.queue, begin, end)
        if self._on_loss is None:
            raise DataLossError(
                f"{lost.count} messages of {lost} are not in the store any more: its files were deleted, or they never got "
                "there; read from a later offset, or with failOnDataLoss=false"
            )
        self._on_loss(lost)
