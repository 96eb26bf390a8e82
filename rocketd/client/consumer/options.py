"""What a consumer can be told.

Answers to the fields of DefaultMQPushConsumer and DefaultLitePullConsumer.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from rocketd.client.config import Duration
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.errors import IllegalOptionError
from rocketd.client.message import ReceivedMessage

MAX_CONCURRENCY = 1000


class Order(Enum):
    """Which messages are handled one after the other."""

    NONE = "none"
    """None: as many at once as ``concurrency`` allows."""
    QUEUE = "queue"
    """Those of a queue, which the broker locks for this consumer meanwhile."""
    KEY = "key"
    """Those of a queue that have the same key."""


OrderName = Literal["none", "queue", "key"]


@dataclass(kw_only=True)
class ConsumerOptions(MemberOptions):
    """Raises IllegalOptionError for a value that is not accepted."""

    order: Order | OrderName = Order.NONE
    """``none``, ``queue`` or ``key``."""

    key: Callable[[ReceivedMessage[Any]], Hashable | None] | None = None
    """For the order by key: the key of a message, which has failed where this raises. Without it, the first of its keys."""

    concurrency: int = 20
    """Messages that are handled at once, at most."""

    batch: int = 1
    """Messages that are handed over together, at most; above 1 the handler gets lists."""

    max_reconsume_times: int = -1
    """How often a message comes again before it becomes a dead letter. -1: 16 times, in order without end."""

    consume_timeout: Duration = 900.0
    """How long a message may be handled before it is given back to the broker. Without effect with order ``queue``."""

    suspend_time: Duration = 1.0
    """How long a queue waits that is consumed in order, when its first message was not."""

    grace: Duration = 25.0
    """How long stopping waits for handlers."""

    blocked_after: Duration = 60.0
    """How long a message may hold its queue's offset before the log says so."""

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


@dataclass(kw_only=True)
class LitePullOptions(MemberOptions):
    """Raises IllegalOptionError for a value that is not accepted.

    ``persist_interval`` is also how often positions are committed with ``auto_commit``.
    """

    pull_batch: int = 10
    """Messages that are asked for at once, and that ``poll`` gives at once, at most."""

    auto_commit: bool = True
    """Whether what ``poll`` gave is committed when it is called again, and when the consumer closes."""

    poll_timeout: Duration = 5.0
    """How long ``poll`` waits for messages unless it is told."""

    max_held: int = 10_000
    """Messages of all queues together that are held before nothing more is pulled."""

    watch_interval: Duration = 30.0
    """How often it is looked whether watched topics have other queues."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_durations("watch_interval")
        self._check_durations("poll_timeout", zero=True)
        self._check_number("max_held", 1, 2**31 - 1)
