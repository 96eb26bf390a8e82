"""How much of a queue a consumer holds before it stops to pull, sans-io.

Answers to the flow control of DefaultMQPushConsumerImpl.pullMessage, with its figures. ``ProcessQueue`` compares.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

MIB: Final = 1024 * 1024

FLOW_CONTROL_DELAY_MS: Final = 50
"""How long the next pull waits that flow control holds back."""


class FlowLimit(Enum):
    """The limits that hold pulls back."""

    COUNT = "count"
    SIZE = "size"
    SPAN = "span"


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """How much of one queue may be held. ``max_span`` is None for orderly consumers: theirs has no gaps."""

    messages: int = 1000
    size_mib: int = 100
    max_span: int | None = 2000


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
