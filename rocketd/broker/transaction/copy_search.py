"""Which half messages were stored once more before a crash that has taken the note of it.

No counterpart in Apache. Progress is written every few seconds: after a crash, half messages lie behind it that have copies
already. To ask about both would have the message committed twice.
"""

from collections.abc import Iterator

from rocketd.broker.transaction.op_messages import read_queue
from rocketd.common import properties as names
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.store.message_store import MessageStore
from rocketd.store.record import MessageExt

_READ_AT_A_TIME = 32

_Key = tuple[str, int, bytes, int, str | None, str | None]


class CopySearch:
    """Looks for copies among the half messages of these queue offsets: those from the written progress to the end at the
    start. Storage thread only.
    """

    def __init__(self, store: MessageStore, begin: int, end: int) -> None:
        self._store = store
        self._next = begin
        self.end = end
        self._newest: dict[_Key, int] = {}

    def steps(self) -> Iterator[bool]:
        """Search, or go on where it was left; yields False after each small step."""
        while self._next < self.end:
            limit = min(_READ_AT_A_TIME, self.end - self._next)
            messages = list(read_queue(self._store, TRANS_HALF_TOPIC, self._next, limit))
            for _, message in messages:
                if message is not None:
                    self._take_in(message)
            self._next += max(1, len(messages))  # an entry that cannot be read must not hold up the others
            yield False

    def _take_in(self, message: MessageExt) -> None:
        table = message.properties_map()
        if names.TRANSACTION_CHECK_TIMES in table or names.TRAN_PREPARED_QUEUE_OFFSET in table:
            self._newest[_key(message, table)] = message.physical_offset

    def newer(self, half: MessageExt, table: dict[str, str]) -> int | None:
        """Return the offset in the log of the last copy of a half message with these properties, if it has one."""
        found = self._newest.get(_key(half, table), -1) if self._newest else -1
        return found if found > half.physical_offset else None


def _key(message: MessageExt, table: dict[str, str]) -> _Key:
    """What all copies of a message have in common, and two messages have not."""
    return (
        table.get(names.UNIQ_KEY, ""),
        message.born_timestamp,
        message.born_host,
        message.body_crc,
        table.get(names.REAL_TOPIC),
        table.get(names.REAL_QID),
    )
