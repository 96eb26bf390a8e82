"""Messages as FastStream's handlers see them.

Answers to MessageExt, and to the statuses that Java's listeners return.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from faststream.message import StreamMessage

from rocketd.client.config import Duration
from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.client.message import ReceivedMessage
from rocketd.common import properties as names
from rocketd.faststream.settlement import Answer, Settlement

Raw = ReceivedMessage[bytes]
"""What the client hands over."""

M = TypeVar("M")


class _Settled(StreamMessage[M]):
    """A message, or several, whose end is told to the broker. A reply that came has no ``settlement``."""

    def __init__(self, *arguments: Any, settlement: Settlement | None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.settlement = settlement

    async def ack(self) -> None:
        """Say that it is consumed."""
        self._settle(None)
        await super().ack()

    async def nack(self, delay: Duration | None = None) -> None:
        """Have it come again after ``delay``, rounded up to one of the brokers' 18; None: longer from time to time."""
        self._settle(Retry(delay))
        await super().nack()

    async def reject(self, reason: object = None) -> None:
        """Make it a dead letter at once. ``reason`` is for the log."""
        self._settle(Reject(reason) if reason is not None else Reject())
        await super().reject()

    def _settle(self, answer: Answer) -> None:
        if self.settlement is not None and self.committed is None:
            self.settlement.decide(answer)


class RocketMessage(_Settled[Raw]):
    """One message. ``raw_message`` is the client's, with all there is to know."""

    @property
    def tag(self) -> str | None:
        """The tag."""
        return self.raw_message.tags

    @property
    def keys(self) -> list[str]:
        """The words it can be found by."""
        return self.raw_message.keys

    @property
    def reconsume_times(self) -> int:
        """How often it came before."""
        return self.raw_message.reconsume_times

    @property
    def is_request(self) -> bool:
        """Whether somebody waits for a reply."""
        return is_request(self.raw_message)


class RocketBatchMessage(_Settled[Sequence[Raw]]):
    """Messages that are handled, and settled, together."""


def is_request(raw: Raw) -> bool:
    """Whether a message was sent by somebody who waits for a reply."""
    return names.CORRELATION_ID in raw.properties and names.CLUSTER in raw.properties
