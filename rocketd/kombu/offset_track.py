"""The acknowledged messages of one queue of a broker, as an offset to commit. Not synchronized."""

from rocketd.client import ReceivedMessage


class OffsetTrack:
    """Polled, unacknowledged messages of a queue, in the order of their offsets.

    It lasts while the offsets ascend. After a step back, or if the queue is assigned again, another track begins.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, ReceivedMessage[bytes]] = {}
        self._behind = 0
        self._highest_acknowledged = -1
        self.committed = -1
        """The last committed offset, -1 before the first commit."""

    def continues_with(self, message: ReceivedMessage[bytes]) -> bool:
        """Whether a message is behind all others."""
        return message.queue_offset >= self._behind

    def add(self, message: ReceivedMessage[bytes]) -> None:
        """Note a polled message, which the track continues with."""
        self._waiting[message.queue_offset] = message
        self._behind = message.queue_offset + 1

    def holds(self, message: ReceivedMessage[bytes]) -> bool:
        """Whether exactly this message is unacknowledged, not another one with its offset."""
        return self._waiting.get(message.queue_offset) is message

    def acknowledge(self, message: ReceivedMessage[bytes]) -> None:
        """Note the acknowledgement of a message. Do nothing if it was polled for another track."""
        if self.holds(message):
            del self._waiting[message.queue_offset]
            self._highest_acknowledged = max(self._highest_acknowledged, message.queue_offset)

    @property
    def position(self) -> int:
        """The offset to commit: all messages before it are acknowledged."""
        return min(self._waiting, default=self._behind)

    @property
    def waiting(self) -> int:
        """The number of unacknowledged messages."""
        return len(self._waiting)

    @property
    def is_late(self) -> bool:
        """Whether acknowledged messages are not committed yet, although none before them is waiting."""
        return self._highest_acknowledged >= 0 and self.position > self.committed

    def blockers(self) -> list[ReceivedMessage[bytes]]:
        """Return unacknowledged messages with acknowledged ones behind them."""
        return [message for offset, message in self._waiting.items() if offset < self._highest_acknowledged]
