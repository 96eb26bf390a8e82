"""The options of brokers, subscribers, publishers and single calls, as typed keyword arguments.

An option that ``rocketd.client`` has too keeps the name, the meaning and the default of the client.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from rocketd.client.consumer.allocation import AllocationStrategy
from rocketd.client.consumer.options.flow_limits import FlowLimits
from rocketd.client.consumer.options.kind_options import Order, OrderName
from rocketd.client.hooks import ConsumerHook, ProducerHook
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.producer.producer import Selector
from rocketd.client.settings.config import Duration
from rocketd.common.suggest import did_you_mean
from rocketd.protocol.compression import Compression
from rocketd.remoting.bodies.tables import MessageQueue

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable
    from faststream.middlewares import AckPolicy


class ProduceOptions(TypedDict, total=False):
    """Options of the broker's producer: those of ``rocketd.client``'s ProducerOptions, except the transaction options.

    ``direct`` concerns blocking sends only.
    """

    send_timeout: Duration
    retries: int
    retry_another_broker: bool
    max_message_size: int
    compress_over: int
    compression: Compression
    create_topic_key: str
    default_topic_queues: int
    latency_fault_tolerance: bool
    max_pending: int
    linger: Duration
    linger_messages: int
    trace: bool | str
    send_hooks: Sequence[ProducerHook]


class ConsumeOptions(TypedDict, total=False):
    """Options of a group's consumer: those of ``rocketd.client``'s ConsumerOptions.

    ``grace`` is set by the broker's ``graceful_timeout``, ``batch`` by the subscriber's ``max_records``. FastStream has
    exception middlewares in place of ``on_error``.
    """

    begin: str | datetime
    missing: Literal["wait", "raise", "create"]
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
    on_assigned: Callable[[list[MessageQueue]], Any] | None
    on_revoked: Callable[[list[MessageQueue]], Any] | None
    on_lost: Callable[[list[MessageQueue]], Any] | None
    listener_timeout: Duration


class DocumentOptions(TypedDict, total=False):
    """The description of a subscriber or a publisher in the AsyncAPI document."""

    title: str | None
    description: str | None
    include_in_schema: bool


class SubscriberOptions(ConsumeOptions, DocumentOptions, total=False):
    """Options of a subscriber, in addition to its topics."""

    group: str | None
    """The consumer group; None: the broker's group."""
    tags: str | Sequence[str] | None
    """The subscribed tags, ``"TagA || TagB"`` or a list; None: all messages."""
    sql: str | None
    """An SQL92 expression over properties, which selects messages."""
    batch: bool
    """Whether handlers get lists of messages."""
    max_records: int
    """Maximum number of messages in such a list."""
    persistent: bool
    """Whether the broker keeps the subscriber; otherwise it ends with the last reference to it."""
    dependencies: "Sequence[Dependant]"
    parser: "CustomCallable | None"
    decoder: "CustomCallable | None"
    codec: "CodecProto | None"
    ack_policy: "AckPolicy"
    no_reply: bool
    """Whether to discard handlers' results instead of sending them to the requester or the topic ``reply_to``."""


class SendOptions(TypedDict, total=False):
    """The destination and the delivery time of one message."""

    tags: str | None
    """The tag, which consumers can select."""
    keys: str | Sequence[str]
    """One word, or several, by which the message can be found."""
    key: Any
    """Messages with the same key go to the same queue, the one that Java's client would choose."""
    selector: Selector
    """Chooses the queue by ``key``, in place of the choice of Java's client."""
    queue: MessageQueue
    deliver_after: Duration
    """Delay before delivery. Apache's brokers 4.x ignore it and deliver at once: use ``delay_level`` for them."""
    delay_level: int
    """A delay level, from 1 on; all brokers support levels."""
    deliver_at: datetime
    timeout: Duration | None
    """Time limit for sending, all retries included; for a request, until the reply arrives."""


class PublisherOptions(SendOptions, DocumentOptions, total=False):
    """Options of a publisher, in addition to its topic; the options of a call take precedence."""

    headers: dict[str, Any] | None
    reply_to: str
    schema: Any | None
    """Type of the messages in the AsyncAPI document if the handler's annotation gives none."""
    persistent: bool


_OTHER_WORDS: Final = {
    **dict.fromkeys(("start", "start_from", "auto_offset_reset", "consume_from_where"), "begin"),
    **dict.fromkeys(("max_workers", "workers", "thread_num", "consume_thread_nums"), "concurrency"),
    **dict.fromkeys(("group_id", "consumer_group"), "group"),
    "message_model": "broadcast",
    "filter": "tags",
    "properties": "headers",
    "tag": "tags",
    "delay": "deliver_after",
    "partition": "queue",
}
"""Words for options that have one name here. All are the client's, except FastStream's own ``headers``."""


def check_names(what: str, options: Iterable[str], known: type, *own: str) -> None:
    """Raise TypeError for a keyword that the TypedDict does not define, as Python does for functions.

    ``own`` are the other keywords of the function.
    """
    names = [*known.__annotations__, *own]
    unknown = sorted(set(options).difference(names))
    if unknown:
        words = [_OTHER_WORDS[name] for name in unknown if _OTHER_WORDS.get(name) in names]
        hint = f"; use {', '.join(f'{word}=' for word in words)}" if words else did_you_mean(unknown[0], names)
        raise TypeError(f"{what} got an unexpected keyword argument {', '.join(map(repr, unknown))}{hint}")
