"""What a consumer of any kind can be told.

Answers to the fields that DefaultMQPushConsumer and DefaultLitePullConsumer have in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike

from rocketd.client.config import Duration, milliseconds
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely, AllocationStrategy
from rocketd.client.consumer.flow_control import FlowLimits
from rocketd.client.consumer.option_checks import check_number
from rocketd.client.errors import IllegalOptionError
from rocketd.client.hooks import ConsumerHook, check_hooks, check_trace
from rocketd.client.option_types import check_types
from rocketd.remoting.bodies import ConsumeFromWhere, MessageModel


@dataclass(kw_only=True)
class MemberOptions:
    """Raises IllegalOptionError for a value that is not accepted."""

    start: str | datetime = "latest"
    """Where a group begins that has no offset of a queue yet: ``latest``, ``earliest`` or a moment."""

    broadcast: bool = False
    """Whether every consumer gets all messages, and keeps its offsets in a file of its own."""

    pull_batch: int = 32
    """Messages that are asked for at once."""

    pull_interval: Duration = 0.0
    """How long to wait between two pulls of a queue."""

    limits: FlowLimits = field(default_factory=FlowLimits)
    """How much of a queue, or of a topic, is held before it is pulled no further."""

    allocation: AllocationStrategy = field(default_factory=AllocateMessageQueueAveragely)
    """How the group's members share the queues. All of a group need the same."""

    rebalance_interval: Duration = 20.0
    """How often the queues are shared anew."""

    persist_interval: Duration = 5.0
    """How often offsets are stored."""

    offset_directory: str | PathLike[str] | None = None
    """Where broadcasting consumers keep their offsets. None: ``~/.rocketmq_offsets``."""

    trace: bool | str = False
    """Whether to tell of each message in the trace topic, or the name of another topic to tell it in."""

    consume_hooks: Sequence[ConsumerHook] = ()
    """Called before and after each handling of messages, and to filter what was pulled."""

    def __post_init__(self) -> None:
        check_trace(self.trace)
        check_hooks("consume_hooks", self.consume_hooks, ConsumerHook)
        self._check_durations("rebalance_interval", "persist_interval")
        self._check_durations("pull_interval", zero=True)
        self._check_number("pull_batch", 1, 1024)
        if not (isinstance(self.start, datetime) or self.start in ("latest", "earliest")):
            raise IllegalOptionError(f"start={self.start!r}: accepted is 'latest', 'earliest' or a datetime")
        check_types(self, but=("consume_hooks",))

    def _check_durations(self, *options: str, zero: bool = False) -> None:
        for option in options:
            milliseconds(option, getattr(self, option), zero=zero)

    def _check_number(self, option: str, least: int, most: int) -> None:
        check_number(option, getattr(self, option), least, most)

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
