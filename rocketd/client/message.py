"""Messages as an application sees them: what it sends, what it gets, what becomes of a send.

Answers to Message, MessageExt and SendResult of Apache's client. Plain values.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from rocketd.client.errors import IllegalMessageError
from rocketd.common import properties as names
from rocketd.common.names import topic_fault
from rocketd.common.properties import decode_properties
from rocketd.common.record_host import host_text
from rocketd.remoting.bodies import MessageQueue
from rocketd.store.record import MessageExt

MAX_BODY = 4 << 20
"""Bytes of the longest body that is sent."""

COMPRESS_FROM = 4096
"""Bytes from which on a body is compressed."""

_COMPRESSED = 0x1
_COMPRESSION_MASK = 0x700
_ZLIB = 0x300
_ZLIB_LEVEL = 5


@dataclass(slots=True)
class Message:
    """A message to send. ``keys`` are words to find it by; ``properties`` are the application's own."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0

    def check(self) -> None:
        """Raise IllegalMessageError when no broker would take it."""
        fault = topic_fault(self.topic)
        if fault is not None:
            raise IllegalMessageError(f"topic {self.topic!r}: {fault}")
        for what, text in self._texts():
            if names.NAME_VALUE_SEPARATOR in text or names.PROPERTY_SEPARATOR in text:
                raise IllegalMessageError(f"{what} {text!r}: \\x01 and \\x02 are what separates properties")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise IllegalMessageError(f"{what} {text!r}: it is no text that UTF-8 can write") from None
        if not self.body:
            raise IllegalMessageError("the body is empty")
        if len(self.body) > MAX_BODY:
            raise IllegalMessageError(f"the body has {len(self.body)} bytes, more than {MAX_BODY}")
        reserved = names.RESERVED.intersection(self.properties)
        if reserved:
            raise IllegalMessageError(f"properties that are reserved: {', '.join(sorted(reserved))}")

    def _texts(self) -> Iterator[tuple[str, str]]:
        """What becomes part of the property string, and what it is."""
        yield "tag", self.tags or ""
        for key in self.keys:
            yield "key", key
        for name, value in self.properties.items():
            yield "property", name
            yield f"property {name!r}", value

    def wire_properties(self, unique_key: str) -> dict[str, str]:
        """Return all properties as they are sent."""
        table = dict(self.properties)
        if self.tags:
            table[names.TAGS] = self.tags
        if self.keys:
            table[names.KEYS] = " ".join(self.keys)
        table[names.UNIQ_KEY] = unique_key
        table[names.WAIT] = "true"
        return table

    def wire_body(self) -> tuple[bytes, int]:
        """Return the body as it is sent, and the bits of sysFlag that tell how it is compressed."""
        if len(self.body) < COMPRESS_FROM:
            return self.body, 0
        return zlib.compress(self.body, _ZLIB_LEVEL), _COMPRESSED | _ZLIB


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is. ``status`` is 0, or what the broker warns of: 10, 11 or 12, stored but not flushed or copied."""

    status: int
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that was pulled. ``topic`` is the one it was sent to, also when it is a retry; times are in ms."""

    topic: str
    body: bytes
    properties: dict[str, str]
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    reconsume_times: int

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The words it can be found by."""
        return [key for key in self.properties.get(names.KEYS, "").split(" ") if key]

    @classmethod
    def of_record(cls, record: MessageExt, queue: MessageQueue) -> "ReceivedMessage":
        """Make one of a pulled record. Raises IllegalMessageError when its body cannot be unpacked."""
        table = decode_properties(record.properties.decode("utf-8", "replace"))
        offset_msg_id = (record.store_host + record.physical_offset.to_bytes(8, "big")).hex().upper()
        return cls(
            topic=table.get(names.RETRY_TOPIC, record.topic),
            body=_unpack(record.body, record.sys_flag),
            properties=table,
            msg_id=table.get(names.UNIQ_KEY, offset_msg_id),
            offset_msg_id=offset_msg_id,
            queue=queue,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            flag=record.flag,
            born_timestamp=record.born_timestamp,
            store_timestamp=record.store_timestamp,
            born_host=host_text(record.born_host),
            reconsume_times=record.reconsume_times,
        )


def _unpack(body: bytes, sys_flag: int) -> bytes:
    if not sys_flag & _COMPRESSED:
        return body
    if sys_flag & _COMPRESSION_MASK not in (0, _ZLIB):
        raise IllegalMessageError(f"the body is compressed in a way that is not known here (sysFlag {sys_flag:#x})")
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise IllegalMessageError(f"the body cannot be unpacked: {error}") from error
