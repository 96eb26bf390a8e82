"""Messages that are hidden until they are committed: half messages, their ends, and the brokers' questions about them.

Answers to sendMessageInTransaction, endTransaction and checkTransactionState of Apache's producer.
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import monotonic

from rocketd.common import properties as names
from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketd.remoting.bodies import HeartbeatData, ProducerData
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocketd.spark.errors import BrokerError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import Cluster
from rocketd.spark.wire.connection import Connection
from rocketd.spark.wire.faults import check, header_of
from rocketd.spark.wire.message import Message
from rocketd.spark.wire.options import ClusterOptions
from rocketd.spark.wire.send import GROUP, Position, Request, Sender
from rocketd.store.errors import StoreError
from rocketd.store.record import MessageExt, decode_message

_GREETING_SECONDS = 30.0
"""How often brokers are told that this group is there: they forget those that were silent for two minutes."""

Check = Callable[[MessageExt, dict[str, str]], bool | None]
"""Asked by a broker whether a half message, with its properties, is to be committed (True), rolled back (False), or is
undecided yet (None).
"""


@dataclass(frozen=True, slots=True)
class Half:
    """A half message: what its end has to name, and the queue it goes to, as far as that is known. Picklable."""

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
        """Where its message goes."""
        return Queue(self.topic, self.broker, self.queue_id)


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of an end: None, or the error; a doubtful one may have been carried out."""

    half: Half
    error: BrokerError | None


class Transactions:
    """Begins and ends transactions as one producer group. One thread's.

    Brokers ask about half messages that stay undecided, whoever has greeted them for the group: `on_check` answers,
    while `serve` waits or any request does.
    """

    def __init__(
        self,
        cluster: Cluster | ClusterOptions,
        group: str = GROUP,
        on_check: Check | None = None,
        *,
        window: int = 8,
        compress_over: int = 0,
    ) -> None:
        self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self.group = group
        # Half messages of all queues are in one queue of the broker's, whose order means nothing.
        self._sender = Sender(self.cluster, group, window=window, compress_over=compress_over, ordered=False)
        self._window = window
        self._on_check = on_check
        self._greeted: dict[Connection, float] = {}
        self._client_id = f"{socket.gethostname()}@{os.getpid()}#{os.urandom(4).hex()}"

    # ------------------------------------------------------------ begin and end

    def begin(self, queue: Queue, message: Message) -> Half:
        """Store a message hidden. Raises BrokerError; what passes and cannot have stored it is tried again, patiently."""
        (position,) = self._sender.send_request(queue, self._prepare(queue, message))
        return self._half(queue, position)

    def begin_all(self, items: Iterable[tuple[Queue, Message]]) -> list[Half]:
        """Store messages hidden, many under way at once. Raises BrokerError: those that were stored stay undecided then."""
        halves: list[Half] = []
        sender = self._sender
        for queue, message in items:
            sender.submit_request(queue, self._prepare(queue, message), queue)
        for receipt in sender.finish():
            if receipt.error is not None:
                raise receipt.error
            halves.append(self._half(receipt.token, receipt.positions[0]))
        return halves

    def _prepare(self, queue: Queue, message: Message) -> Request:
        marks = {names.TRAN_MSG: "true", names.PGROUP: self.group}
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
        """Commit or roll back, many under way at once; tells of each what became of it, in order.

        The messages of a queue become visible in this order: one end is under way for a queue. Nothing is sent twice: a
        second commit of a half message shows it a second time at some brokers.
        """
        state = TRANSACTION_COMMIT if commit else TRANSACTION_ROLLBACK
        code = RequestCode.END_TRANSACTION
        waiting: deque[tuple[Half, Connection, int]] = deque()
        ended: list[Ended] = []

        def land() -> None:
            half, connection, opaque = waiting.popleft()
            error = None
            try:
                answer = connection.wait(opaque, code)
                check(f"broker {half.broker} at {connection.address}", code, answer)
            except BrokerError as problem:
                error = problem
            ended.append(Ended(half, error))

        for half in halves:
            while len(waiting) >= self._window or any(other.queue == half.queue for other, _, _ in waiting):
                land()
            try:
                connection = self.cluster.connection(half.broker)
                opaque = connection.submit(code, self._end_header(half, state))
            except BrokerError as problem:
                while waiting:
                    land()
                ended.append(Ended(half, problem))
                continue
            waiting.append((half, connection, opaque))
        while waiting:
            land()
        return ended

    def _end_header(self, half: Half, state: int) -> EndTransactionRequestHeader:
        return EndTransactionRequestHeader(
            producer_group=half.group,
            tran_state_table_offset=half.state_offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=state,
            msg_id=half.unique_key,
            transaction_id=half.transaction_id,
            bname=half.broker,
        )

    # ------------------------------------------------------------ questions

    def serve(self, brokers: Iterable[str], seconds: float) -> None:
        """Answer the brokers' questions for so long. Raises BrokerError where one cannot be greeted."""
        ends = monotonic() + seconds
        asked = sorted(brokers)
        turn = min(1.0, seconds) / max(1, len(asked))
        while True:
            for broker in asked:
                self._greet(broker).serve(max(0.0, min(turn, ends - monotonic())))
            if monotonic() >= ends:
                return

    def _greet(self, broker: str) -> Connection:
        connection = self.cluster.connection(broker)
        connection.on_request = self._asked
        if monotonic() - self._greeted.get(connection, -_GREETING_SECONDS) >= _GREETING_SECONDS:
            body = HeartbeatData(self._client_id, [ProducerData(self.group)]).encode()
            code = RequestCode.HEART_BEAT
            check(f"broker {broker} at {connection.address}", code, connection.request(code, body=body))
            self._greeted = {known: at for known, at in self._greeted.items() if not known.closed}
            self._greeted[connection] = monotonic()
        return connection

    def _asked(self, connection: Connection, request: RemotingCommand) -> None:
        if request.code != RequestCode.CHECK_TRANSACTION_STATE or self._on_check is None:
            return
        asked = header_of(CheckTransactionStateRequestHeader, request)
        try:
            record = decode_message(request.body or b"")
        except StoreError as error:
            raise BrokerError(f"{connection.address} asks about what is no message: {error}") from error
        table = record.properties_map()
        if table.get(names.PGROUP, self.group) != self.group:
            return
        verdict = self._on_check(record, table)
        states = {True: TRANSACTION_COMMIT, False: TRANSACTION_ROLLBACK, None: TRANSACTION_NOT}
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=states[verdict],
            msg_id=table.get(names.UNIQ_KEY, asked.msg_id or ""),
            from_transaction_check=True,
            transaction_id=asked.transaction_id,
        )
        connection.submit(RequestCode.END_TRANSACTION, header, oneway=True)
