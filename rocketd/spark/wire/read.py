"""Reads a range of a queue from a live broker, as Arrow batches.

Every offset of the range is accounted for: it is in a batch, or it is not wanted, or it is told as lost.
"""

from collections.abc import Iterator
from time import monotonic, sleep
from typing import Final

import pyarrow as pa

from rocketd.spark.errors import BrokerError, DataLossError, UnreachableError
from rocketd.spark.ranges import OnLoss, QueueRange, ReadPlan
from rocketd.spark.wire.cluster import MASTER, Cluster
from rocketd.spark.wire.connection import connection_to
from rocketd.spark.wire.faults import give_up
from rocketd.spark.wire.gather import Gathered
from rocketd.spark.wire.offsets import bounds_at, dispatch_behind, max_offset
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.pull import NOTHING_WANTED, Pulled, Pulls, subscription
from rocketd.spark.wire.pull_request import ANY_TAG

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

_SETTLING: Final = 1.0
"""Seconds in which messages behind a queue's end may still appear before they are lost. A broker that has restarted and
builds the ends of its queues while it serves is waited for, however long it takes.
"""


def read_range(
    cluster: ClusterOptions | Cluster, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of a range as batches of ``arrow_schema(plan.columns)``, ascending by queue offset.

    Batches that would be empty are left out. A broker that is away is waited for, for as many seconds as the `patience`
    of the options. Raises BrokerError then, and where it refuses; and DataLossError for messages that are
    not there any more, unless `on_loss` takes their ranges. A filter hides single messages that are lost: then only
    what lies outside the queue's bounds is told.
    """
    if plan.tags is not None and not plan.tags:
        return
    known = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    yield from _Reader(known, part, plan, on_loss).batches()


class _Reader:
    """One reading of one range. `_at` is the offset from which messages are still to come; `_inside` says that the queue's
    bounds are known to have the rest.
    """

    def __init__(self, cluster: Cluster, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None) -> None:
        self._cluster = cluster
        self._queue = part.queue
        self._at = part.start
        self._end = part.end
        self._plan = plan
        self._on_loss = on_loss
        self._kind, self._expression = subscription(plan)
        self._gathered = Gathered(part.queue, plan, part.start, filtered=self._expression != ANY_TAG)
        self._pause = _FIRST_PAUSE
        self._tries = 1
        self._failing: float | None = None
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
                    self._gathered.add(answer.records)
                    self._advance(answer.following)
                else:
                    pulls, self._inside = None, False
                    # What a slave does not hand out is not lost: by default (slaveReadEnable) it hands out nothing.
                    self._odd, self._slave = None if self._slave else answer, ""
                    yield from self._batch()
                if self._gathered.size >= self._plan.batch_bytes:
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
        self._failing = None

    def _wait_after(self, error: BrokerError) -> None:
        """Wait a little before the next try. Raises the error where there is none."""
        if self._slave:
            self._slave = ""  # what a slave refuses, the master may have
            return
        if not error.retriable:
            raise error
        if isinstance(error, UnreachableError):
            self._cluster.forget(self._queue.broker)
            if self._find_slave():
                return
        patience = self._cluster.options.patience
        if self._failing is None:  # not the last message's time: who reads may take its time for a batch
            self._failing = monotonic()
        if monotonic() + self._pause > self._failing + patience:
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

    def _batch(self) -> Iterator[pa.RecordBatch]:
        """Make batches of what has come."""
        return self._gathered.take(min(self._at, self._end), self._leaves_out)

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
        began, pause = monotonic(), _FIRST_PAUSE
        while upper < self._end:
            waited = monotonic() - began
            behind = dispatch_behind(self._cluster, self._queue.broker)
            if waited >= _SETTLING and (not behind or waited >= self._cluster.options.patience):
                break
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            upper = max_offset(self._cluster, self._queue)
        if upper < self._end:
            lost = max(upper, self._at)
            end, self._end = self._end, lost
            self._report(QueueRange(self._queue, lost, end), f"the queue ends at {upper}")

    def _lose(self, start: int, to: int) -> None:
        end = min(to, self._end)
        self._advance(end)
        self._gathered.begin = end
        self._report(QueueRange(self._queue, start, end), "the broker has removed it")

    def _report(self, lost: QueueRange, why: str) -> None:
        if self._on_loss is None:
            raise DataLossError(
                f"{lost.count} messages are not there any more: {lost}: {why}; set failOnDataLoss to false to go on "
                "without them"
            )
        self._on_loss(lost)

    def _leaves_out(self, lost: QueueRange) -> None:
        self._report(lost, "the broker leaves it out")
