"""Messages to send, and their forms on the wire: one for itself, or many together as a batch.

Answers to MessageDecoder.encodeMessage and MessageBatch. Pure functions.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from rocketd.common import properties as names
from rocketd.common.names import RETRY_PREFIX, topic_fault
from rocketd.common.properties import MAX_LENGTH, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_ZLIB
from rocketd.spark.errors import SparkError
from rocketd.spark.wire.unique_keys import unique_keys

BATCH_LIMIT: Final = 1024 * 1024
"""Bytes of a batch as it is stored, unless told otherwise; brokers refuse more than their maxMessageSize, 4 MiB."""

_HEAD = Struct(">iiiii")
_PROPERTIES = Struct(">h")
_ENTRY: Final = _HEAD.size + _PROPERTIES.size

_RECORD_OVERHEAD: Final = 150
"""Bytes of a stored record beside topic, body and properties; more than any has."""

_ZLIB_LEVEL: Final = 5


class MessageError(SparkError):
    """A message that no broker would take."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. `keys` are parted by blanks, `unique_key` is made where it is empty.

    `properties` are taken as they are, names of the protocol too, so that a stored message can be sent again with all
    that it had: what the other fields say comes on top. `delay_level` counts from 1, 0 delivers at once.
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
        """All properties as they are sent."""
        table = dict(self.properties)
        if self.tags:
            table[names.TAGS] = self.tags
        if self.keys:
            table[names.KEYS] = self.keys
        if self.delay_level:
            table[names.DELAY] = str(self.delay_level)
        table[names.UNIQ_KEY] = unique_key
        table.setdefault(names.WAIT, "true")
        return table


def keys_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """The unique keys that messages bring along, new ones for those that bring none."""
    brought = [message.unique_key or message.properties.get(names.UNIQ_KEY, "") for message in messages]
    made = iter(unique_keys(brought.count("")))
    return tuple(key or next(made) for key in brought)


def property_text(table: Mapping[str, str]) -> str:
    """The property string. Raises MessageError for what cannot be in one."""
    text = encode_properties(table)
    # Each entry has one separator within and one behind; a name or value with one of its own shows in the count.
    if text.count(NAME_VALUE_SEPARATOR) != len(table) or text.count(PROPERTY_SEPARATOR) > len(table):
        raise MessageError("a property's name or value has \\x01 or \\x02, which is what separates properties")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise MessageError(f"a property is no text that UTF-8 can write: {error}") from error
    if size > MAX_LENGTH:
        raise MessageError(f"tags, keys and properties have {size} bytes together, more than {MAX_LENGTH}")
    return text


def check_topic(topic: str) -> None:
    """Raise MessageError for a name that no topic may have."""
    fault = topic_fault(topic)
    if fault is not None:
        raise MessageError(f"topic {topic!r}: {fault}")


def packed(body: bytes, compress_over: int) -> tuple[bytes, int]:
    """A body as it is sent, and the bits of sysFlag that say how: with zlib above so many bytes, 0 for never."""
    if not body:
        raise MessageError("the body is empty, and the protocol has no messages without a body")
    if not compress_over or len(body) <= compress_over:
        return body, 0
    return zlib.compress(body, _ZLIB_LEVEL), COMPRESSED | COMPRESSION_ZLIB


# ---------------------------------------------------------------- batches


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one topic that are stored together or not at all: the body of the request, and their unique keys."""

    topic: str
    body: bytes
    unique_keys: tuple[str, ...]


def may_batch(messages: Sequence[Message]) -> bool:
    """Whether these can go as a batch: several of one topic, none delayed, to no retry topic."""
    if len(messages) < 2 or messages[0].topic.startswith(RETRY_PREFIX):
        return False
    topic = messages[0].topic
    return all(message.topic == topic and not _is_special(message) for message in messages)


def _is_special(message: Message) -> bool:
    if message.delay_level:
        return True
    given = message.properties
    return bool(given) and (
        names.DELAY in given or names.TRAN_MSG in given or any(name.startswith(names.TIMER_PREFIX) for name in given)
    )


def encode_batch(messages: Sequence[Message]) -> Batch:
    """Make a batch of messages that may be one. Raises MessageError."""
    check_topic(messages[0].topic)
    keys = keys_of(messages)
    parts: list[bytes] = []
    for message, key in zip(messages, keys, strict=True):
        body, _ = packed(message.body, 0)
        properties = property_text(message.table(key)).encode()
        parts += (
            _HEAD.pack(_ENTRY + len(body) + len(properties), 0, 0, message.flag, len(body)),
            body,
            _PROPERTIES.pack(len(properties)),
            properties,
        )
    return Batch(messages[0].topic, b"".join(parts), keys)


def stored_size(message: Message) -> int:
    """About how many bytes a broker stores, rather too many."""
    given = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    texts = len(message.tags or "") + len(message.keys or "") + given
    return len(message.body) + 3 * texts + len(message.topic) + _RECORD_OVERHEAD + 80


def in_batches(messages: Sequence[Message], limit: int = BATCH_LIMIT) -> Iterator[Sequence[Message]]:
    """Part messages so that each part can be submitted at once: a batch of at most `limit` bytes, or a single one.

    Their order is kept.
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
