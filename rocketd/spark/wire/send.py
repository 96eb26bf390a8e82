"""Sends messages to brokers: one and wait, or many under way at once.

Nothing is sent twice by itself where the first time may have worked: such an error is `doubtful`, and what to do about
it is the caller's to know.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any, Final

from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.common.properties import WAIT, encode_properties
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    read_header,
)
from rocketd.spark.errors import BrokerError, UnreachableError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import Cluster
from rocketd.spark.wire.connection import Connection
from rocketd.spark.wire.faults import check, patiently
from rocketd.spark.wire.message import (
    Batch,
    Message,
    check_topic,
    encode_batch,
    key_of,
    may_batch,
    packed,
    property_text,
)
from rocketd.spark.wire.options import ClusterOptions

STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
"""Answers to sends whose messages are stored."""

GROUP: Final = "rocketd_spark"
"""Producer group, unless another is named."""

_BATCH_PROPERTIES: Final = encode_properties({WAIT: "true"})


@dataclass(frozen=True, slots=True)
class Position:
    """Where a message is stored. `status` is 0, or what the broker warns of: stored, but not flushed or copied in time."""

    queue: Queue
    queue_offset: int
    offset_msg_id: str
    unique_key: str
    transaction_id: str = ""
    status: int = 0

    @property
    def commit_log_offset(self) -> int:
        """Offset of its record in the broker's commit log."""
        return int(self.offset_msg_id[-16:], 16)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one `submit`: where its messages are, or the error. `token` is the caller's."""

    token: Any
    queue: Queue
    positions: tuple[Position, ...] = ()
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A send that is ready to be written."""

    code: int
    header: SendMessageRequestHeader
    body: bytes
    unique_keys: tuple[str, ...]


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
    so that a queue has the order of the calls, only one is under way for a queue, unless `ordered` is false. Bodies above `compress_over` bytes are compressed, never with 0; those of batches are not.
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
        if isinstance(messages, Batch):
            batch = messages
        elif len(messages) == 1:
            return self._single(queue, messages[0])
        elif may_batch(messages):
            batch = encode_batch(messages)
        else:
            raise ValueError("these messages cannot be a batch: part them with in_batches")
        header = self._header(queue, batch.topic, 0, 0, _BATCH_PROPERTIES, batch=True)
        return Request(RequestCode.SEND_BATCH_MESSAGE, header, batch.body, batch.unique_keys)

    def _single(self, queue: Queue, message: Message) -> Request:
        check_topic(message.topic)
        key = key_of(message)
        body, sys_flag = packed(message.body, self._compress_over)
        header = self._header(queue, message.topic, sys_flag, message.flag, property_text(message.table(key)))
        return Request(RequestCode.SEND_MESSAGE_V2, header, body, (key,))

    def _header(
        self, queue: Queue, topic: str, sys_flag: int, flag: int, properties: str, *, batch: bool = False
    ) -> SendMessageRequestHeader:
        return SendMessageRequestHeaderV2(
            producer_group=self.group,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=queue.queue_id + 1,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=int(time() * 1000),
            flag=flag,
            properties=properties,
            reconsume_times=0,
            batch=batch,
            bname=queue.broker,
        )

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
            waiting[number] = queue, self.request(queue, messages)
            self.submit_request(*waiting[number], number)
            yield from landed()
        while self._flying:
            self._land()
            yield from landed()
        yield from landed()


def positions(address: str, queue: Queue, request: Request, answer: RemotingCommand) -> tuple[Position, ...]:
    """Where the messages of a request are, by its answer. Raises BrokerError for a refusal."""
    check(f"broker {queue.broker} at {address}", request.code, answer, STORED)
    try:
        where = read_header(SendMessageResponseHeader, answer)
    except RemotingCommandError as error:
        raise BrokerError(f"{address} answered a send with nonsense: {error}", answer.code, doubtful=True) from error
    ids = where.msg_id.split(",")
    if len(ids) != len(request.unique_keys):
        raise BrokerError(
            f"{address} stored {len(ids)} of {len(request.unique_keys)} messages of a batch", answer.code, doubtful=True
        )
    stored = Queue(queue.topic, queue.broker, where.queue_id)
    return tuple(
        Position(stored, where.queue_offset + place, msg_id, key, where.transaction_id or "", answer.code)
        for place, (msg_id, key) in enumerate(zip(ids, request.unique_keys, strict=True))
    )
