"""What brokers, subscribers, publishers and single calls can be told, as keyword arguments with types.

No counterpart in Apache. What is an option of ``rocketd.client``, too, has its name, its meaning and its default from there.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from rocketd.client.config import Duration
from rocketd.client.consumer.allocation import AllocationStrategy
from rocketd.client.consumer.flow_control import FlowLimits
from rocketd.client.consumer.options import Order, OrderName
from rocketd.client.hooks import ConsumerHook, ProducerHook
from rocketd.client.message import ReceivedMessage
from rocketd.client.producer.producer import Selector
from rocketd.remoting.bodies import MessageQueue

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable
    from faststream.middlewares import AckPolicy


class ProduceOptions(TypedDict, total=False):
    """Options of the broker's producer: those of ``rocketd.client``'s ProducerOptions that are not about transactions."""

    send_timeout: Duration
    retries: int
    retry_another_broker: bool
    max_message_size: int
    compress_over: int
    create_topic_key: str
    default_topic_queues: int
    latency_fault_tolerance: bool
    max_pending: int
    trace: bool | str
    send_hooks: Sequence[ProducerHook]


class ConsumeOptions(TypedDict, total=False):
    """Options of a group's consumer: those of ``rocketd.client``'s ConsumerOptions.

    Its ``grace`` is the broker's ``graceful_timeout``, its ``batch`` the subscriber's ``max_records``.
    """

    start: str | datetime
    broadcast: bool
    pull_batch: int
    pull_interval: Duration
    limits: FlowLimits
    allocation: AllocationStrategy
    rebalance_interval: Duration
    persist_interval: Duration
    offset_directory: str | None
    order: Order | OrderName
    key: Callable[[ReceivedMessage[Any]], Hashable | None] | None
    concurrency: int
    max_reconsume_times: int
    consume_timeout: Duration
    suspend_time: Duration
    blocked_after: Duration
    trace: bool | str
    consume_hooks: Sequence[ConsumerHook]


class DocumentOptions(TypedDict, total=False):
    """How a subscriber or a publisher stands in the AsyncAPI document."""

    title: str | None
    description: str | None
    include_in_schema: bool


class SubscriberOptions(ConsumeOptions, DocumentOptions, total=False):
    """Options of a subscriber, beside its topics."""

    group: str | None
    """Its consumer group; None takes the broker's."""
    tags: str | Sequence[str] | None
    """Tags it wants, ``"TagA || TagB"`` or a list of them; None for all messages."""
    sql: str | None
    """An SQL92 expression over properties, which selects what it wants."""
    batch: bool
    """Whether handlers get lists of messages."""
    max_records: int
    """Messages of such a list, at most."""
    persistent: bool
    """Whether the broker keeps it; one that is not kept ends with the last reference to it."""
    dependencies: "Sequence[Dependant]"
    parser: "CustomCallable | None"
    decoder: "CustomCallable | None"
    codec: "CodecProto | None"
    ack_policy: "AckPolicy"
    no_reply: bool
    """Whether what handlers return is kept from who sent a request, or asked for an answer to a topic."""


class SendOptions(TypedDict, total=False):
    """Where one message goes, and when."""

    tag: str | None
    keys: str | Sequence[str]
    """Words it can be found by, one or several."""
    key: Any
    """Messages with the same go to the same queue, as Java's client chooses it."""
    selector: Selector
    """Chooses the queue by ``key``, other than Java's client would."""
    queue: MessageQueue
    delay: Duration
    """How long to wait before it is delivered. Apache's brokers 4.x deliver at once: give ``delay_level`` there."""
    delay_level: int
    """One of the levels from 1 on that all brokers know."""
    deliver_at: datetime
    timeout: Duration | None
    """How long sending may take, all tries together; of a request, until its reply is here."""


class PublisherOptions(SendOptions, DocumentOptions, total=False):
    """Options of a publisher, beside its topic; where a call says something else, that counts."""

    headers: dict[str, Any] | None
    reply_to: str
    schema: Any | None
    """Type of the messages in the AsyncAPI document, where the handler's annotation does not say."""
    persistent: bool


def check_names(what: str, options: Iterable[str], known: type) -> None:
    """Raise TypeError for a keyword that is none of a TypedDict's, as Python does for functions."""
    unknown = set(options) - known.__annotations__.keys()
    if unknown:
        raise TypeError(f"{what} got an unexpected keyword argument {', '.join(map(repr, sorted(unknown)))}")
