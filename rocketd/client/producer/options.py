"""Options of producers.

Counterpart: the fields of `DefaultMQProducer` (Apache).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketd.client.errors import IllegalOptionError
from rocketd.client.hooks import ProducerHook, check_hooks, check_trace
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.client.settings.option_types import check_types
from rocketd.client.settings.packages import need_package
from rocketd.common.names import AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUES, topic_fault
from rocketd.protocol.compression import Compression

_PACKAGES: Final[dict[str, str]] = {"lz4": "lz4", "zstd": "zstandard"}
"""The packages of algorithms."""


@dataclass(kw_only=True)
class ProducerOptions:
    """Options of a producer. Raises IllegalOptionError for an invalid value."""

    send_timeout: Duration = 3.0
    """Timeout of a send, including all retries."""

    retries: int = 2
    """Number of further attempts, at other brokers if possible, after a timeout, a lost connection or some refusals.
    Brokers that cannot be reached are tried until ``send_timeout``, with growing pauses. 0 makes one attempt only.
    """

    retry_another_broker: bool = False
    """Whether a send is also tried at another broker if the first one stored the message but did not flush or
    replicate it in time.
    """

    max_message_size: int = 4 << 20
    """Maximum size of a body in bytes. A longer one is not sent."""

    compress_over: int = 4096
    """Size in bytes from which bodies are compressed."""

    compression: Compression = "zlib"
    """Algorithm of compressed bodies: ``zlib``, ``lz4`` or ``zstd``. Consumers have to know it."""

    create_topic_key: str = AUTO_CREATE_TOPIC
    """Template topic for topics created by their first message."""

    default_topic_queues: int = DEFAULT_TOPIC_QUEUES
    """Number of queues of a topic created by its first message. The broker may allow fewer."""

    latency_fault_tolerance: bool = False
    """Whether brokers with a slow last send are avoided for a while."""

    linger: Duration = 0.0
    """Time for which a send waits for others to its topic, to be stored together with them in one queue. Delayed
    messages, and those sent by queue, selector or key, do not wait. 0 sends each message at once.
    """

    linger_messages: int = 32
    """Number of messages that are sent together without waiting for more."""

    max_pending: int = 65_535
    """Maximum number of sends in progress at the same time. A further one raises TooManyRequestsError."""

    transaction_threads: int = 4
    """Maximum number of local transactions and their checks running in threads at the same time."""

    direct: bool = True
    """Whether ``rocketd.client.sync`` sends on connections used by the calling thread itself, one for each thread that
    sends at the same time. Otherwise all sends share one connection for each broker.
    """

    trace: bool | str = False
    """Whether to trace each send in the trace topic. The name of another topic traces there."""

    send_hooks: Sequence[ProducerHook] = ()
    """Hooks called before and after each send, and before the end of a transaction is sent."""

    def __post_init__(self) -> None:
        check_trace(self.trace)
        check_hooks("send_hooks", self.send_hooks, ProducerHook)
        milliseconds("send_timeout", self.send_timeout)
        milliseconds("linger", self.linger, zero=True)
        check_types(self, but=("send_hooks",))
        if self.compression in _PACKAGES:
            need_package(f"compression={self.compression!r}", _PACKAGES[self.compression], "compression")
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
            ("linger_messages", 1),
            ("max_pending", 1),
            ("transaction_threads", 1),
        ):
            value = getattr(self, option)
            if value < least:
                raise IllegalOptionError(f"{option}={value!r}: accepted is a whole number from {least} on")
