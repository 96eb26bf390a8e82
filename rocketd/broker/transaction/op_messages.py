"""Which half messages have ended, as their op messages tell.

Answers to TransactionalMessageServiceImpl.fillOpRemoveMap and calculateOpOffset. Belongs to the storage thread.
"""

from collections.abc import Iterator

from twisted.logger import Logger

from rocketd.broker.transaction.half_messages import QUEUE_ID
from rocketd.common.names import TRANS_OP_HALF_TOPIC
from rocketd.store.errors import StoreError
from rocketd.store.message_store import MessageStore
from rocketd.store.record import MessageExt, decode_message

OPS_A_PULL = 32
_LATE_ENDS_LIMIT = 100_000


def read_queue(store: MessageStore, topic: str, offset: int, limit: int) -> Iterator[tuple[int, MessageExt | None]]:
    """Read a queue's messages with their offsets, from one that is still there on; None for one that is lost or damaged."""
    for number, (physical_offset, _, _) in enumerate(store.queue_entries(topic, QUEUE_ID, offset, limit), offset):
        record = store.look_message(physical_offset)
        try:
            yield number, None if record is None else decode_message(record)
        except StoreError:
            yield number, None


class LateEnds:
    """Ends of half messages that had been passed already, because they were stored once more: by their first offsets.

    They are kept for the copies, and the oldest forgotten when they are many.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, None] = {}

    def add(self, half_offset: int) -> None:
        """Remember one."""
        self._offsets[half_offset] = None
        if len(self._offsets) > _LATE_ENDS_LIMIT:
            del self._offsets[next(iter(self._offsets))]

    def clear(self) -> None:
        """Forget all."""
        self._offsets.clear()

    def take(self, half_offset: int) -> bool:
        """Say whether one is known, and forget it."""
        return self._offsets.pop(half_offset, 0) is None


class OpMessages:
    """Reads the ends that one look through the half messages needs, in order, and tells how far they are dealt with.

    ``first_half`` is the offset at which that look begins.
    """

    _log = Logger()

    def __init__(self, store: MessageStore, offset: int, first_half: int, late: LateEnds) -> None:
        self._store = store
        self._first_half = first_half
        self._late = late
        lowest = store.get_min_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID)
        highest = store.get_max_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID)
        self.next_offset = self.done_to = lowest if offset > highest else max(offset, lowest)
        """Op messages are read up to the first, and dealt with up to the second."""
        self._ops: dict[int, list[int]] = {}
        self._done: set[int] = set()

    def read_more(self) -> bool:
        """Read the next op messages; False when there are none."""
        end = self._store.get_max_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID)
        if self.next_offset >= end:
            return False
        offset = self.next_offset - 1
        for offset, message in read_queue(self._store, TRANS_OP_HALF_TOPIC, self.next_offset, OPS_A_PULL):
            self._take_in(offset, message)
        if offset < self.next_offset:
            self._take_in(self.next_offset, None)  # an entry that cannot be read must not hold up the others
            offset = self.next_offset
        self.next_offset = offset + 1
        return True

    def take(self, half_offset: int) -> bool:
        """Say whether a half message has ended, as far as was read; its op messages are dealt with then."""
        offsets = self._ops.pop(half_offset, None)
        if offsets is None:
            return False
        for offset in offsets:
            self._finish(offset)
        return True

    def take_first(self, half_offset: int) -> bool:
        """Say the same of the half message that another is a copy of."""
        return self.take(half_offset) or self._late.take(half_offset)

    def _take_in(self, offset: int, message: MessageExt | None) -> None:
        half_offset = -1 if message is None else _half_offset(message.body)
        if half_offset >= self._first_half:
            self._ops.setdefault(half_offset, []).append(offset)
            return
        if half_offset < 0:
            self._log.error("the op message {offset} cannot be read; it is passed over", offset=offset)
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
