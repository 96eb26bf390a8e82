"""Transactional messages: half messages, their ends, and the brokers' checks of undecided ones.

Counterpart: `sendMessageInTransaction`, `endTransaction`, `checkTransactionState` of the producer (Apache).
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import monotonic

from rocketd.common import message_properties as props
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketd.protocol.transaction import check_answer_header, end_header
from rocketd.remoting.bodies.tables import HeartbeatData, ProducerData
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.connection import BlockingConnection
from rocketd.spark.wire.faults import check, header_of
from rocketd.spark.wire.message import RawMessage
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.send import GROUP, Position, Sender, SendRequest
from rocketd.store.base.errors import StoreError
from rocketd.store.format.record import MessageExt, decode_message

_GREETING_SECONDS = 30.0
"""Seconds between heartbeats to brokers, which forget a group after two minutes of silence."""

Check = Callable[[MessageExt, dict[str, str]], bool | None]
"""Called when a broker checks a half message, with the message and its properties.

Returns True to commit, False to roll back, None if undecided.
"""


@dataclass(frozen=True, slots=True)
class Half:
    """A half message: the fields its end must name, and its target queue as far as known. Picklable."""

    broker: str
    topic: str
    group: str
    state_offset: int
    commit_log_offset: int
    unique_key: str
    transaction_id: str
    queue_id: int = 0

    @property
    def queue(self) -> Queue:
        """The target queue of the message."""
        return Queue(self.topic, self.broker, self.queue_id)


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of an end: None, or the error. A doubtful error means the end may have been executed."""

    half: Half
    error: ClusterError | None


class Transactions:
    """Begins and ends transactions as one producer group. For one thread.

    Brokers check undecided half messages by asking a producer of the group that sent them heartbeats. `on_check`
    answers while `serve` or any request waits.
    """

    def __init__(
        self,
        cluster: ClusterClient | ClusterOptions,
        group: str = GROUP,
        on_check: Check | None = None,
        *,
        window: int = 8,
        compress_over: int = 0,
    ) -> None:
        self.cluster = cluster if isinstance(cluster, ClusterClient) else ClusterClient(cluster)
        self.group = group
        # The half messages of all queues lie in one queue of the broker, whose order has no meaning.
        self._sender = Sender(self.cluster, group, window=window, compress_over=compress_over, ordered=False)
        self._window = window
        self._on_check = on_check
        self._greeted: dict[BlockingConnection, float] = {}
        self._client_id = f"{socket.gethostname()}@{os.getpid()}#{os.urandom(4).hex()}"

    # ------------------------------------------------------------ begin and end

    def begin(self, queue: Queue, message: RawMessage) -> Half:
        """Store a hidden message.

        Raises ClusterError. Transient errors that rule out a stored message lead to retries.
        """
        (position,) = self._sender.send_request(queue, self._prepare(queue, message))
        return self._half(queue, position)

    def begin_all(self, items: Iterable[tuple[Queue, RawMessage]]) -> list[Half]:
        """Store hidden messages, with many in flight. Raises ClusterError; messages stored before then stay undecided."""
        halves: list[Half] = []
        sender = self._sender
        for queue, message in items:
            sender.submit_request(queue, self._prepare(queue, message), queue)
        for receipt in sender.finish():
            if receipt.error is not None:
                raise receipt.error
            halves.append(self._half(receipt.token, receipt.positions[0]))
        return halves

    def _prepare(self, queue: Queue, message: RawMessage) -> SendRequest:
        marks = {props.TRAN_MSG: "true", props.PGROUP: self.group}
        request = self._sender.request(queue, [replace(message, properties={**message.properties, **marks})])
        request.header.sys_flag |= TRANSACTION_PREPARED
        return request

    def _half(self, queue: Queue, position: Position) -> Half:
        return Half(
            queue.broker,
            queue.topic,
            self.group,
            position.queue_offset,
            position.commit_log_offset,
            position.unique_key,
            position.transaction_id or position.unique_key,
            queue.queue_id,
        )

    def end(self, halves: Iterable[Half], *, commit: bool) -> list[Ended]:
        """Commit or roll back, with many in flight. Return the result of each, in order.

        The messages of a queue become visible in this order, because one end is in flight for a queue. Nothing is sent
        twice: with some brokers, a second commit of a half message shows it a second time.
        """
        state = TRANSACTION_COMMIT if commit else TRANSACTION_ROLLBACK
        code = RequestCode.END_TRANSACTION
        waiting: deque[tuple[Half, BlockingConnection, int]] = deque()
        ended: list[Ended] = []

        def land() -> None:
            half, connection, opaque = waiting.popleft()
            error = None
            try:
                answer = connection.wait(opaque, code)
                check(f"broker {half.broker} at {connection.address}", code, answer)
            except ClusterError as problem:
                error = problem
            ended.append(Ended(half, error))

        for half in halves:
            while len(waiting) >= self._window or any(other.queue == half.queue for other, _, _ in waiting):
                land()
            try:
                connection = self.cluster.connection(half.broker)
                opaque = connection.submit(code, self._end_header(half, state))
            except ClusterError as problem:
                while waiting:
                    land()
                ended.append(Ended(half, problem))
                continue
            waiting.append((half, connection, opaque))
        while waiting:
            land()
        return ended

    def _end_header(self, half: Half, state: int) -> EndTransactionRequestHeader:
        return end_header(
            half.group,
            half.broker,
            state,
            state_offset=half.state_offset,
            commit_log_offset=half.commit_log_offset,
            unique_key=half.unique_key,
            transaction_id=half.transaction_id,
        )

    # ------------------------------------------------------------ questions

    def serve(self, brokers: Iterable[str], seconds: float) -> None:
        """Answer the brokers' checks for so many seconds.

        Raises ClusterError if a broker cannot be reached with a heartbeat.
        """
        ends = monotonic() + seconds
        asked = sorted(brokers)
        turn = min(1.0, seconds) / max(1, len(asked))
        while True:
            for broker in asked:
                self._greet(broker).serve(max(0.0, min(turn, ends - monotonic())))
            if monotonic() >= ends:
                return

    def _greet(self, broker: str) -> BlockingConnection:
        connection = self.cluster.connection(broker)
        connection.on_request = self._asked
        if monotonic() - self._greeted.get(connection, -_GREETING_SECONDS) >= _GREETING_SECONDS:
            body = HeartbeatData(self._client_id, [ProducerData(self.group)]).encode()
            code = RequestCode.HEART_BEAT
            check(f"broker {broker} at {connection.address}", code, connection.request(code, body=body))
            self._greeted = {known: at for known, at in self._greeted.items() if not known.closed}
            self._greeted[connection] = monotonic()
        return connection

    def _asked(self, connection: BlockingConnection, request: RemotingCommand) -> None:
        if request.code != RequestCode.CHECK_TRANSACTION_STATE or self._on_check is None:
            return
        asked = header_of(CheckTransactionStateRequestHeader, request)
        try:
            record = decode_message(request.body or b"")
        except StoreError as error:
            raise ClusterError(f"{connection.address} asks about something other than a message: {error}") from error
        table = record.properties_map()
        if table.get(props.PGROUP, self.group) != self.group:
            return
        verdict = self._on_check(record, table)
        states = {True: TRANSACTION_COMMIT, False: TRANSACTION_ROLLBACK, None: TRANSACTION_NOT}
        unique_key = table.get(props.UNIQ_KEY, asked.msg_id or "")
        header = check_answer_header(self.group, asked, states[verdict], unique_key)
        connection.submit(RequestCode.END_TRANSACTION, header, oneway=True)
