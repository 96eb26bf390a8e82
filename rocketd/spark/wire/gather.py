"""Collects the records of pulls until they fill a batch.

Every offset that the answers passed over is looked up among their records; missing offsets are reported.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketd.spark.errors import ClusterError, StoreFilesError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.records.parse import frame_starts, parse_batches
from rocketd.spark.wire.offsets import QUEUE_OFFSET_POSITION


class Gathered:
    """Records of one queue from offset `begin` on. `filtered` means the broker may have filtered out some in between.

    `size` is the number of bytes collected.
    """

    def __init__(self, queue: Queue, plan: ReadPlan, begin: int, *, filtered: bool) -> None:
        self.begin = begin
        self.size = 0
        self._queue = queue
        self._plan = plan
        self._filtered = filtered
        self._parts: list[bytes] = []
        self._columns = plan.columns
        if plan.tags is not None and "tags" not in plan.columns:
            self._columns = (*plan.columns, "tags")

    def add(self, records: bytes) -> None:
        """Add the records of the next answer."""
        if records:
            self._parts.append(records)
            self.size += len(records)

    def take(self, end: int, lost: Callable[[QueueRange], None]) -> Iterator[pa.RecordBatch]:
        """Yield batches of all records before `end`, the offset reached by the answers. No batch is empty.

        `lost` is called with the offsets that have no record. Raises ClusterError for an invalid answer.
        """
        records, self._parts, self.size = b"".join(self._parts), [], 0
        begin, self.begin = self.begin, end
        if begin >= end:
            return
        try:
            starts = frame_starts(records)
        except StoreFilesError as error:
            raise ClusterError(f"{self._queue}: the answer to a pull holds no whole records: {error}") from error
        offsets = _queue_offsets(records, starts)
        kept = offsets < end
        if not kept.all():
            starts, offsets = starts[kept], offsets[kept]
        self._check(offsets, begin, end, lost)
        if len(starts):
            yield from self._parse(records, starts)

    def _parse(self, records: bytes, starts: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        plan = self._plan
        wanted = None if plan.tags is None else pa.array(sorted(plan.tags), pa.string())
        for batch in parse_batches(
            records,
            starts,
            self._columns,
            broker=self._queue.broker,
            decompress=plan.decompress,
            verify_crc=plan.verify_crc,
            where=f"an answer of {self._queue}",
        ):
            if wanted is not None:
                # The broker compares only the hashes of tags.
                batch = batch.filter(pc.is_in(batch.column(self._columns.index("tags")), wanted))
                batch = batch.select(list(plan.columns))
            if batch.num_rows:
                yield batch

    def _check(self, offsets: npt.NDArray[Any], begin: int, end: int, lost: Callable[[QueueRange], None]) -> None:
        around = np.concatenate(([begin - 1], offsets, [end]))
        steps = np.diff(around)
        if (steps < 1).any():
            raise ClusterError(f"{self._queue}: the broker's answers for [{begin}, {end}) are not in order")
        if self._filtered:
            return
        for place in np.flatnonzero(steps > 1).tolist():
            lost(QueueRange(self._queue, int(around[place]) + 1, int(around[place + 1])))


def _queue_offsets(records: bytes, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the queue offsets of the records that begin at `starts`."""
    data = np.frombuffer(records, np.uint8)
    places = (starts + QUEUE_OFFSET_POSITION)[:, None] + np.arange(8)
    offsets: npt.NDArray[np.int64] = data[places].view(">i8").reshape(-1).astype(np.int64)
    return offsets
