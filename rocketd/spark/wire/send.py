"""Sends messages to brokers: one at a time, or many in flight at once.

A send that may have succeeded is never repeated on its own. Its error is `doubtful`, and the caller decides.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rocketd.spark.errors import ClusterError, NoAnswerError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.connection import BlockingConnection
from rocketd.spark.wire.faults import patiently
from rocketd.spark.wire.message import Batch, RawMessage
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.request import Position, SendReceipt, SendRequest, make_request, positions

__all__ = ["GROUP", "Position", "SendReceipt", "SendRequest", "Sender"]

GROUP: Final = "rocketd_spark"
"""The default producer group."""


@dataclass(slots=True)
class _Flying:
    token: Any
    queue: Queue
    request: SendRequest
    connection: BlockingConnection | None
    opaque: int
    error: ClusterError | None


class Sender:
    """Sends to the masters of a cluster, as one producer group. For one thread.

    `window` limits the requests in flight to one broker. Apache's brokers handle several at once, in any order. So only
    one is in flight for a queue, to keep the order of the calls, unless `ordered` is false. Bodies above
    `compress_over` bytes are compressed (0: never); bodies in batches are not.
    """

    def __init__(
        self,
        cluster: ClusterClient | ClusterOptions,
        group: str = GROUP,
        *,
        window: int = 8,
        compress_over: int = 0,
        ordered: bool = True,
    ) -> None:
        self.cluster = cluster if isinstance(cluster, ClusterClient) else ClusterClient(cluster)
        self.group = group
        self._window = window
        self._ordered = ordered
        self._compress_over = compress_over
        self._flying: deque[_Flying] = deque()
        self._under_way: Counter[str | Queue] = Counter()
        self._receipts: list[SendReceipt] = []

    # ------------------------------------------------------------ one and wait

    def send(self, queue: Queue, message: RawMessage) -> Position:
        """Send one message.

        Raises ClusterError. Transient errors that rule out a stored message lead to retries.
        """
        return self.send_request(queue, self.request(queue, [message]))[0]

    def send_batch(self, queue: Queue, messages: Sequence[RawMessage]) -> tuple[Position, ...]:
        """Send messages that are stored all together or not at all. Raises ClusterError, like `send`."""
        return self.send_request(queue, self.request(queue, messages))

    def send_request(self, queue: Queue, request: SendRequest) -> tuple[Position, ...]:
        """Send a request made by `request`. Raises ClusterError, like `send`."""
        return patiently(lambda: self._once(queue, request), self.cluster.options.patience, repeat_doubtful=False)

    def _once(self, queue: Queue, request: SendRequest) -> tuple[Position, ...]:
        try:
            connection = self.cluster.connection(queue.broker)
            answer = connection.request(request.code, request.header, request.body)
        except NoAnswerError:
            self.cluster.forget(queue.broker)
            raise
        return positions(connection.address, queue, request, answer)

    def request(self, queue: Queue, messages: Sequence[RawMessage] | Batch) -> SendRequest:
        """Return a request for one message, or for several as a batch.

        Raises MessageError; ValueError if they cannot be a batch.
        """
        return make_request(self.group, queue, messages, self._compress_over)

    # ------------------------------------------------------------ many under way

    def submit(self, queue: Queue, messages: Sequence[RawMessage] | Batch, token: object = None) -> None:
        """Send without waiting for the answer, unless the window is full. A SendReceipt reports the result."""
        self.submit_request(queue, self.request(queue, messages), token)

    def submit_request(self, queue: Queue, request: SendRequest, token: object = None) -> None:
        """Send a request made by `request`, like `submit`."""
        under_way = self._under_way
        while under_way[queue.broker] >= self._window or (self._ordered and under_way[queue]):
            self._land()
        connection, opaque, problem = None, 0, None
        try:
            connection = self.cluster.connection(queue.broker)
            opaque = connection.submit(request.code, request.header, request.body)
        except ClusterError as error:
            self.cluster.forget(queue.broker)
            problem = error
        under_way[queue.broker] += 1
        under_way[queue] += 1
        self._flying.append(_Flying(token, queue, request, connection, opaque, problem))

    def receipts(self) -> list[SendReceipt]:
        """Return the new receipts in the order of the calls, without waiting."""
        done, self._receipts = self._receipts, []
        return done

    def finish(self) -> list[SendReceipt]:
        """Wait for all requests in flight, and return the new receipts in the order of the calls."""
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
                self._receipts.append(SendReceipt(flying.token, flying.queue, found))
                return
            except ClusterError as problem:
                if isinstance(problem, NoAnswerError):
                    self.cluster.forget(flying.queue.broker)
                error = problem
        self._receipts.append(SendReceipt(flying.token, flying.queue, error=error))

    def deliver(
        self, items: Iterable[tuple[Queue, Sequence[RawMessage] | Batch]], *, repeat_doubtful: bool
    ) -> Iterator[SendReceipt]:
        """Send all items with many in flight, and repeat sends that failed with a transient error.

        Yields a receipt for each stored item.

        The token of a receipt is the item's number. `repeat_doubtful` also repeats sends that may be stored already:
        at-least-once delivery. Without it such an error is raised, like every error that outlasts the patience. A
        repeated message may come after its successors in the queue, unless the sender is `ordered`.
        """
        waiting: dict[int, tuple[Queue, SendRequest]] = {}
        patience = self.cluster.options.patience

        def landed() -> Iterator[SendReceipt]:
            for receipt in self.receipts():
                if receipt.error is None:
                    del waiting[receipt.token]
                    yield receipt
                    continue
                error = receipt.error
                if not error.retriable or (error.doubtful and not repeat_doubtful):
                    raise error
                queue, request = waiting.pop(receipt.token)
                yield SendReceipt(
                    receipt.token, queue, patiently(partial(self._once, queue, request), patience, repeat_doubtful)
                )

        for number, (queue, messages) in enumerate(items):
            while self._ordered and self._under_way[queue]:
                self._land()
                yield from landed()  # repeated sends go first
            waiting[number] = queue, self.request(queue, messages)
            self.submit_request(*waiting[number], number)
            yield from landed()
        while self._flying:
            self._land()
            yield from landed()
        yield from landed()
