"""Sends messages to brokers: one and wait, or many under way at once.

Nothing is sent twice by itself where the first time may have worked: such an error is `doubtful`, and what to do about
it is the caller's to know.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rocketd.spark.errors import BrokerError, UnreachableError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import Cluster
from rocketd.spark.wire.connection import Connection
from rocketd.spark.wire.faults import patiently
from rocketd.spark.wire.message import Batch, Message
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.request import Position, Receipt, Request, make_request, positions

__all__ = ["GROUP", "Position", "Receipt", "Request", "Sender"]

GROUP: Final = "rocketd_spark"
"""Producer group, unless another is named."""


@dataclass(slots=True)
class _Flying:
    token: Any
    queue: Queue
    request: Request
    connection: Connection | None
    opaque: int
    error: BrokerError | None


class Sender:
    """Sends to the masters of a cluster, as one producer group. One thread's.

    `window` bounds the requests that are under way to one broker. Apache's brokers handle several at once, in any order:
    so that a queue has the order of the calls, only one is under way for a queue, unless `ordered` is false. Bodies
    above `compress_over` bytes are compressed, never with 0; those of batches are not.
    """

    def __init__(
        self,
        cluster: Cluster | ClusterOptions,
        group: str = GROUP,
        *,
        window: int = 8,
        compress_over: int = 0,
        ordered: bool = True,
    ) -> None:
        self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self.group = group
        self._window = window
        self._ordered = ordered
        self._compress_over = compress_over
        self._flying: deque[_Flying] = deque()
        self._under_way: Counter[str | Queue] = Counter()
        self._receipts: list[Receipt] = []

    # ------------------------------------------------------------ one and wait

    def send(self, queue: Queue, message: Message) -> Position:
        """Send one message. Raises BrokerError; what passes and cannot have stored it is tried again, patiently."""
        return self.send_request(queue, self.request(queue, [message]))[0]

    def send_batch(self, queue: Queue, messages: Sequence[Message]) -> tuple[Position, ...]:
        """Send messages that are stored together or not at all. Raises BrokerError as `send` does."""
        return self.send_request(queue, self.request(queue, messages))

    def send_request(self, queue: Queue, request: Request) -> tuple[Position, ...]:
        """Send what `request` has made ready. Raises BrokerError as `send` does."""
        return patiently(lambda: self._once(queue, request), self.cluster.options.patience, repeat_doubtful=False)

    def _once(self, queue: Queue, request: Request) -> tuple[Position, ...]:
        try:
            connection = self.cluster.connection(queue.broker)
            answer = connection.request(request.code, request.header, request.body)
        except UnreachableError:
            self.cluster.forget(queue.broker)
            raise
        return positions(connection.address, queue, request, answer)

    def request(self, queue: Queue, messages: Sequence[Message] | Batch) -> Request:
        """Make a request of one message, or of several as a batch. Raises MessageError, ValueError for no batch."""
        return make_request(self.group, queue, messages, self._compress_over)

    # ------------------------------------------------------------ many under way

    def submit(self, queue: Queue, messages: Sequence[Message] | Batch, token: Any = None) -> None:
        """Send without waiting for the answer, unless the window is full. What becomes of it, a Receipt tells."""
        self.submit_request(queue, self.request(queue, messages), token)

    def submit_request(self, queue: Queue, request: Request, token: Any = None) -> None:
        """Send what `request` has made ready, as `submit` does."""
        under_way = self._under_way
        while under_way[queue.broker] >= self._window or (self._ordered and under_way[queue]):
            self._land()
        connection, opaque, problem = None, 0, None
        try:
            connection = self.cluster.connection(queue.broker)
            opaque = connection.submit(request.code, request.header, request.body)
        except BrokerError as error:
            self.cluster.forget(queue.broker)
            problem = error
        under_way[queue.broker] += 1
        under_way[queue] += 1
        self._flying.append(_Flying(token, queue, request, connection, opaque, problem))

    def receipts(self) -> list[Receipt]:
        """What is known by now and was not given out yet, in the order of the calls; does not wait."""
        done, self._receipts = self._receipts, []
        return done

    def finish(self) -> list[Receipt]:
        """Wait for all that is under way, and return what was not given out yet, in the order of the calls."""
        while self._flying:
            self._land()
        return self.receipts()

    def _land(self) -> None:
        """Wait for the oldest request."""
        flying = self._flying.popleft()
        self._under_way[flying.queue.broker] -= 1
        self._under_way[flying.queue] -= 1
        error = flying.error
        if error is None and flying.connection is not None:
            connection = flying.connection
            try:
                answer = connection.wait(flying.opaque, flying.request.code)
                found = positions(connection.address, flying.queue, flying.request, answer)
                self._receipts.append(Receipt(flying.token, flying.queue, found))
                return
            except BrokerError as problem:
                if isinstance(problem, UnreachableError):
                    self.cluster.forget(flying.queue.broker)
                error = problem
        self._receipts.append(Receipt(flying.token, flying.queue, error=error))

    def deliver(
        self, items: Iterable[tuple[Queue, Sequence[Message] | Batch]], *, repeat_doubtful: bool
    ) -> Iterator[Receipt]:
        """Send all items, many under way at once, and send again what failed and may pass; yields the receipts of stored
        ones, whose token is the item's number.

        `repeat_doubtful` sends again what may be stored already, which makes it at least once; without it such an error
        is raised, as any is that does not pass within the patience. What is sent again may come behind what followed it
        in its queue, unless the sender is `ordered`.
        """
        waiting: dict[int, tuple[Queue, Request]] = {}
        patience = self.cluster.options.patience

        def landed() -> Iterator[Receipt]:
            for receipt in self.receipts():
                if receipt.error is None:
                    del waiting[receipt.token]
                    yield receipt
                    continue
                error = receipt.error
                if not error.retriable or (error.doubtful and not repeat_doubtful):
                    raise error
                queue, request = waiting.pop(receipt.token)
                yield Receipt(
                    receipt.token, queue, patiently(partial(self._once, queue, request), patience, repeat_doubtful)
                )

        for number, (queue, messages) in enumerate(items):
            while self._ordered and self._under_way[queue]:
                self._land()
                yield from landed()  # what has to be sent again goes first
            waiting[number] = queue, self.request(queue, messages)
            self.submit_request(*waiting[number], number)
            yield from landed()
        while self._flying:
            self._land()
            yield from landed()
        yield from landed()
