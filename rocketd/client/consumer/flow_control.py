"""How much of a queue a consumer holds before it stops to pull, sans-io.

Answers to the flow control of DefaultMQPushConsumerImpl.pullMessage, with its figures, and to what RebalancePushImpl makes
of the limits of a topic. ``ProcessQueue`` compares.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketd.client.consumer.option_checks import check_number

MIB: Final = 1024 * 1024

FLOW_CONTROL_DELAY_MS: Final = 50
"""How long the next pull waits that flow control holds back."""


class FlowLimit(Enum):
    """The limits that hold pulls back."""

    COUNT = "count"
    SIZE = "size"
    SPAN = "span"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much of one queue may be held. ``max_span`` None is no limit."""

    messages: int
    size_mib: int
    max_span: int | None


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much a consumer may hold. Raises IllegalOptionError for a value that is not accepted, as Apache's ranges are."""

    messages: int = 1000
    """Messages of a queue, up to 65535."""

    size_mib: int = 100
    """MiB of the bodies of a queue's messages, up to 1024."""

    max_span: int | None = 2000
    """How far the last offset of a queue's messages lies behind the first one, up to 65535; None for any. It does not count
    with order ``queue``."""

    topic_messages: int | None = None
    """Messages of all queues of a topic that this consumer has, up to 6553500: each queue may have an equal share, instead
    of ``messages``. None for no such limit."""

    topic_size_mib: int | None = None
    """MiB of the bodies of all queues of a topic, up to 102400, shared in the same way, instead of ``size_mib``."""

    def __post_init__(self) -> None:
        check_number("messages", self.messages, 1, 65535)
        check_number("size_mib", self.size_mib, 1, 1024)
        for option, most in (("max_span", 65535), ("topic_messages", 6_553_500), ("topic_size_mib", 102_400)):
            value = getattr(self, option)
            if value is not None:
                check_number(option, value, 1, most)

    @property
    def of_topics(self) -> bool:
        """Whether it counts how many queues a topic has."""
        return self.topic_messages is not None or self.topic_size_mib is not None

    def of_queue(self, queues: int, *, in_order: bool) -> QueueLimits:
        """Return the limits of a queue whose topic has so many here, and that is consumed ``in_order`` or not."""
        return QueueLimits(
            self.messages if self.topic_messages is None else max(1, self.topic_messages // queues),
            self.size_mib if self.topic_size_mib is None else max(1, self.topic_size_mib // queues),
            None if in_order else self.max_span,
        )


@dataclass(frozen=True, slots=True)
class FlowControl:
    """Why the next pull waits: the limit with its figure, and what is held. Its text is for the log.

    The offsets are None when all that is held is being consumed in order.
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
