"""Reads a range of a queue from a live broker, as Arrow batches.

Every offset of the range is accounted for: it is in a batch, or it is not wanted, or it is told as lost.
"""

from collections.abc import Iterator
from time import monotonic, sleep
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketd.spark.errors import BrokerError, DataLossError, StoreFilesError, UnreachableError
from rocketd.spark.parse import frame_starts, parse_frames
from rocketd.spark.ranges import OnLoss, QueueRange, ReadPlan
from rocketd.spark.wire.cluster import MASTER, Cluster
from rocketd.spark.wire.connection import connection_to
from rocketd.spark.wire.faults import give_up
from rocketd.spark.wire.offsets import ANY_TAG, bounds_at, max_offset
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.pull import NOTHING_WANTED, Pulled, Pulls, subscription

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

_SETTLING: Final = 1.5
"""Seconds in which messages behind a queue's end may still appear before they are lost: a broker that restarts builds the
ends of its queues while it serves already.
"""

_QUEUE_OFFSET_POSITION: Final = 20


def read_range(
    cluster: ClusterOptions | Cluster, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of a range as batches of ``arrow_schema(plan.columns)``, ascending by queue offset.

    Batches that would be empty are left out. A broker that is away is waited for, `patience` seconds of the options after
    the last message that came. Raises BrokerError then, and where it refuses; and DataLossError for messages that are
    not there any more, unless `on_loss` takes their ranges. A filter hides single messages that are lost: then only
    what lies outside the queue's bounds is told.
    """
    if plan.tags is not None and not plan.tags:
        return
    known = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    yield from _Reader(known, part, plan, on_loss).batches()


class _Reader:
    """One reading of one range. `_at` is the offset from which messages are still to come, `_begin` the one from which
    those in hand are; `_inside` says that the queue's bounds are known to have the rest.
    """

    def __init__(self, cluster: Cluster, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None) -> None:
        self._cluster = cluster
        self._queue = part.queue
        self._at = part.start
        self._end = part.end
        self._plan = plan
        self._on_loss = on_loss
        self._kind, self._expression = subscription(plan)
        self._filtered = self._expression != ANY_TAG
        self._columns = plan.columns
        if plan.tags is not None and "tags" not in plan.columns:
            self._columns = (*plan.columns, "tags")
        self._begin = part.start
        self._gathered: list[bytes] = []
        self._size = 0
        self._pause = _FIRST_PAUSE
        self._tries = 1
        self._progress = monotonic()
        self._stuck = 0
        self._inside = False
        self._odd: Pulled | None = None
        self._slave = ""
        self._tried_slaves: set[str] = set()

    # ------------------------------------------------------------ pulling

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Pull until the range's end, and give out a batch whenever enough has come."""
        pulls: Pulls | None = None
        try:
            while self._at < self._end:
                try:
                    if pulls is None:
                        if not self._inside:
                            self._examine()
                            continue
                        pulls = self._pulls()
                    answer = pulls.take()
                except BrokerError as error:
                    pulls = None
                    self._wait_after(error)
                    continue
                if answer.following > self._at and (answer.found or answer.remark == NOTHING_WANTED):
                    if answer.found:
                        self._gathered.append(answer.records)
                        self._size += len(answer.records)
                    self._advance(answer.following)
                else:
                    pulls, self._inside, self._odd = None, False, answer
                    yield from self._batch()
                if self._size >= self._plan.batch_bytes:
                    yield from self._batch()
            yield from self._batch()
        finally:
            if pulls is not None:
                pulls.drop()

    def _pulls(self) -> Pulls:
        connection = connection_to(self._source(), self._cluster.options)
        group = self._cluster.options.group
        return Pulls(connection, self._queue, self._at, self._end, group, self._kind, self._expression)

    def _source(self) -> str:
        """Address of the master, unless it is away and a slave holds what is to be read."""
        return self._slave or self._cluster.master(self._queue.broker)

    def _advance(self, to: int) -> None:
        self._at = to
        self._pause, self._tries, self._stuck = _FIRST_PAUSE, 1, 0
        self._progress = monotonic()

    def _wait_after(self, error: BrokerError) -> None:
        """Wait a little before the next try. Raises the error where there is none."""
        if not error.retriable:
            raise error
        self._slave = ""
        if isinstance(error, UnreachableError):
            self._cluster.forget(self._queue.broker)
            if self._find_slave():
                return
        patience = self._cluster.options.patience
        if monotonic() + self._pause > self._progress + patience:
            give_up(error, self._tries, patience)
        sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._tries += 1

    def _find_slave(self) -> bool:
        """Find a slave that holds all that is still to be read: of another the ends say nothing."""
        cluster, queue = self._cluster, self._queue
        try:
            slaves = [
                address for number, address in sorted(cluster.addresses(queue.broker).items()) if number != MASTER
            ]
            for address in slaves:
                if address in self._tried_slaves:
                    continue
                self._tried_slaves.add(address)
                lower, upper = bounds_at(cluster, address, queue)
                if lower <= self._at and self._end <= upper:
                    self._slave, self._inside = address, True
                    return True
        except BrokerError:
            pass  # what was wrong with the master is what is told
        return False

    # ------------------------------------------------------------ losses

    def _examine(self) -> None:
        """Compare with the queue's bounds what is to be read, and what an answer without messages has said.

        Before the first pull too: one outside of the bounds would leave its mark at the broker.
        """
        lower, upper = bounds_at(self._cluster, self._source(), self._queue)
        odd, self._odd = self._odd, None
        self._inside = True
        if self._at < lower:
            self._lose(self._at, lower)
        if self._end > upper:
            self._await_end(upper)
        elif odd is not None and self._at == odd.start:
            self._stuck += 1
            if self._stuck > 1 and odd.following > self._at:
                self._lose(self._at, odd.following)
            elif self._stuck > 1:
                text = f"{self._queue}: nothing comes from offset {self._at} on ({odd.remark})"
                raise BrokerError(text, retriable=True)

    def _await_end(self, upper: int) -> None:
        """Wait until the queue reaches to the range's end; what does not come is lost."""
        ends = monotonic() + min(_SETTLING, self._cluster.options.patience)
        pause = _FIRST_PAUSE
        while upper < self._end and monotonic() < ends:
            sleep(pause)
            pause *= 2
            upper = max_offset(self._cluster, self._queue)
        if upper < self._end:
            lost = max(upper, self._at)
            end, self._end = self._end, lost
            self._report(QueueRange(self._queue, lost, end), f"the queue ends at {upper}")

    def _lose(self, start: int, to: int) -> None:
        end = min(to, self._end)
        self._advance(end)
        self._begin = end
        self._report(QueueRange(self._queue, start, end), "the broker has removed it")

    def _report(self, lost: QueueRange, why: str) -> None:
        if self._on_loss is None:
            raise DataLossError(
                f"{lost.count} messages are not there any more: {lost}: {why}; set failOnDataLoss to false to go on "
                "without them"
            )
        self._on_loss(lost)

    # ------------------------------------------------------------ batches

    def _batch(self) -> Iterator[pa.RecordBatch]:
        """Make a batch of what has come; none where nothing of it is wanted."""
        records, self._gathered, self._size = b"".join(self._gathered), [], 0
        begin, self._begin = self._begin, self._at
        if not records:
            return
        try:
            starts = frame_starts(records)
        except StoreFilesError as error:
            raise BrokerError(f"{self._queue}: the answer to a pull holds no whole records: {error}") from error
        offsets = _queue_offsets(records, starts)
        end = min(self._at, self._end)
        kept = offsets < end
        if not kept.all():
            starts, offsets = starts[kept], offsets[kept]
        self._check_offsets(offsets, begin, end)
        if not len(starts):
            return
        plan = self._plan
        batch = parse_frames(
            records,
            starts,
            self._columns,
            broker=self._queue.broker,
            decompress=plan.decompress,
            verify_crc=plan.verify_crc,
        )
        if plan.tags is not None:
            batch = batch.filter(pc.is_in(batch.column("tags"), pa.array(sorted(plan.tags), pa.string())))
            if len(self._columns) > len(plan.columns):
                batch = batch.select(list(plan.columns))
        if batch.num_rows:
            yield batch

    def _check_offsets(self, offsets: npt.NDArray[np.int64], begin: int, end: int) -> None:
        """Report the holes between these offsets. Raises BrokerError where they do not ascend from `begin` on."""
        around = np.concatenate(([begin - 1], offsets, [end]))
        steps = np.diff(around)
        if (steps < 1).any():
            raise BrokerError(f"{self._queue}: the broker's answers for [{begin}, {end}) are not in order")
        if self._filtered:
            return
        for place in np.flatnonzero(steps > 1).tolist():
            lost = QueueRange(self._queue, int(around[place]) + 1, int(around[place + 1]))
            self._report(lost, "the broker leaves it out")


def _queue_offsets(records: bytes, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The queue offsets of the records that begin at `starts`."""
    data = np.frombuffer(records, np.uint8)
    places = (starts + _QUEUE_OFFSET_POSITION)[:, None] + np.arange(8)
    offsets: npt.NDArray[np.int64] = data[places].view(">i8").reshape(-1).astype(np.int64)
    return offsets
