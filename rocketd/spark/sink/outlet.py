"""What the deliveries need of a cluster, and the sending of messages that they share.

One request is under way for each queue, those of several queues at the same time: so the messages of a queue stay in
order, and only the last request of a queue can ever be in doubt.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rocketd.spark.errors import BrokerError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.message import Outgoing

Parcel = Sequence[Outgoing]
"""What one request carries: one message, or several of one topic that may share a request."""

OnFailure = Callable[[Queue, Parcel, BrokerError, int], Parcel]
"""Told of a parcel that was not acknowledged, and how often that happened to it; returns what of it is sent again."""

_MOST_TOGETHER: Final = 1000
"""Messages of a request: more save nothing."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a parcel's first message is: its offset in the queue, of a half message the one in the queue of those, and
    its offset in the commit log.
    """

    queue_offset: int
    commit_log_offset: int


class Outlet(Protocol):
    """A cluster to send to. Used by one thread. What it raises is BrokerError and its kinds."""

    def queues(self, topic: str) -> list[Queue]:
        """The queues that can be sent to, at least one, sorted."""
        ...

    def end(self, queue: Queue) -> int:
        """The offset behind the last message that can be read."""
        ...

    def send(self, parcels: Mapping[Queue, Parcel]) -> dict[Queue, Receipt | BrokerError]:
        """Send a parcel to each of these queues, all at once, and wait for the answers."""
        ...

    def properties(self, queue: Queue, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Offset and property string of every message there is; DataLossError when one is not there any more."""
        ...

    def settle(self, broker: str) -> None:
        """Wait until a broker has carried out all it got before, and all of it can be read."""
        ...


def send_all(
    outlet: Outlet,
    messages: Iterable[tuple[Queue, Outgoing]],
    batch_bytes: int,
    on_sent: Callable[[Mapping[Queue, tuple[Parcel, Receipt]]], None],
    on_failure: OnFailure,
    before: Callable[[int], None] = lambda _: None,
) -> None:
    """Send messages to their queues, in order for each queue, about `batch_bytes` a request.

    `on_sent` is told of every round of parcels that are stored, `on_failure` decides about those that are not known to
    be, and `before` is told how many messages go next. Holds about `batch_bytes` a queue in memory.
    """
    waiting: dict[Queue, _Waiting] = {}
    for queue, message in messages:
        line = waiting.get(queue)
        if line is None:
            line = waiting[queue] = _Waiting(batch_bytes)
        line.add(message)
        while line.is_full:
            _round(
                outlet,
                {queue: line for queue, line in waiting.items() if line.is_half_full},
                on_sent,
                on_failure,
                before,
            )
    while left := {queue: line for queue, line in waiting.items() if line.messages}:
        _round(outlet, left, on_sent, on_failure, before)


class _Waiting:
    """Messages that wait for their queue, and how often the first of them were sent for nothing."""

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
        """The next messages that may share a request; they stay first in line."""
        taken: list[Outgoing] = []
        size = 0
        for message in self.messages:
            if taken and (message.single or size + message.size > self._batch_bytes or len(taken) == _MOST_TOGETHER):
                break
            taken.append(message)
            size += message.size
            if message.single:
                break
        return taken

    def replace(self, parcel: Parcel, again: Parcel) -> None:
        """Put what is sent again, or nothing, in place of a parcel."""
        for _ in parcel:
            self._size -= self.messages.popleft().size
        self.messages.extendleft(reversed(again))
        self._size += sum(message.size for message in again)


def _round(
    outlet: Outlet,
    lines: Mapping[Queue, _Waiting],
    on_sent: Callable[[Mapping[Queue, tuple[Parcel, Receipt]]], None],
    on_failure: OnFailure,
    before: Callable[[int], None],
) -> None:
    parcels = {queue: line.parcel() for queue, line in lines.items()}
    before(sum(map(len, parcels.values())))
    failed: list[tuple[Queue, BrokerError]] = []
    sent: dict[Queue, tuple[Parcel, Receipt]] = {}
    for queue, result in outlet.send(parcels).items():
        if isinstance(result, BrokerError):
            failed.append((queue, result))
        else:
            sent[queue] = (parcels[queue], result)
            lines[queue].replace(parcels[queue], ())
            lines[queue].failures = 0
    if sent:
        on_sent(sent)
    # After those that went well are noted: what follows may raise.
    for queue, error in failed:
        line = lines[queue]
        line.failures += 1
        again = on_failure(queue, parcels[queue], error, line.failures)
        line.replace(parcels[queue], again)
        if not again:
            line.failures = 0
