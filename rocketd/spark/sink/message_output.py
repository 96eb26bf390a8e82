"""The interface between deliveries and a cluster, and the sending of messages shared by all deliveries.

One request is in flight for each queue; those of several queues run at the same time. So the messages of a queue stay
in order, and only the last request of a queue can ever be in doubt.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.message import Outgoing

Parcel = Sequence[Outgoing]
"""The content of one request: one message, or several of one topic that may share a request."""

OnFailure = Callable[[Queue, Parcel, ClusterError, int], Parcel]
"""Called with a parcel that was not acknowledged, and the number of its failures. Returns the part to send again."""

_MAX_TOGETHER: Final = 1000
"""The most messages in a request: more would save nothing."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The position of a parcel's first message: its offset in the queue, and its offset in the commit log.

    For a half message, the queue is the broker's queue of half messages.
    """

    queue_offset: int
    commit_log_offset: int


class MessageOutput(Protocol):
    """A cluster to send to. Used by one thread. Errors are ClusterError and its subclasses."""

    def queues(self, topic: str) -> list[Queue]:
        """Return the writable queues, at least one, sorted."""
        ...

    def end(self, queue: Queue) -> int:
        """Return the offset after the last readable message."""
        ...

    def send(self, parcels: Mapping[Queue, Parcel]) -> dict[Queue, Receipt | ClusterError]:
        """Send a parcel to each of these queues, all at once, and wait for the answers."""
        ...

    def properties(self, queue: Queue, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and property string of every message of a range. Raises DataLossError if one is gone."""
        ...

    def await_processed(self, broker: str) -> None:
        """Wait until a broker has processed all earlier requests, and their messages are readable."""
        ...


def send_all(
    output: MessageOutput,
    messages: Iterable[tuple[Queue, Outgoing]],
    batch_bytes: int,
    on_sent: Callable[[Mapping[Queue, tuple[Parcel, Receipt]]], None],
    on_failure: OnFailure,
    before: Callable[[int], None] = lambda _: None,
) -> None:
    """Send messages to their queues, in order for each queue, with about `batch_bytes` in a request.

    `on_sent` is called with every round of stored parcels. `on_failure` decides about parcels without an
    acknowledgement, and `before` is called with the number of messages to go next. Holds about `batch_bytes` for each
    queue in memory.
    """
    waiting: dict[Queue, _Waiting] = {}
    for queue, message in messages:
        line = waiting.get(queue)
        if line is None:
            line = waiting[queue] = _Waiting(batch_bytes)
        line.add(message)
        while line.is_full:
            _round(
                output,
                {queue: line for queue, line in waiting.items() if line.is_half_full},
                on_sent,
                on_failure,
                before,
            )
    while left := {queue: line for queue, line in waiting.items() if line.messages}:
        _round(output, left, on_sent, on_failure, before)


class _Waiting:
    """Messages waiting for their queue, and the number of failures of the first ones."""

    def __init__(self, batch_bytes: int) -> None:
        self.messages: deque[Outgoing] = deque()
        self.failures = 0
        self._size = 0
        self._batch_bytes = batch_bytes

    def add(self, message: Outgoing) -> None:
        self.messages.append(message)
        self._size += message.size

    @property
    def is_full(self) -> bool:
        return self._size >= self._batch_bytes

    @property
    def is_half_full(self) -> bool:
        return self._size * 2 >= self._batch_bytes

    def parcel(self) -> Parcel:
        """Return the next messages that may share a request; they stay first in line."""
        taken: list[Outgoing] = []
        size = 0
        for message in self.messages:
            if taken and (message.single or size + message.size > self._batch_bytes or len(taken) == _MAX_TOGETHER):
                break
            taken.append(message)
            size += message.size
            if message.single:
                break
        return taken

    def replace(self, parcel: Parcel, again: Parcel) -> None:
        """Replace a parcel by the part to send again, which may be empty."""
        for _ in parcel:
            self._size -= self.messages.popleft().size
        self.messages.extendleft(reversed(again))
        self._size += sum(message.size for message in again)


def _round(
    output: MessageOutput,
    lines: Mapping[Queue, _Waiting],
    on_sent: Callable[[Mapping[Queue, tuple[Parcel, Receipt]]], None],
    on_failure: OnFailure,
    before: Callable[[int], None],
) -> None:
    parcels = {queue: line.parcel() for queue, line in lines.items()}
    before(sum(map(len, parcels.values())))
    failed: list[tuple[Queue, ClusterError]] = []
    sent: dict[Queue, tuple[Parcel, Receipt]] = {}
    for queue, result in output.send(parcels).items():
        if isinstance(result, ClusterError):
            failed.append((queue, result))
        else:
            sent[queue] = (parcels[queue], result)
            lines[queue].replace(parcels[queue], ())
            lines[queue].failures = 0
    if sent:
        on_sent(sent)
    # After the successes are recorded, because the following code may raise.
    for queue, error in failed:
        line = lines[queue]
        line.failures += 1
        again = on_failure(queue, parcels[queue], error, line.failures)
        line.replace(parcels[queue], again)
        if not again:
            line.failures = 0
