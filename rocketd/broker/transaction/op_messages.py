"""The ends of half messages, as recorded in op messages.

Storage thread only.

Counterpart: `TransactionalMessageServiceImpl.fillOpRemoveMap`, `TransactionalMessageServiceImpl.calculateOpOffset`
(Apache).
"""

from collections.abc import Iterator

from twisted.logger import Logger

from rocketd.broker.send.half_messages import QUEUE_ID
from rocketd.common.names import TRANS_OP_HALF_TOPIC
from rocketd.store.base.errors import RecordSoughtError, StoreError
from rocketd.store.format.record import MessageExt, decode_message
from rocketd.store.interfaces import IMessageStore

OPS_A_PULL = 32
_LATE_ENDS_LIMIT = 100_000


def read_queue(store: IMessageStore, topic: str, offset: int, limit: int) -> Iterator[tuple[int, MessageExt | None]]:
    """Yield the messages of a queue with their offsets, None for a lost or damaged one.

    The message at ``offset`` must still be in the queue. Raises RecordSoughtError while the log is searched for one.
    """
    for number, entry in enumerate(store.queue_entries(topic, QUEUE_ID, offset, limit), offset):
        found = store.message_of(topic, QUEUE_ID, number, entry)
        try:
            yield number, None if found is None else decode_message(found[1])
        except StoreError:
            yield number, None


class LateEnds:
    """Ends whose half message was passed earlier, because it was stored again; by its first queue offset.

    They are kept for its copies. If there are too many, the oldest are forgotten.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, None] = {}

    def add(self, half_offset: int) -> None:
        """Remember the end of a half message."""
        self._offsets[half_offset] = None
        if len(self._offsets) > _LATE_ENDS_LIMIT:
            del self._offsets[next(iter(self._offsets))]

    def clear(self) -> None:
        """Forget all ends."""
        self._offsets.clear()

    def take(self, half_offset: int) -> bool:
        """Return whether an end is known, and forget it."""
        return self._offsets.pop(half_offset, 0) is None


class OpMessages:
    """Reads the op messages needed for one pass, in order, and tracks how many of them are done.

    ``first_half`` is the offset of the first half message in the pass.
    """

    _log = Logger()

    def __init__(self, store: IMessageStore, offset: int, first_half: int, late: LateEnds) -> None:
        self._store = store
        self._first_half = first_half
        self._late = late
        lowest = store.get_min_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID)
        highest = store.get_max_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID)
        self.next_offset = self.done_to = lowest if offset > highest else max(offset, lowest)
        """``next_offset`` is the next op message to read; all op messages before ``done_to`` are done."""
        self._ops: dict[int, list[int]] = {}
        self._done: set[int] = set()

    def read_more(self) -> bool:
        """Read the next op messages, as far as the log need not be searched for them. False if there are none."""
        end = self._store.get_max_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID)
        if self.next_offset >= end:
            return False
        offset = self.next_offset - 1
        try:
            for offset, message in read_queue(self._store, TRANS_OP_HALF_TOPIC, self.next_offset, OPS_A_PULL):
                self._take_in(offset, message)
        except RecordSoughtError:
            self.next_offset = offset + 1
            return True
        if offset < self.next_offset:
            self._take_in(self.next_offset, None)  # an unreadable entry must not hold up the others
            offset = self.next_offset
        self.next_offset = offset + 1
        return True

    def take(self, half_offset: int) -> bool:
        """Return whether a half message has ended, as far as op messages are read, and take its op messages."""
        offsets = self._ops.pop(half_offset, None)
        if offsets is None:
            return False
        for offset in offsets:
            self._finish(offset)
        return True

    def take_first(self, half_offset: int) -> bool:
        """Return the same for the first copy of a half message."""
        return self.take(half_offset) or self._late.take(half_offset)

    def _take_in(self, offset: int, message: MessageExt | None) -> None:
        half_offset = -1 if message is None else _half_offset(message.body)
        if half_offset >= self._first_half:
            self._ops.setdefault(half_offset, []).append(offset)
            return
        if half_offset < 0:
            self._log.error("the op message {offset} cannot be read; it is skipped", offset=offset)
        else:
            self._late.add(half_offset)
        self._finish(offset)

    def _finish(self, offset: int) -> None:
        self._done.add(offset)
        while self.done_to in self._done:
            self._done.remove(self.done_to)
            self.done_to += 1


def _half_offset(body: bytes) -> int:
    try:
        return int(body)
    except ValueError:
        return -1
