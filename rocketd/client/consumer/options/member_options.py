"""Options of all kinds of consumers.

Counterpart: the common fields of `DefaultMQPushConsumer` and `DefaultLitePullConsumer` (Apache).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from typing import Any, Literal

from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely, AllocationStrategy
from rocketd.client.consumer.options.flow_limits import FlowLimits
from rocketd.client.consumer.options.option_checks import check_number
from rocketd.client.errors import IllegalOptionError
from rocketd.client.hooks import ConsumerHook, check_hooks, check_trace
from rocketd.client.runtime.listeners import check_function
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.client.settings.option_types import check_types
from rocketd.remoting.bodies.tables import ConsumeFromWhere, MessageModel, MessageQueue


@dataclass(kw_only=True)
class MemberOptions:
    """Options of a consumer. Raises IllegalOptionError for an invalid value."""

    begin: str | datetime = "latest"
    """First position of a group without a stored offset: ``latest``, ``earliest`` or a point in time. ``latest`` is the
    time at which the group begins. Queues that are taken later are read from then on.
    """

    missing: Literal["wait", "raise", "create"] = "wait"
    """Treatment of a subscribed topic without a broker that has it. ``wait`` opens the consumer and begins when the topic
    comes, also if brokers and name servers are away. ``create`` creates it with four queues. ``raise`` raises
    NoRouteError.
    """

    broadcast: bool = False
    """Whether each consumer gets all messages, and stores its offsets in a local file."""

    pull_batch: int = 32
    """Maximum number of messages in one pull."""

    pull_interval: Duration = 0.0
    """Pause between two pulls of a queue."""

    limits: FlowLimits = field(default_factory=FlowLimits)
    """Limits of the messages held of a queue or a topic. Beyond them the queue is not pulled."""

    allocation: AllocationStrategy = field(default_factory=AllocateMessageQueueAveragely)
    """Strategy for sharing the queues among the group's members. All members of a group need the same one."""

    rebalance_interval: Duration = 20.0
    """Interval at which the queues are shared anew."""

    persist_interval: Duration = 5.0
    """Interval at which offsets are stored."""

    offset_directory: str | PathLike[str] | None = None
    """Directory of the offset files of broadcasting consumers. If None, ``~/.rocketmq_offsets``."""

    trace: bool | str = False
    """Whether to trace each message in the trace topic. The name of another topic traces there."""

    consume_hooks: Sequence[ConsumerHook] = ()
    """Hooks called before and after each call of the handler, and for filtering pulled messages."""

    on_assigned: Callable[[list[MessageQueue]], Any] | None = None
    """Function called with queues that this consumer now has, before their first message. It may be a coroutine function."""

    on_revoked: Callable[[list[MessageQueue]], Any] | None = None
    """Function called with queues that this consumer gives up, before it stores their offsets and releases them. It may be
    a coroutine function.
    """

    on_lost: Callable[[list[MessageQueue]], Any] | None = None
    """Function called in place of ``on_revoked`` with queues that this consumer no longer has, because their lock was lost.
    It may be a coroutine function.
    """

    listener_timeout: Duration = 30.0
    """Maximum time for which a rebalance waits for ``on_assigned``, ``on_revoked`` or ``on_lost``."""

    def __post_init__(self) -> None:
        check_trace(self.trace)
        check_hooks("consume_hooks", self.consume_hooks, ConsumerHook)
        self._check_durations("rebalance_interval", "persist_interval", "listener_timeout")
        self._check_durations("pull_interval", zero=True)
        self._check_number("pull_batch", 1, 1024)
        if not (isinstance(self.begin, datetime) or self.begin in ("latest", "earliest")):
            raise IllegalOptionError(f"begin={self.begin!r}: accepted is 'latest', 'earliest' or a datetime")
        check_types(self, but=("consume_hooks",))
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if getattr(self, name) is not None:
                check_function(name, getattr(self, name))

    def _check_durations(self, *options: str, zero: bool = False) -> None:
        for option in options:
            milliseconds(option, getattr(self, option), zero=zero)

    def _check_number(self, option: str, minimum: int, maximum: int) -> None:
        check_number(option, getattr(self, option), minimum, maximum)


def consume_from_where(options: MemberOptions) -> ConsumeFromWhere:
    """Return the value for ``begin`` in heartbeats."""
    if isinstance(options.begin, datetime):
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    if options.begin == "earliest":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def message_model(options: MemberOptions) -> MessageModel:
    """Return the value for ``broadcast`` in heartbeats."""
    return MessageModel.BROADCASTING if options.broadcast else MessageModel.CLUSTERING
