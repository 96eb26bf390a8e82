"""Options of each kind of consumer.

Counterpart: the fields of `DefaultMQPushConsumer` and `DefaultLitePullConsumer` (Apache).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.errors import IllegalOptionError
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.runtime.listeners import check_function
from rocketd.client.settings.config import Duration

MAX_CONCURRENCY = 1000


class Order(Enum):
    """The scope within which messages are handled one after the other."""

    NONE = "none"
    """No order: up to ``concurrency`` messages at once."""
    QUEUE = "queue"
    """The messages of a queue. The broker locks the queue for this consumer."""
    KEY = "key"
    """The messages of a queue with the same key. A failed message is tried again here, before the others of its key."""


OrderName = Literal["none", "queue", "key"]


@dataclass(kw_only=True)
class ConsumerOptions(MemberOptions):
    """Options of a consumer with a handler. Raises IllegalOptionError for an invalid value."""

    order: Order | OrderName = Order.NONE
    """Scope of messages handled one after the other: ``none``, ``queue`` or ``key``."""

    key: Callable[[ReceivedMessage[Any]], Hashable | None] | None = None
    """Function from a message to its key, for the order by key. If it raises, the message has failed. If None, the
    first of the message's keys.
    """

    concurrency: int = 20
    """Maximum number of messages handled at the same time."""

    batch: int = 1
    """Maximum number of messages in one call of the handler. Above 1 the handler gets lists."""

    max_reconsume_times: int = -1
    """Number of redeliveries of a failed message before it becomes a dead letter. -1 means 16, and no limit with
    order ``queue``. A consumer with ``broadcast`` gets the message again itself, and then leaves it behind; -1 means at
    once, unless there is an order.
    """

    consume_timeout: Duration = 900.0
    """Maximum time for handling a message. After it, the message is sent back to the broker. No effect with order
    ``queue``.
    """

    suspend_time: Duration = 1.0
    """Pause of a queue with order ``queue`` after its first message failed. With order ``key``, first pause of a key
    after a failure; with ``broadcast``, of the failed message. Each further one is twice as long, up to 60 s.
    """

    grace: Duration = 25.0
    """Time for which a stop waits for handlers."""

    blocked_after: Duration = 60.0
    """Time after which the log names a message that keeps the offset of its queue from advancing."""

    on_error: Callable[[BaseException, Any], Any] | None = None
    """Function called with the exception of a failed handler and its message, or its list of messages. It may be a
    coroutine function. The message comes again afterwards.
    """

    def __post_init__(self) -> None:
        try:
            self.order = Order(self.order)
        except ValueError:
            raise IllegalOptionError(f"order={self.order!r}: accepted is 'none', 'queue' or 'key'") from None
        super().__post_init__()
        self._check_durations("consume_timeout", "suspend_time", "blocked_after")
        self._check_durations("grace", zero=True)
        self._check_number("concurrency", 1, MAX_CONCURRENCY)
        self._check_number("batch", 1, 1024)
        self._check_number("max_reconsume_times", -1, 2**31 - 1)
        if self.key is not None and self.order is not Order.KEY:
            raise IllegalOptionError("key is for order='key'")
        if self.on_error is not None:
            check_function("on_error", self.on_error)


@dataclass(kw_only=True)
class LitePullOptions(MemberOptions):
    """Options of a polling consumer. Raises IllegalOptionError for an invalid value.

    ``persist_interval`` is also the interval of commits with ``auto_commit``.
    """

    pull_batch: int = 10
    """Maximum number of messages in one pull, and in one result of ``poll``."""

    auto_commit: bool = True
    """Whether the messages of a ``poll`` are committed at the next ``poll``, and at the close of the consumer."""

    poll_timeout: Duration = 5.0
    """Default time for which ``poll`` waits for messages."""

    max_held: int = 10_000
    """Maximum number of held messages of all queues. Beyond it nothing more is pulled."""

    watch_interval: Duration = 30.0
    """Interval at which watched topics are checked for other queues."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_durations("watch_interval")
        self._check_durations("poll_timeout", zero=True)
        self._check_number("max_held", 1, 2**31 - 1)
