"""Finds half messages stored again before a crash, if the record of that was lost.

Progress is written every few seconds, so after a crash some half messages behind it already have copies. Checking both
would let the message be committed twice.
"""

from collections.abc import Iterator

from rocketd.broker.transaction.op_messages import read_queue
from rocketd.common import message_properties as props
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.store.base.errors import RecordSoughtError
from rocketd.store.format.record import MessageExt
from rocketd.store.interfaces import IMessageStore

_READ_AT_A_TIME = 32

_Key = tuple[str, int, bytes, int, str | None, str | None]


class CopySearch:
    """Finds copies among the half messages from the saved progress to the end of the queue at the start.

    ``begin`` and ``end`` are queue offsets. Storage thread only.
    """

    def __init__(self, store: IMessageStore, begin: int, end: int) -> None:
        self._store = store
        self._next = begin
        self.end = end
        self._newest: dict[_Key, int] = {}

    def steps(self) -> Iterator[bool]:
        """Start or continue the search. Yields False after each small step."""
        while self._next < self.end:
            limit = min(_READ_AT_A_TIME, self.end - self._next)
            try:
                messages = list(read_queue(self._store, TRANS_HALF_TOPIC, self._next, limit))
            except RecordSoughtError:
                yield False
                continue
            for _, message in messages:
                if message is not None:
                    self._take_in(message)
            self._next += max(1, len(messages))  # an unreadable entry must not hold up the others
            yield False

    def _take_in(self, message: MessageExt) -> None:
        table = message.properties_map()
        if props.TRANSACTION_CHECK_TIMES in table or props.TRAN_PREPARED_QUEUE_OFFSET in table:
            self._newest[_key(message, table)] = message.physical_offset

    def newer(self, half: MessageExt, table: dict[str, str]) -> int | None:
        """Return the physical offset of the newest copy of a half message; None if there is none."""
        found = self._newest.get(_key(half, table), -1) if self._newest else -1
        return found if found > half.physical_offset else None


def _key(message: MessageExt, table: dict[str, str]) -> _Key:
    """Return the fields all copies of a message share, and two messages do not."""
    return (
        table.get(props.UNIQ_KEY, ""),
        message.born_timestamp,
        message.born_host,
        message.body_crc,
        table.get(props.REAL_TOPIC),
        table.get(props.REAL_QID),
    )
