"""Messages and batches encoded for the wire.

Counterpart: the preparation of a message in `DefaultMQProducerImpl`, and `MessageBatch` (Apache). Pure functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from twisted.logger import Logger

from rocketd.client.errors import IllegalMessageError, MessageTooLargeError
from rocketd.client.messages.codec import CONTENT_TYPE, Codec, content_type_of
from rocketd.client.messages.message import Message, T, check_is_message
from rocketd.client.messages.namespace import with_namespace
from rocketd.common import message_properties as props
from rocketd.common.message_properties import decode_properties
from rocketd.common.names import RETRY_PREFIX
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.protocol.batch import RECORD_OVERHEAD, batch_entry, batch_properties
from rocketd.protocol.compression import Compression, compress
from rocketd.protocol.message import EMPTY_BODY, property_text
from rocketd.remoting.wire.codes import RequestCode

_log = Logger()


class OutgoingMessage(msgspec.Struct):
    """The content of a send request. ``unique_keys`` has a key per message; ``topic`` has its namespace.

    ``body_size`` is the size of the body in bytes before compression.
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
    """Return a message's body.

    Raises IllegalMessageError for an invalid body, MessageTooLargeError above ``limit`` bytes.
    """
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
        raise IllegalMessageError(EMPTY_BODY)
    if len(body) > limit:
        raise MessageTooLargeError(
            f"the body has {len(body)} bytes, more than this producer's max_message_size of {limit}; the brokers have "
            "a separate limit, maxMessageSize"
        )
    return bytes(body)


def outgoing_message(
    message: Message[T],
    codec: Codec[T],
    unique_key: str,
    *,
    limit: int,
    compress_over: int,
    compression: Compression = "zlib",
    namespace: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
) -> OutgoingMessage:
    """Encode a checked message. ``more`` are properties set only by clients. Raises IllegalMessageError."""
    whole = encode_body(message, codec, limit)
    body, sys_flag = compress(whole, compression) if len(whole) >= compress_over else (whole, 0)
    code, topic = RequestCode.SEND_MESSAGE_V2, message.topic
    content_type = content_type_of(codec)
    if not namespace and not more and content_type is None and _is_plain(message):
        properties = (_STORED if message.wait_stored else _NOT_STORED) % unique_key
    else:
        table = _properties(message, unique_key, namespace, content_type, more)
        if props.TRAN_MSG in table:
            sys_flag |= TRANSACTION_PREPARED
        if table.get(props.MSG_TYPE) == "reply":
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        topic = with_namespace(namespace, topic)
        properties = property_text(table)
    return OutgoingMessage(
        code,
        topic,
        body,
        sys_flag,
        message.flag,
        properties,
        [unique_key],
        (message,),
        len(whole),
    )


_STORED, _NOT_STORED = (
    property_text({props.UNIQ_KEY: "%s", props.WAIT: wait_stored}) for wait_stored in ("true", "false")
)


def _is_plain(message: Message[T]) -> bool:
    """Return whether a message has only the properties that every message has."""
    return (
        not message.tags
        and not message.keys
        and not message.properties
        and not message.delay_level
        and message.deliver_at is None
        and message.deliver_after is None
    )


def with_properties(outgoing: OutgoingMessage, table: Mapping[str, str]) -> OutgoingMessage:
    """Return the message with these properties. If they cannot be sent, log it and return the message unchanged."""
    if table == decode_properties(outgoing.properties):
        return outgoing
    try:
        text = property_text(table)
        if decode_properties(text) != table:
            raise IllegalMessageError(f"{table!r} has a part that is empty, not a text, or separates properties")
    except (TypeError, ValueError) as error:  # the compiled core raises TypeError for a value other than text
        _log.warn("properties that hooks have changed cannot be sent: {error}", error=error)
        return outgoing
    return replace(outgoing, properties=text)


def _properties(
    message: Message[T], unique_key: str, namespace: str, content_type: str | None, more: Mapping[str, str]
) -> dict[str, str]:
    table = message.wire_properties(unique_key)
    if content_type is not None:
        table.setdefault(CONTENT_TYPE, content_type)
    if namespace:
        table[props.INSTANCE_ID] = namespace
    table.update(more)
    return table


def outgoing_batches(
    messages: Sequence[Message[T]],
    codec: Codec[T],
    unique_keys: Iterator[str],
    *,
    limit: int,
    namespace: str = "",
) -> Iterator[OutgoingMessage]:
    """Encode checked messages of one topic, as many per request as ``limit`` allows.

    Raises IllegalMessageError before the first request if they cannot be sent together.
    """
    check_batch(messages)
    topic = with_namespace(namespace, messages[0].topic)
    parts = [batch_part(message, codec, next(unique_keys), limit=limit, namespace=namespace) for message in messages]
    return _together(topic, parts, limit)


class BatchPart(NamedTuple):
    """A message encoded as a part of a batch."""

    unique_key: str
    entry: bytes
    message: Message[Any]
    body_size: int


def batch_part(message: Message[T], codec: Codec[T], unique_key: str, *, limit: int, namespace: str = "") -> BatchPart:
    """Encode a checked message as a part of a batch. Raises IllegalMessageError."""
    body = encode_body(message, codec, limit)
    properties = property_text(_properties(message, unique_key, namespace, content_type_of(codec), {})).encode()
    return BatchPart(unique_key, batch_entry(body, properties, message.flag), message, len(body))


def batch_of(topic: str, parts: Sequence[BatchPart]) -> OutgoingMessage:
    """Return a batch of at least one part. ``topic`` has its namespace."""
    keys = [part.unique_key for part in parts]
    messages = [part.message for part in parts]
    body = b"".join([part.entry for part in parts])
    properties = batch_properties(messages[0].wait_stored)
    return OutgoingMessage(RequestCode.SEND_BATCH_MESSAGE, topic, body, 0, 0, properties, keys, messages, len(body))


def _together(topic: str, parts: Sequence[BatchPart], limit: int) -> Iterator[OutgoingMessage]:
    overhead = RECORD_OVERHEAD + len(topic)
    together: list[BatchPart] = []
    size = 0
    for part in parts:
        stored = len(part.entry) + overhead
        if together and size + stored > limit:
            yield batch_of(topic, together)
            together, size = [], 0
        together.append(part)
        size += stored
    yield batch_of(topic, together)


def check_batch(messages: Sequence[Message[T]]) -> None:
    """Raise IllegalMessageError if messages cannot be sent together."""
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
