"""Flow control: limits on the messages held of a queue, above which it is not pulled, sans-io.

Counterpart: the flow control of `DefaultMQPushConsumerImpl.pullMessage`, with the same limits, and the topic limits of
`RebalancePushImpl` (Apache). ``ProcessQueue`` compares.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from rocketd.client.consumer.options.option_checks import check_number

MIB: Final = 1024 * 1024

FLOW_CONTROL_DELAY_MS: Final = 50
"""Delay of a pull held back by flow control."""


class FlowLimit(Enum):
    """The limits for held messages."""

    COUNT = "count"
    SIZE = "size"
    SPAN = "span"


class QueueLimits(msgspec.Struct, frozen=True):
    """Limits of one queue. ``max_span`` None means unlimited."""

    messages: int
    size_mib: int
    max_span: int | None


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of a consumer. The ranges are Apache's. Raises IllegalOptionError for a value outside its range."""

    messages: int = 1000
    """Maximum number of held messages of a queue, up to 65535."""

    size_mib: int = 100
    """Maximum size of the held bodies of a queue in MiB, up to 1024."""

    max_span: int | None = 2000
    """Maximum distance between the first and last offset of a queue's held messages, up to 65535. None for no
    limit. No effect with order ``queue``.
    """

    topic_messages: int | None = None
    """Maximum number of held messages of a topic, up to 6553500, in place of ``messages``. Each of the consumer's
    queues gets an equal share. None for no such limit.
    """

    topic_size_mib: int | None = None
    """Maximum size of the held bodies of a topic in MiB, up to 102400, in place of ``size_mib``. It is shared in
    the same way.
    """

    def __post_init__(self) -> None:
        check_number("messages", self.messages, 1, 65535)
        check_number("size_mib", self.size_mib, 1, 1024)
        for option, limit in (("max_span", 65535), ("topic_messages", 6_553_500), ("topic_size_mib", 102_400)):
            value = getattr(self, option)
            if value is not None:
                check_number(option, value, 1, limit)

    @property
    def of_topics(self) -> bool:
        """Whether a limit depends on the number of queues of a topic."""
        return self.topic_messages is not None or self.topic_size_mib is not None

    def of_queue(self, queues: int, *, in_order: bool) -> QueueLimits:
        """Return the limits of a queue. ``queues`` is the number of the topic's queues in this consumer."""
        return QueueLimits(
            self.messages if self.topic_messages is None else max(1, self.topic_messages // queues),
            self.size_mib if self.topic_size_mib is None else max(1, self.topic_size_mib // queues),
            None if in_order else self.max_span,
        )


class FlowControl(msgspec.Struct, frozen=True):
    """The reason why the next pull waits: the limit with its threshold, and the messages held. Its text is for the log.

    The offsets are None if all held messages are being consumed in order.
    """

    limit: FlowLimit
    threshold: int
    min_offset: int | None
    max_offset: int | None
    count: int
    size_mib: int
    span: int

    def __str__(self) -> str:
        match self.limit:
            case FlowLimit.COUNT:
                what = f"more messages are held than the {self.threshold} allowed"
            case FlowLimit.SIZE:
                what = f"the messages held are larger than the {self.threshold} MiB allowed"
            case FlowLimit.SPAN:
                what = f"the messages held lie further apart than the {self.threshold} offsets allowed"
        return (
            f"{what}, so the next pull waits: minOffset={self.min_offset}, maxOffset={self.max_offset}, "
            f"count={self.count}, size={self.size_mib} MiB, maxSpan={self.span}"
        )
