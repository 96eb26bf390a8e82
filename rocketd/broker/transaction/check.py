"""One pass over the half messages: skip the ended ones, check producers of others, give up the rest.

Decides as Apache's broker does, except in three cases that lose or double messages there:

- A producer is checked only after every op message stored so far has been read.
- A message that cannot be stored, for example because the disk is full, is tried again in the next pass.
- A message that is not to be checked yet does not use up its checks.

Counterpart: `TransactionalMessageServiceImpl.check`, and the check listeners (Apache).
"""

from collections.abc import Callable, Iterator

from twisted.logger import Logger

from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.send import half_messages
from rocketd.broker.send.half_messages import QUEUE_ID
from rocketd.broker.tables.implied_topics import is_topic_deleted
from rocketd.broker.transaction.copy_search import CopySearch
from rocketd.broker.transaction.half_copies import HalfCopies
from rocketd.broker.transaction.op_messages import LateEnds, OpMessages, read_queue
from rocketd.common import message_properties as props
from rocketd.common.logs.throttle import event_log
from rocketd.common.message_properties import MAX_LENGTH
from rocketd.common.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketd.common.permission import READ, WRITE
from rocketd.store.base.errors import RecordSoughtError
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.format.record import MessageExt

TIME_LIMIT_MS = 60_000
"""The maximum duration of a pass. The next pass continues at the same place."""
_HOUR_MS = 3_600_000
NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""Statuses that another attempt would not change."""

Ask = Callable[[MessageExt, dict[str, str], PutResult], None]
"""Checks the producer of a half message: called with the message, its properties, and the result of storing its copy.
"""


class HalfMessageCheck:
    """Goes through the half messages, beginning at an offset. Storage thread only.

    ``ends_stored()`` returns the offset behind the last op message this broker has stored.
    """

    _log = Logger()

    def __init__(
        self,
        broker: ClientParts,
        half_offset: int,
        op_offset: int,
        late: LateEnds,
        copies: HalfCopies,
        search: CopySearch,
        ends_stored: Callable[[], int],
        ask: Ask,
    ) -> None:
        self._broker = broker
        self._events = event_log(self._log)
        self._store = broker.store
        self._settings = broker.settings.broker
        self._ends_stored = ends_stored
        self._ask = ask
        self._copies = copies
        self._search = search
        self._end = self._store.get_max_offset(TRANS_HALF_TOPIC, QUEUE_ID)
        if half_offset > self._end:
            # The queue was recreated, or has lost its end: all former progress is void.
            half_offset = op_offset = 0
            late.clear()
        self.half_offset = max(half_offset, self._store.get_min_offset(TRANS_HALF_TOPIC, QUEUE_ID))
        """All half messages before this offset are done."""
        self._ops = OpMessages(self._store, op_offset, self.half_offset, late)
        self.asked = self.given_up = 0
        self.failure = ""
        """The reason of an early end, if something could not be stored."""

    @property
    def op_offset(self) -> int:
        """All op messages before this offset are done."""
        return self._ops.done_to

    def steps(self) -> Iterator[bool]:
        """Do one small step after the other.

        Yields True if stored messages must become visible before the next step.
        """
        deadline = self._broker.clock_ms() + TIME_LIMIT_MS
        yield from self._search.steps()
        self._ops.read_more()
        while self.half_offset < self._end and not self.failure and self._broker.clock_ms() <= deadline:
            ended = self._ops.take(self.half_offset)
            try:
                half = None if ended else self._read(self.half_offset)
            except RecordSoughtError:
                yield False
                continue
            if half is None:
                self.half_offset += 1
                yield False
                continue
            table = half.properties_map()
            if self._is_too_young(half, table):
                return
            while not (ended := self._ops.take(self.half_offset)) and self._ops.read_more():
                yield False
            if not ended and self._ops.next_offset < self._ends_stored():
                # The order matters: messages invisible at the search for op messages may be visible by now.
                behind = self._store.dispatch_behind_bytes() > 0
                if behind or self._ops.read_more():
                    yield behind
                    continue
            if ended or self._is_done_by_copy(half, table) or self._decide(half, table):
                self.half_offset += 1
            yield False

    def _read(self, offset: int) -> MessageExt | None:
        for _, message in read_queue(self._store, TRANS_HALF_TOPIC, offset, 1):
            if message is not None:
                return message
        self._events.error("unreadable", "the half message {offset} cannot be read; it is skipped", offset=offset)
        return None

    def _age_ms(self, half: MessageExt) -> int:
        stepped_ms = int(self._broker.stamps.stepped_since(half.store_timestamp))
        age: int = self._broker.now_ms() - stepped_ms - half.born_timestamp
        return age

    def _is_too_young(self, half: MessageExt, table: dict[str, str]) -> bool:
        """Whether this message, and thus all messages behind it, must wait for a later pass.

        A message with CHECK_IMMUNITY_TIME_IN_SECONDS does not hold up the others.
        """
        if props.CHECK_IMMUNITY_TIME_IN_SECONDS in table:
            return False
        timeout_ms: int = self._settings.transaction_time_out
        return 0 <= self._age_ms(half) < timeout_ms

    def _is_done_by_copy(self, half: MessageExt, table: dict[str, str]) -> bool:
        """Whether another copy ends this one: by a commit, by being newer, or by an op message of the first copy."""
        if self._copies.is_committed(half.physical_offset):
            return True
        newer = self._search.newer(half, table)
        if newer is not None:
            self._copies.add(newer, half.physical_offset)
            return True
        first = table.get(props.TRAN_PREPARED_QUEUE_OFFSET)
        return first is not None and self._ops.take_first(_number(first))

    def _decide(self, half: MessageExt, table: dict[str, str]) -> bool:
        """Check, renew or give up a half message that has not ended. False if a message could not be stored."""
        topic = table.get(props.REAL_TOPIC, "")
        if is_topic_deleted(self._broker, topic, half.physical_offset, half.store_timestamp):
            # A copy would be younger than the deletion.
            self._events.warn(
                "deleted",
                "the half message {offset} is dropped: topic {topic} was deleted",
                offset=half.queue_offset,
                topic=topic,
            )
            return True
        checks = table.get(props.TRANSACTION_CHECK_TIMES)
        age_ms = self._age_ms(half)
        reserved_ms = self._broker.settings.store.file_reserved_time * _HOUR_MS
        if age_ms > reserved_ms or (checks is not None and _number(checks) >= self._settings.transaction_check_max):
            return self._give_up(half, table)
        immunity = table.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is not None and age_ms < self._immunity_ms(immunity):
            table.setdefault(props.TRAN_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
            return self._renew(half, half_messages.renewed(half, table)) is not None
        asked = {**table, props.TRANSACTION_CHECK_TIMES: str(1 if checks is None else _number(checks) + 1)}
        message = half_messages.renewed(half, asked)
        if len(message.properties) > MAX_LENGTH:  # there is no space for the count
            asked = table
            message = half_messages.renewed(half, asked)
        result = self._renew(half, message)
        if result is None:
            return False
        if result.status is PutStatus.PUT_OK:
            self.asked += 1
            self._broker.extensions.transaction_checked(half)
            self._ask(half, asked, result)
        return True

    def _immunity_ms(self, text: str) -> int:
        seconds = _number(text)
        limit: int = self._settings.transaction_time_out if seconds == -1 else seconds * 1000
        return limit

    def _give_up(self, half: MessageExt, table: dict[str, str]) -> bool:
        self._broker.topics.create_topic_in_send_message_back(TRANS_CHECK_MAX_TIME_TOPIC, 1, READ | WRITE, 0)
        result = self._put(half, half_messages.given_up(half, table))
        if result is None:
            return False
        self.given_up += 1
        self._broker.extensions.transaction_given_up(half)
        self._events.error(
            "given up",
            "the half message {offset} of group {group} for topic {topic} is given up after {checks} checks and {age} ms; "
            "it is in {kept} now",
            offset=half.queue_offset,
            group=table.get(props.PGROUP),
            topic=table.get(props.REAL_TOPIC),
            checks=table.get(props.TRANSACTION_CHECK_TIMES, 0),
            age=self._age_ms(half),
            kept=TRANS_CHECK_MAX_TIME_TOPIC,
        )
        return True

    def _renew(self, half: MessageExt, message: MessageInner) -> PutResult | None:
        """Store a copy of a half message, as ``_put`` does."""
        result = self._put(half, message)
        if result is not None and result.status is PutStatus.PUT_OK:
            self._copies.add(half.physical_offset, result.physical_offset)
        return result

    def _put(self, half: MessageExt, message: MessageInner) -> PutResult | None:
        """Store a message. None if another attempt may succeed; ``failure`` is set then."""
        result: PutResult = self._store.put_messages([message])[0]
        if result.status in NEVER_STORED:
            self._events.error(
                "never stored",
                "the half message {offset} can never be stored again and is lost: {cause}",
                offset=half.queue_offset,
                cause=result.cause,
            )
        elif result.status is not PutStatus.PUT_OK:
            self.failure = result.cause or result.status.value
            return None
        return result


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1
