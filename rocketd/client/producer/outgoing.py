"""A message, or a batch, made ready for the wire.

Answers to what DefaultMQProducerImpl does to a message before it is sent, and to MessageBatch. Pure functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace
from twisted.logger import Logger

from rocketd.client.codec import Codec
from rocketd.client.errors import IllegalMessageError, MessageTooLargeError
from rocketd.client.message import Message, T, check_is_message
from rocketd.client.namespace import with_namespace
from rocketd.client.wire_message import pack
from rocketd.common import properties as names
from rocketd.common.names import RETRY_PREFIX
from rocketd.common.properties import MAX_LENGTH, decode_properties, encode_properties
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.remoting.codes import RequestCode

_BATCH_HEAD = Struct(">iiiii")
_BATCH_PROPERTIES = Struct(">h")
_BATCH_ENTRY = _BATCH_HEAD.size + _BATCH_PROPERTIES.size

_RECORD_OVERHEAD = 150
"""Bytes of a stored record beside topic, body and properties; more than any has."""


_log = Logger()


class OutgoingMessage(msgspec.Struct):
    """What a request carries. ``unique_keys`` are those of all its messages, ``topic`` has its namespace.

    ``body_size`` is that of the body in bytes before it was compressed.
    """

    code: int
    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    unique_keys: list[str]
    messages: Sequence[Message[Any]]
    body_size: int


def encode_body(message: Message[T], codec: Codec[T], limit: int) -> bytes:
    """Return a message's body. Raises IllegalMessageError when it is none, MessageTooLargeError above ``limit`` bytes."""
    try:
        body = codec.encode(message.body)
    except (ValueError, TypeError, AttributeError) as error:
        raise IllegalMessageError(
            f"the body of type {type(message.body).__name__} cannot be encoded: {error}"
        ) from error
    if not isinstance(body, bytes | bytearray | memoryview):
        raise IllegalMessageError(
            f"the body is of type {type(body).__name__}: give bytes, or a codec where the producer is made"
        )
    if not body:
        raise IllegalMessageError("the body is empty, and the protocol has no messages without a body")
    if len(body) > limit:
        raise MessageTooLargeError(
            f"the body has {len(body)} bytes, more than this producer's max_message_size of {limit}; the brokers have a "
            "limit of their own, maxMessageSize"
        )
    return bytes(body)


def outgoing_message(
    message: Message[T],
    codec: Codec[T],
    unique_key: str,
    *,
    limit: int,
    compress_over: int,
    namespace: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
) -> OutgoingMessage:
    """Make a checked message ready. ``more`` are properties that only clients may set. Raises IllegalMessageError."""
    whole = encode_body(message, codec, limit)
    body, sys_flag = pack(whole, compress_over)
    table = _properties(message, unique_key, namespace, more)
    if names.TRAN_MSG in table:
        sys_flag |= TRANSACTION_PREPARED
    reply = table.get(names.MSG_TYPE) == "reply"
    return OutgoingMessage(
        RequestCode.SEND_REPLY_MESSAGE_V2 if reply else RequestCode.SEND_MESSAGE_V2,
        with_namespace(namespace, message.topic),
        body,
        sys_flag,
        message.flag,
        _text_of(table),
        [unique_key],
        (message,),
        len(whole),
    )


def with_properties(outgoing: OutgoingMessage, table: Mapping[str, str]) -> OutgoingMessage:
    """Return the message with these properties instead; as it is when they cannot be sent, which is logged."""
    if table == decode_properties(outgoing.properties):
        return outgoing
    try:
        text = _text_of(table)
        if decode_properties(text) != table:
            raise IllegalMessageError(f"{table!r} has what is empty, no text, or separates properties")
    except (TypeError, ValueError) as error:  # the compiled core says TypeError of what is no text
        _log.warn("properties that hooks have changed cannot be sent: {error}", error=error)
        return outgoing
    return replace(outgoing, properties=text)


def _properties(message: Message[T], unique_key: str, namespace: str, more: Mapping[str, str]) -> dict[str, str]:
    table = message.wire_properties(unique_key)
    if namespace:
        table[names.INSTANCE_ID] = namespace
    table.update(more)
    return table


def _text_of(table: Mapping[str, str]) -> str:
    text = encode_properties(table)
    size = len(text.encode())
    if size > MAX_LENGTH:
        raise IllegalMessageError(f"tags, keys and properties have {size} bytes together, more than {MAX_LENGTH}")
    return text


def outgoing_batches(
    messages: Sequence[Message[T]],
    codec: Codec[T],
    unique_keys: Iterator[str],
    *,
    limit: int,
    namespace: str = "",
) -> Iterator[OutgoingMessage]:
    """Make checked messages of one topic ready, as many together as ``limit`` allows.

    Raises IllegalMessageError when they cannot be sent together, before the first is given out.
    """
    check_batch(messages)
    topic = with_namespace(namespace, messages[0].topic)
    entries = []
    for message in messages:
        key = next(unique_keys)
        body = encode_body(message, codec, limit)
        properties = _text_of(_properties(message, key, namespace, {})).encode()
        head = _BATCH_HEAD.pack(_BATCH_ENTRY + len(body) + len(properties), 0, 0, message.flag, len(body))
        entry = b"".join((head, body, _BATCH_PROPERTIES.pack(len(properties)), properties))
        entries.append((key, entry, message))
    return _together(topic, "true" if messages[0].wait_stored else "false", entries, limit)


def _together(
    topic: str, wait_stored: str, entries: Sequence[tuple[str, bytes, Message[Any]]], limit: int
) -> Iterator[OutgoingMessage]:
    properties = encode_properties({names.WAIT: wait_stored})
    overhead = _RECORD_OVERHEAD + len(topic)

    def batch() -> OutgoingMessage:
        keys, parts, messages = map(list, zip(*together, strict=True))
        body = b"".join(parts)
        return OutgoingMessage(RequestCode.SEND_BATCH_MESSAGE, topic, body, 0, 0, properties, keys, messages, len(body))

    together: list[tuple[str, bytes, Message[Any]]] = []
    size = 0
    for one in entries:
        stored = len(one[1]) + overhead
        if together and size + stored > limit:
            yield batch()
            together, size = [], 0
        together.append(one)
        size += stored
    yield batch()


def check_batch(messages: Sequence[Message[T]]) -> None:
    """Raise IllegalMessageError when messages cannot be sent together."""
    if not messages:
        raise IllegalMessageError("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        check_is_message(message)
        message.check()
        if message.topic != first.topic:
            raise IllegalMessageError(f"a batch has one topic, this one has {first.topic} and {message.topic}")
        if message.wait_stored != first.wait_stored:
            raise IllegalMessageError("all messages of a batch have the same wait_stored")
        if message.delay_level or message.deliver_at is not None or message.deliver_after is not None:
            raise IllegalMessageError("messages of a batch cannot be delayed: send them one by one")
    if first.topic.startswith(RETRY_PREFIX):
        raise IllegalMessageError("a batch cannot go to a retry topic")
