"""What a consumer can be told.

Answers to the fields of DefaultMQPushConsumer.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from rocketd.client.config import Duration, milliseconds
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely, AllocationStrategy
from rocketd.client.consumer.flow_control import FlowLimits
from rocketd.client.errors import IllegalOptionError
from rocketd.client.hooks import ConsumerHook, check_hooks, check_trace
from rocketd.client.message import ReceivedMessage
from rocketd.remoting.bodies import ConsumeFromWhere, MessageModel


class Order(Enum):
    """Which messages are handled one after the other."""

    NONE = "none"
    """None: as many at once as ``concurrency`` allows."""
    QUEUE = "queue"
    """Those of a queue, which the broker locks for this consumer meanwhile."""
    KEY = "key"
    """Those of a queue that have the same key."""


@dataclass(kw_only=True)
class ConsumerOptions:
    """Raises IllegalOptionError for a value that is not accepted."""

    start: str | datetime = "latest"
    """Where a group begins that has no offset of a queue yet: ``latest``, ``earliest`` or a moment."""

    broadcast: bool = False
    """Whether every consumer gets all messages, and keeps its offsets in a file of its own."""

    order: str | Order = Order.NONE
    """``none``, ``queue`` or ``key``."""

    key: Callable[[ReceivedMessage[Any]], Hashable | None] | None = None
    """For the order by key: the key of a message. Without it, the first of its keys."""

    concurrency: int = 20
    """Messages that are handled at once, at most."""

    batch: int = 1
    """Messages that are handed over together, at most; above 1 the handler gets lists."""

    pull_batch: int = 32
    """Messages that are asked for at once."""

    pull_interval: Duration = 0.0
    """How long to wait between two pulls of a queue."""

    limits: FlowLimits = field(default_factory=FlowLimits)
    """How much of a queue is held before it is pulled no further."""

    allocation: AllocationStrategy = field(default_factory=AllocateMessageQueueAveragely)
    """How the group's members share the queues. All of a group need the same."""

    max_reconsume_times: int = -1
    """How often a message comes again before it becomes a dead letter. -1: 16 times, in order without end."""

    consume_timeout: Duration = 900.0
    """How long a message may be handled before it is given back to the broker."""

    suspend_time: Duration = 1.0
    """How long a queue waits that is consumed in order, when its first message was not."""

    grace: Duration = 25.0
    """How long stopping waits for handlers."""

    rebalance_interval: Duration = 20.0
    """How often the queues are shared anew."""

    persist_interval: Duration = 5.0
    """How often offsets are stored."""

    blocked_after: Duration = 60.0
    """How long a message may hold its queue's offset before the log says so."""

    offset_directory: str | None = None
    """Where broadcasting consumers keep their offsets. None: ``~/.rocketmq_offsets``."""

    trace: bool | str = False
    """Whether to tell of each message in the trace topic, or the name of another topic to tell it in."""

    consume_hooks: Sequence[ConsumerHook] = ()
    """Called before and after each handling of messages, and to filter what was pulled."""

    def __post_init__(self) -> None:
        check_trace(self.trace)
        check_hooks("consume_hooks", self.consume_hooks, ConsumerHook)
        for option in (
            "consume_timeout",
            "suspend_time",
            "rebalance_interval",
            "persist_interval",
            "blocked_after",
        ):
            milliseconds(option, getattr(self, option))
        for option in ("pull_interval", "grace"):
            milliseconds(option, getattr(self, option), zero=True)
        for option, least, most in (
            ("concurrency", 1, 1000),
            ("batch", 1, 1024),
            ("pull_batch", 1, 1024),
            ("max_reconsume_times", -1, 2**31 - 1),
        ):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise IllegalOptionError(f"{option}={value!r}: accepted is a whole number from {least} to {most}")
        if not (isinstance(self.start, datetime) or self.start in ("latest", "earliest")):
            raise IllegalOptionError(f"start={self.start!r}: accepted is 'latest', 'earliest' or a datetime")
        try:
            self.order = Order(self.order)
        except ValueError:
            raise IllegalOptionError(f"order={self.order!r}: accepted is 'none', 'queue' or 'key'") from None
        if self.key is not None and self.order is not Order.KEY:
            raise IllegalOptionError("key is for order='key'")

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        """What heartbeats say of ``start``."""
        if isinstance(self.start, datetime):
            return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        if self.start == "earliest":
            return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    @property
    def message_model(self) -> MessageModel:
        """What heartbeats say of ``broadcast``."""
        return MessageModel.BROADCASTING if self.broadcast else MessageModel.CLUSTERING
