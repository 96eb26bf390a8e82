"""Ends transactions, and schedules the passes over half messages without an end.

Progress is kept as the offsets of the group CID_RMQ_SYS_TRANS in both system topics, as in Apache's broker. So either
broker can continue the work of the other. It is written only after everything it rests on is on disk.

Counterpart: `TransactionalMessageService`, `TransactionalMessageCheckService` (Apache).
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic

from twisted.logger import Logger

from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.send import half_messages
from rocketd.broker.send.half_messages import QUEUE_ID
from rocketd.broker.transaction.check import NEVER_STORED, HalfMessageCheck
from rocketd.broker.transaction.copy_search import CopySearch
from rocketd.broker.transaction.half_copies import HalfCopies
from rocketd.broker.transaction.op_messages import LateEnds
from rocketd.common import message_properties as props
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.common.names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketd.common.permission import READ, WRITE
from rocketd.common.record_host import offset_message_id
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader
from rocketd.remoting.interfaces import IConnection
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.format.record import MessageExt

TICK_SECONDS = 0.1
"""The interval at which ``tick`` is to be called."""
_SLICE_SECONDS = 0.01
"""The time a pass may use the storage thread before other work gets its turn."""


End = tuple[MessageExt, MessageInner | None]
"""An ended half message, and the message for consumers if it was committed."""


class TransactionService:
    """The transactions of one broker.

    ``tick`` belongs to the reactor thread, ``put_ends`` to the storage thread. ``publish`` blocks, so it may be called
    from any thread except these two. ``clock`` returns monotonic seconds.
    """

    _log = Logger()

    def __init__(self, broker: ClientParts, clock: Callable[[], float] = monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self._peer_log = ThrottledLog(self._log, LogThrottle(clock))
        self._next_check = clock() + self._interval
        self._busy = False
        self._late = LateEnds()
        self._copies = HalfCopies()
        self._search: CopySearch | None = None
        self._ends_stored = 0
        self._check: HalfMessageCheck | None = None
        self._steps: Iterator[bool] = iter(())
        self._reached: tuple[int, int] | None = None
        self._published: tuple[int, int] | None = None
        self._failure = ""
        self._begin_of_new = -1
        self._guard = threading.Lock()

    @property
    def _interval(self) -> float:
        seconds: float = self._broker.settings.broker.transaction_check_interval / 1000
        return seconds

    # ------------------------------------------------------------ ends

    def put_ends(self, ends: Sequence[End]) -> list[PutResult]:
        """Store op messages, and for each commit the message for consumers. Return one result per end.

        All of them share one write, so a crash cannot double a message. A message already committed through another
        copy of its half message is not stored again.
        """
        broker = self._broker
        now_ms = broker.now_ms()
        messages: list[MessageInner] = []
        committed: set[int] = set()
        for half, final in ends:
            first = self._copies.first(half.physical_offset)
            if final is not None and first not in committed and not self._copies.is_committed(first):
                committed.add(first)
                messages.append(final)
            messages.append(half_messages.end_mark(half.queue_offset, now_ms, broker.store_host))
        last: PutResult = broker.store.put_batch(messages)[-1]
        if last.status in NEVER_STORED:
            # One of them, or all together, exceed the limits of a batch.
            return (
                [self.put_ends([end])[0] for end in ends]
                if len(ends) > 1
                else [self._put_separately(messages, committed)]
            )
        self._note_ends(last, committed)
        # All were stored, or none.
        return [last] * len(ends)

    def _put_separately(self, messages: Sequence[MessageInner], committed: Iterable[int]) -> PutResult:
        """Store a message and then its op message: a batch refuses messages for several queues."""
        for message in messages:
            last: PutResult = self._broker.store.put_messages([message])[0]
            if last.status is not PutStatus.PUT_OK:
                if message is not messages[0]:
                    # The next end of this transaction stores the op message only.
                    for offset in committed:
                        self._copies.commit(offset, ends_again=True)
                return last
        self._note_ends(last, committed)
        return last

    def _note_ends(self, last: PutResult, committed: Iterable[int]) -> None:
        if last.status is PutStatus.PUT_OK:
            self._ends_stored = last.queue_offset + 1
            for offset in committed:
                self._copies.commit(offset)

    # ------------------------------------------------------------ checks

    def tick(self) -> None:
        """Start a pass if it is time, or continue the current one."""
        if self._busy or (self._check is None and self._clock() < self._next_check):
            return
        self._busy = True
        self._broker.dispatcher.pool("send").call(self._run_slice)

    def _run_slice(self) -> None:
        try:
            if self._check is None and self._is_caught_up():
                self._begin()
            if self._check is not None and self._step(self._check):
                self._broker.dispatcher.pool("send").call(self._run_slice)
                return
        except Exception:
            self._log.failure("half messages could not be checked; trying again")
            self._end()
        self._busy = False

    def _is_caught_up(self) -> bool:
        """Whether everything in the log at the first check is visible by now.

        After a start on a full disk, queues are built later. Until then, op messages seem to be missing.
        """
        store = self._broker.store
        end: int = store.max_physical_offset()
        if self._begin_of_new < 0:
            self._begin_of_new = end
        behind: int = store.dispatch_behind_bytes()
        return end - behind >= self._begin_of_new

    def _step(self, check: HalfMessageCheck) -> bool:
        """Run steps for a while. True if more can run at once."""
        deadline = self._clock() + _SLICE_SECONDS
        for must_wait in self._steps:
            self._reached = check.half_offset, check.op_offset
            if must_wait:
                return False
            if self._clock() > deadline:
                return True
        self._end()
        return False

    def _begin(self) -> None:
        topics = self._broker.topics
        topics.create_topic_in_send_message_back(TRANS_HALF_TOPIC, 1, READ | WRITE, 0)
        half_offset, op_offset = self._offsets()
        if self._search is None:
            end = self._broker.store.get_max_offset(TRANS_HALF_TOPIC, QUEUE_ID)
            begin = max(half_offset, self._broker.store.get_min_offset(TRANS_HALF_TOPIC, QUEUE_ID))
            self._search = CopySearch(self._broker.store, begin, end)
        self._check = HalfMessageCheck(
            self._broker,
            half_offset,
            op_offset,
            self._late,
            self._copies,
            self._search,
            lambda: self._ends_stored,
            self._ask,
        )
        self._steps = self._check.steps()

    def _end(self) -> None:
        check, self._check = self._check, None
        self._next_check = self._clock() + self._interval
        if check is None:
            return
        self._reached = check.half_offset, check.op_offset
        if check.failure and check.failure != self._failure:
            self._log.error("half messages cannot be stored again, trying again: {cause}", cause=check.failure)
        self._failure = check.failure
        if check.asked or check.given_up:
            self._log.info(
                "half messages: {asked} checks sent, {given_up} given up, checked up to offset {offset}",
                asked=check.asked,
                given_up=check.given_up,
                offset=check.half_offset,
            )

    def _ask(self, half: MessageExt, table: dict[str, str], result: PutResult) -> None:
        """Check a producer of the group about a half message that was stored again.

        Never raises: the copy is checked again anyway.
        """
        group = table.get(props.PGROUP, "")
        connection = self._broker.producers.available_connection(group)
        if connection is None:
            self._peer_log.warn("no producer", "group {group} has no producer to ask about a half message", group=group)
            return
        try:
            self._ask_at(connection, half, table, result)
        except Exception as error:
            self._peer_log.error(
                "producer not asked",
                "no producer can be asked about the half message {offset} of group {group}: {error}",
                offset=half.queue_offset,
                group=group,
                error=error,
            )

    def _ask_at(self, connection: IConnection, half: MessageExt, table: dict[str, str], result: PutResult) -> None:
        broker = self._broker
        key = table.get(props.UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=result.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=offset_message_id(broker.store_host, result.physical_offset),
        )
        body = half_messages.check_record(half, table, result)
        broker.to_clients.check_producer_transaction_state(connection, header, body)

    # ------------------------------------------------------------ progress

    def _offsets(self) -> tuple[int, int]:
        """Return the offsets to continue at: the last pass's, unless an administrator has set the group's since."""
        with self._guard:
            stored = self._stored_offsets()
            if self._reached is None or stored != self._published:
                self._published = stored
                self._reached = max(stored[0], 0), max(stored[1], 0)
            return self._reached

    def _stored_offsets(self) -> tuple[int, int]:
        offsets = self._broker.offsets
        return (
            offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, QUEUE_ID),
            offsets.query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, QUEUE_ID),
        )

    def publish(self) -> None:
        """Commit the progress once everything stored for it is on disk. Blocks until the flush."""
        reached, published = self._reached, self._published
        # Without progress nothing is committed: the group must not appear as a consumer of the topics.
        if reached is None or published is None or reached == (max(published[0], 0), max(published[1], 0)):
            return
        store, offsets = self._broker.store, self._broker.offsets
        # This end is read after the progress, so everything stored for the progress lies before it.
        if not store.wait_until_flushed(store.max_physical_offset()):
            self._log.warn("half messages: progress is not written, as the log is not flushed in time")
            return
        with self._guard:
            for topic, offset in zip((TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC), reached, strict=True):
                offsets.commit(self._broker.address, TRANS_GROUP, topic, QUEUE_ID, offset)
            self._published = reached
