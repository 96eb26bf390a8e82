"""Codecs for pydantic, msgspec, Avro and Protocol Buffers.

Messages sent with them have the content type in the property ``content-type``. A received message with another content type
is refused. Without the property, its body is decoded. A value that its codec could not read is not sent: to know that, each
body of pydantic and msgspec is read once before it is sent. The name of the property is that of FastStream, and of
CloudEvents' binding for Kafka. Each package is imported when its codec is made. A codec belongs to any thread.
"""

import struct
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeVar, overload

import msgspec

from rocketd.client.errors import IllegalOptionError
from rocketd.client.messages.codec import readable
from rocketd.client.settings.packages import need_package

__all__ = ["AvroCodec", "MsgspecCodec", "ProtobufCodec", "PydanticCodec"]

T = TypeVar("T")

_JSON: Final = ("application/json",)
_MSGPACK: Final = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
_AVRO: Final = ("application/avro", "avro/binary")
_PROTOBUF: Final = ("application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf")

_SHOWN_MISTAKES = 3
"""Number of mistakes in the text of an error."""


class MsgspecCodec(Generic[T]):
    """JSON or MessagePack of one type: a dataclass, msgspec.Struct, TypedDict or any type known to msgspec.

    ``form`` is ``json`` or ``msgpack``.
    """

    @overload
    def __init__(self, value_type: type[T], *, form: Literal["json", "msgpack"] = "json") -> None: ...
    @overload
    def __init__(
        self: "MsgspecCodec[Any]", value_type: object = Any, *, form: Literal["json", "msgpack"] = "json"
    ) -> None: ...
    def __init__(self, value_type: object = Any, *, form: Literal["json", "msgpack"] = "json") -> None:
        if form not in ("json", "msgpack"):
            raise IllegalOptionError(f"form={form!r}: accepted is 'json' or 'msgpack'")
        self._form = form
        self.content_types = _JSON if form == "json" else _MSGPACK
        coding: Any = msgspec.json if form == "json" else msgspec.msgpack
        self._encode = coding.Encoder().encode
        self._decode = coding.Decoder(value_type).decode

    def encode(self, value: T) -> bytes:
        """Return the body. Raises ValueError for a value without this form, and for one that ``decode`` would refuse."""
        try:
            body: bytes = self._encode(value)
        except (TypeError, msgspec.MsgspecError) as error:
            raise ValueError(f"no {self._form} can be made of {type(value).__name__}: {error}") from error
        return readable(self, value, body)

    def decode(self, body: bytes) -> T:
        """Return the value. Raises ValueError with the mismatch."""
        try:
            value: T = self._decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"the body is not the expected {self._form}: {error}") from error
        return value


class PydanticCodec(Generic[T]):
    """JSON of a pydantic model, or of any type known to pydantic. Fields have their aliases. It needs ``rocketd[pydantic]``.

    Values with fields of wrong types, such as those of a model built without validation, are not sent.
    """

    content_types = _JSON

    def __init__(self, value_type: type[T]) -> None:
        need_package("PydanticCodec", "pydantic", "pydantic")
        from pydantic import TypeAdapter, ValidationError
        from pydantic_core import PydanticSerializationError

        self._adapter = TypeAdapter(value_type)
        self._invalid, self._unserializable = ValidationError, PydanticSerializationError

    def encode(self, value: T) -> bytes:
        """Return the JSON text. Raises ValueError for a value that is not of this type, or that ``decode`` would refuse."""
        try:
            body = self._adapter.dump_json(value, by_alias=True, warnings="error")
        except self._unserializable as error:
            raise ValueError(f"no JSON can be made of {type(value).__name__}: {error}") from error
        return readable(self, value, body)

    def decode(self, body: bytes) -> T:
        """Return the value. Raises ValueError with the mismatches, without the values found."""
        try:
            return self._adapter.validate_json(body)
        except self._invalid as error:
            raise ValueError(f"the body does not suit: {_mistakes(error.errors(include_url=False))}") from error


def _mistakes(errors: Iterable[Any]) -> str:
    texts = [f"{'.'.join(map(str, error['loc'])) or 'body'}: {error['msg']}" for error in errors]
    more = f"; and {len(texts) - _SHOWN_MISTAKES} more" if len(texts) > _SHOWN_MISTAKES else ""
    return "; ".join(texts[:_SHOWN_MISTAKES]) + more


class AvroCodec:
    """Records of an Avro schema as dicts, in Avro's single-object encoding. It needs ``rocketd[avro]``.

    ``schema`` is the schema as a dict. Each body names the schema it was written with by a fingerprint. ``older`` are other
    schemas of received messages, which are read as this one by Avro's rules of resolution.
    """

    content_types = _AVRO

    def __init__(self, schema: dict[str, Any], *, older: Iterable[dict[str, Any]] = ()) -> None:
        need_package("AvroCodec", "fastavro", "avro")
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType, fingerprint, to_parsing_canonical_form
        from fastavro.validation import ValidationError

        self._fastavro: Any = fastavro
        self._invalid = ValidationError
        self._writers: dict[bytes, Any] = {}
        try:
            for each in (*older, schema):
                mark = fingerprint(to_parsing_canonical_form(each), "CRC-64-AVRO")
                parsed: Any = fastavro.parse_schema(each)
                self._mark = _SINGLE_OBJECT + bytes.fromhex(mark)
                self._writers[self._mark] = self._schema = parsed
        except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
            raise IllegalOptionError(f"the Avro schema is not one: {type(error).__name__}: {error}") from error

    def encode(self, value: object) -> bytes:
        """Return the body. Raises ValueError for a value that does not suit the schema."""
        target = BytesIO()
        target.write(self._mark)
        try:
            self._fastavro.validate(value, self._schema, raise_errors=True)  # the writer does not check ranges
            self._fastavro.schemaless_writer(target, self._schema, value, strict=True)
        except (self._invalid, ValueError, TypeError, KeyError, AttributeError, OverflowError, struct.error) as error:
            raise ValueError(f"the value does not suit the schema: {error}") from error
        return target.getvalue()

    def decode(self, body: bytes) -> dict[str, Any]:
        """Return the record. Raises ValueError for a body of another schema, and for one that ends too early."""
        mark, source = body[: len(self._mark)], BytesIO(body[len(self._mark) :])
        if not mark.startswith(_SINGLE_OBJECT) or len(mark) < len(self._mark):
            raise ValueError("the body is not in Avro's single-object encoding")
        writer = self._writers.get(mark)
        if writer is None:
            fingerprint = mark[len(_SINGLE_OBJECT) :].hex()
            raise ValueError(
                f"the body was written with an unknown schema of fingerprint {fingerprint}: give it in older="
            )
        try:
            record: dict[str, Any] = self._fastavro.schemaless_reader(source, writer, self._schema)
        except Exception as error:  # a hostile body raises errors of many classes, some of them in C
            raise ValueError(f"the body does not suit its schema: {type(error).__name__}: {error}") from error
        if source.read(1):
            raise ValueError("the body is longer than its schema says")
        return record


_SINGLE_OBJECT: Final = b"\xc3\x01"
"""Begin of a body. The fingerprint of the schema follows, 8 bytes in little-endian order."""


class ProtobufMessage(Protocol):
    """A message of Protocol Buffers, as protoc generates its class."""

    @classmethod
    def FromString(cls, s: bytes) -> Self:  # noqa: N802 - the name is protobuf's
        """Parse a message."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name is protobuf's
        """Return the bytes of a message."""


P = TypeVar("P", bound=ProtobufMessage)


class ProtobufCodec(Generic[P]):
    """Messages of one class generated by protoc. It needs ``rocketd[protobuf]``."""

    content_types = _PROTOBUF

    def __init__(self, message_type: type[P]) -> None:
        need_package("ProtobufCodec", "google.protobuf", "protobuf")
        from google.protobuf import message

        if not (isinstance(message_type, type) and issubclass(message_type, message.Message)):
            raise IllegalOptionError(f"{message_type!r}: accepted is a class that protoc has generated")
        self._type = message_type
        self._errors = (message.DecodeError, message.EncodeError)

    def encode(self, value: P) -> bytes:
        """Return the body. Raises ValueError for a value of another class, and for one without its required fields."""
        if not isinstance(value, self._type):
            raise ValueError(f"{type(value).__name__} is not a {self._type.__name__}")
        try:
            return value.SerializeToString()
        except self._errors as error:
            raise ValueError(f"{self._type.__name__} is incomplete: {error}") from error

    def decode(self, body: bytes) -> P:
        """Return the message. Raises ValueError for other bytes."""
        try:
            return self._type.FromString(body)
        except self._errors as error:
            raise ValueError(f"the body is not a {self._type.__name__}: {error}") from error
