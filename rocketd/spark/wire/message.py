"""Messages to send, and their wire formats: a single message, or a batch.

Pure functions. Counterpart: `MessageDecoder.encodeMessage`, `MessageBatch` (Apache).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketd.common import message_properties as props
from rocketd.common.names import RETRY_PREFIX
from rocketd.protocol.batch import RECORD_OVERHEAD, batch_entry
from rocketd.protocol.compression import compress
from rocketd.protocol.errors import IllegalMessageError, UsageError, check_topic
from rocketd.protocol.message import EMPTY_BODY, property_table, property_text
from rocketd.spark.errors import SparkError
from rocketd.spark.wire.unique_keys import unique_keys

BATCH_LIMIT: Final = 1024 * 1024
"""Default limit of a batch, in stored bytes. Brokers refuse more than their maxMessageSize, by default 4 MiB."""


class MessageError(SparkError):
    """A message that every broker would refuse."""


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message to send. `keys` are separated by blanks; an empty `unique_key` is generated.

    `properties` may include names of the protocol, so that a stored message can be sent again unchanged. The other
    fields override them. `delay_level` counts from 1; 0 delivers at once.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    unique_key: str = ""
    delay_level: int = 0

    def table(self, unique_key: str) -> dict[str, str]:
        """Return all properties as sent."""
        table = property_table(self.properties, self.tags, self.keys, self.delay_level)
        table[props.UNIQ_KEY] = unique_key
        table.setdefault(props.WAIT, "true")
        return table


def keys_of(messages: Sequence[RawMessage]) -> tuple[str, ...]:
    """Return the unique keys of messages, with new ones for messages without a key."""
    brought = [message.unique_key or message.properties.get(props.UNIQ_KEY, "") for message in messages]
    made = iter(unique_keys(brought.count("")))
    return tuple(key or next(made) for key in brought)


def packed(body: bytes, compress_over: int) -> tuple[bytes, int]:
    """Return a body as sent, and its bits of sysFlag.

    Bodies above `compress_over` bytes are compressed with zlib, never with 0.

    Raises IllegalMessageError.
    """
    if not body:
        raise IllegalMessageError(EMPTY_BODY)
    return compress(body) if compress_over and len(body) > compress_over else (body, 0)


# ---------------------------------------------------------------- batches


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one topic, stored all together or not at all: the body of the request, and the unique keys."""

    topic: str
    body: bytes
    unique_keys: tuple[str, ...]


def may_batch(messages: Sequence[RawMessage]) -> bool:
    """Tell whether these messages may form a batch: several, of one topic, not delayed, and not to a retry topic."""
    if len(messages) < 2 or messages[0].topic.startswith(RETRY_PREFIX):
        return False
    topic = messages[0].topic
    return all(message.topic == topic and not _is_special(message) for message in messages)


def _is_special(message: RawMessage) -> bool:
    if message.delay_level:
        return True
    given = message.properties
    return bool(given) and (
        props.DELAY in given or props.TRAN_MSG in given or any(name.startswith(props.TIMER_PREFIX) for name in given)
    )


def encode_batch(messages: Sequence[RawMessage]) -> Batch:
    """Encode a batch of messages that may form one. Raises MessageError."""
    keys = keys_of(messages)
    parts: list[bytes] = []
    try:
        check_topic(messages[0].topic)
        for message, key in zip(messages, keys, strict=True):
            body, _ = packed(message.body, 0)
            parts.append(batch_entry(body, property_text(message.table(key)).encode(), message.flag))
    except UsageError as error:
        raise MessageError(str(error)) from error
    return Batch(messages[0].topic, b"".join(parts), keys)


def stored_size(message: RawMessage) -> int:
    """Estimate the bytes that a broker stores; rather too many than too few."""
    given = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    texts = len(message.tags or "") + len(message.keys or "") + given
    return len(message.body) + 3 * texts + len(message.topic) + RECORD_OVERHEAD + 80


def in_batches(messages: Sequence[RawMessage], limit: int = BATCH_LIMIT) -> Iterator[Sequence[RawMessage]]:
    """Split messages into parts that can each be submitted at once: a batch of at most `limit` bytes, or one message.

    The order is kept.
    """
    begin = size = 0
    for place, message in enumerate(messages):
        one = stored_size(message)
        apart = _is_special(message) or message.topic.startswith(RETRY_PREFIX)
        together = place > begin and not apart and message.topic == messages[begin].topic and size + one <= limit
        if place > begin and (not together or _is_special(messages[begin])):
            yield messages[begin:place]
            begin, size = place, 0
        size += one
    if begin < len(messages):
        yield messages[begin:]
