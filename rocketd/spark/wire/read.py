"""Reads a range of a queue from a live broker, as Arrow batches.

Every offset of the range is accounted for: it is in a batch, filtered out, or reported as lost.
"""

from collections.abc import Iterator
from time import monotonic, sleep
from typing import Final

import pyarrow as pa

from rocketd.protocol.cluster import MASTER
from rocketd.protocol.pull import ANY_TAG
from rocketd.spark.errors import ClusterError, DataLossError, NoAnswerError
from rocketd.spark.ranges import OnLoss, QueueRange, ReadPlan
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.connection import connection_to
from rocketd.spark.wire.faults import give_up
from rocketd.spark.wire.gather import Gathered
from rocketd.spark.wire.offsets import bounds_at, dispatch_behind, max_offset
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.pull import NOTHING_WANTED, PipelinedPulls, PullAnswer, subscription

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

_SETTLING: Final = 1.0
"""Seconds in which messages beyond a queue's end may still appear before they count as lost.

While a restarted broker rebuilds its queues, the wait goes on, up to the `patience` of the options.
"""


def read_range(
    cluster: ClusterOptions | ClusterClient, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range as batches of ``arrow_schema(plan.columns)``, ascending by queue offset.

    Empty batches are left out. An unreachable broker is waited for, up to the `patience` of the options (seconds).
    Raises:

    - ClusterError if the broker stays unreachable, or refuses,
    - DataLossError for messages that are gone, unless `on_loss` accepts their ranges.

    With a filter, the loss of single messages cannot be detected. Then only offsets outside the queue's bounds are
    reported.
    """
    if plan.tags is not None and not plan.tags:
        return
    known = cluster if isinstance(cluster, ClusterClient) else ClusterClient(cluster)
    yield from _Reader(known, part, plan, on_loss).batches()


class _Reader:
    """The reading of one range. `_at` is the next offset expected from the broker.

    `_inside` means the rest of the range is known to lie within the queue's bounds.
    """

    def __init__(self, cluster: ClusterClient, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None) -> None:
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
        self._odd: PullAnswer | None = None
        self._slave = ""
        self._tried_slaves: set[str] = set()

    # ------------------------------------------------------------ pulling

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Pull until the end of the range, and yield a batch whenever enough has come."""
        pulls: PipelinedPulls | None = None
        try:
            while self._at < self._end:
                try:
                    if pulls is None:
                        if not self._inside:
                            self._examine()
                            continue
                        pulls = self._pulls()
                    answer = pulls.take()
                except ClusterError as error:
                    pulls = None
                    self._wait_after(error)
                    continue
                if answer.following > self._at and (answer.found or answer.remark == NOTHING_WANTED):
                    self._gathered.add(answer.records)
                    self._advance(answer.following)
                else:
                    pulls, self._inside = None, False
                    # Messages missing on a slave are not lost: by default (slaveReadEnable) a slave returns none.
                    self._odd, self._slave = None if self._slave else answer, ""
                    yield from self._batch()
                if self._gathered.size >= self._plan.batch_bytes:
                    yield from self._batch()
            yield from self._batch()
        finally:
            if pulls is not None:
                pulls.drop()

    def _pulls(self) -> PipelinedPulls:
        connection = connection_to(self._source(), self._cluster.options)
        group = self._cluster.options.group
        return PipelinedPulls(connection, self._queue, self._at, self._end, group, self._kind, self._expression)

    def _source(self) -> str:
        """Return the master's address, or a slave's if only that is reachable and has the rest of the range."""
        return self._slave or self._cluster.master(self._queue.broker)

    def _advance(self, to: int) -> None:
        self._at = to
        self._pause, self._tries, self._stuck = _FIRST_PAUSE, 1, 0
        self._failing = None

    def _wait_after(self, error: ClusterError) -> None:
        """Wait a little before the next attempt. Raises the error if there is none."""
        if self._slave:
            self._slave = ""  # the master may have the messages that a slave refused
            return
        if not error.retriable:
            raise error
        if isinstance(error, NoAnswerError):
            self._cluster.forget(self._queue.broker)
            if self._find_slave():
                return
        patience = self._cluster.options.patience
        if self._failing is None:  # not the time of the last message: the reader may need long for a batch
            self._failing = monotonic()
        if monotonic() + self._pause > self._failing + patience:
            give_up(error, self._tries, patience)
        sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._tries += 1

    def _find_slave(self) -> bool:
        """Find a slave that holds the whole rest of the range. The ends of other slaves prove nothing."""
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
        except ClusterError:
            pass  # the error of the master is the one to report
        return False

    def _batch(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of the collected records."""
        return self._gathered.take(min(self._at, self._end), self._leaves_out)

    # ------------------------------------------------------------ losses

    def _examine(self) -> None:
        """Compare the rest of the range, and the last answer without messages, with the queue's bounds.

        This also runs before the first pull, since a pull outside the bounds would leave traces at the broker.
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
                raise ClusterError(text, retriable=True)

    def _await_end(self, upper: int) -> None:
        """Wait until the queue reaches the end of the range. Messages that do not come are lost."""
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
