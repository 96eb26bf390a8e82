"""What a producer can be told.

Answers to the fields of DefaultMQProducer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketd.client.config import Duration, milliseconds
from rocketd.client.errors import IllegalOptionError
from rocketd.client.hooks import ProducerHook, check_hooks, check_trace
from rocketd.client.option_types import check_types
from rocketd.common.names import AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUES, topic_fault


@dataclass(kw_only=True)
class ProducerOptions:
    """Raises IllegalOptionError for a value that is not accepted."""

    send_timeout: Duration = 3.0
    """How long a send may take, all tries together."""

    retries: int = 2
    """How many more brokers are tried when one cannot be reached or refuses."""

    retry_another_broker: bool = False
    """Whether another is tried, too, when a broker has stored the message but not flushed or copied it in time."""

    max_message_size: int = 4 << 20
    """Bytes of the longest body that is sent."""

    compress_over: int = 4096
    """Bytes from which on a body is compressed."""

    create_topic_key: str = AUTO_CREATE_TOPIC
    """Topic after whose example the first message makes a new one."""

    default_topic_queues: int = DEFAULT_TOPIC_QUEUES
    """Queues of a topic that the first message makes, if the broker allows as many."""

    latency_fault_tolerance: bool = False
    """Whether brokers whose last send took long are passed over for a while."""

    max_pending: int = 65_535
    """How many sends may be under way at once."""

    transaction_threads: int = 4
    """How many local transactions, and checks of them, may run in threads at once."""

    trace: bool | str = False
    """Whether to tell of each send in the trace topic, or the name of another topic to tell it in."""

    send_hooks: Sequence[ProducerHook] = ()
    """Called before and after each send, and before the ends of transactions are told."""

    def __post_init__(self) -> None:
        check_trace(self.trace)
        check_hooks("send_hooks", self.send_hooks, ProducerHook)
        milliseconds("send_timeout", self.send_timeout)
        check_types(self, but=("send_hooks",))
        fault = topic_fault(self.create_topic_key)
        if fault is not None:
            raise IllegalOptionError(
                f"create_topic_key={self.create_topic_key!r}: accepted is the name of a topic; {fault}"
            )
        for option, least in (
            ("retries", 0),
            ("max_message_size", 1),
            ("compress_over", 0),
            ("default_topic_queues", 1),
            ("max_pending", 1),
            ("transaction_threads", 1),
        ):
            value = getattr(self, option)
            if value < least:
                raise IllegalOptionError(f"{option}={value!r}: accepted is a whole number from {least} on")
