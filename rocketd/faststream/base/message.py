"""The messages that FastStream's handlers receive.

Counterparts: `MessageExt` and the statuses returned by Java's listeners (Apache).
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from faststream.message import StreamMessage

from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.settings.config import Duration
from rocketd.common import message_properties as props
from rocketd.faststream.base.settlement import Answer, Settlement

Raw = ReceivedMessage[bytes]
"""The client's message."""

M = TypeVar("M")


class _Settled(StreamMessage[M]):
    """A message or a batch with its settlement. A received reply has no ``settlement``."""

    def __init__(self, *arguments: Any, settlement: Settlement | None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.settlement = settlement

    async def ack(self) -> None:
        """Mark it as consumed."""
        self._settle(None)
        await super().ack()

    async def nack(self, delay: Duration | None = None) -> None:
        """Request redelivery after ``delay``, rounded up to a delay level (there are 18); None: the delay grows with
        each retry.
        """
        self._settle(Retry(delay))
        await super().nack()

    async def reject(self, reason: object = None) -> None:
        """Make it a dead letter at once. ``reason`` goes into the log."""
        self._settle(Reject(reason) if reason is not None else Reject())
        await super().reject()

    def _settle(self, answer: Answer) -> None:
        if self.settlement is not None and self.committed is None:
            self.settlement.decide(answer)


class RocketMessage(_Settled[Raw]):
    """One message. ``raw_message`` is the client's message with all its fields."""

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.raw_message.tags

    @property
    def keys(self) -> list[str]:
        """The words by which the message can be found."""
        return self.raw_message.keys

    @property
    def reconsume_times(self) -> int:
        """How many times it was redelivered."""
        return self.raw_message.reconsume_times

    @property
    def is_request(self) -> bool:
        """Whether the sender waits for a reply."""
        return is_request(self.raw_message)


class RocketBatchMessage(_Settled[Sequence[Raw]]):
    """Messages handled and settled together."""


def is_request(raw: Raw) -> bool:
    """Return whether the sender of a message waits for a reply."""
    return props.CORRELATION_ID in raw.properties and props.CLUSTER in raw.properties
