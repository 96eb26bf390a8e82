"""Codecs: conversion of bodies to values of the application, and back.

Apache's clients know only bytes.
"""

from typing import Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

T = TypeVar("T")


CONTENT_TYPE: Final = "content-type"
"""The property for the content type of a body. FastStream and CloudEvents' binding for Kafka have the same name."""


class Codec(Protocol[T]):
    """Converts values to bodies and back. Either method raises ValueError for an unsuitable argument.

    A codec may have an attribute ``content_types``, a tuple of media types. Sent messages get the first one in the property
    ``content-type``, and received messages with a type outside the tuple are refused.
    """

    def encode(self, value: T) -> bytes:
        """Return the body."""

    def decode(self, body: bytes) -> T:
        """Return the value."""


class _Bytes:
    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, body: bytes) -> bytes:
        return body


class _Text:
    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, body: bytes) -> str:
        return body.decode()


BYTES: Codec[bytes] = _Bytes()
"""Bodies unchanged."""

TEXT: Codec[str] = _Text()
"""Text in UTF-8."""


def content_type_of(codec: object) -> str | None:
    """Return the content type of sent messages; None if the codec names none."""
    types: tuple[str, ...] = getattr(codec, "content_types", ())
    return types[0] if types else None


def check_content_type(codec: object, found: str | None) -> None:
    """Raise ValueError if the content type of a received message is not one of the codec's. None suits every codec."""
    types: tuple[str, ...] = getattr(codec, "content_types", ())
    if not types or found is None:
        return
    media_type = found.partition(";")[0].strip().lower()
    if media_type not in types and not (media_type.endswith("+json") and "application/json" in types):
        raise ValueError(f"the body is {found}, the codec reads {types[0]}")


def readable(codec: Codec[T], value: T, body: bytes) -> bytes:
    """Return a body made by a codec. Raises ValueError if the codec itself cannot read it: a consumer could not, either."""
    try:
        codec.decode(body)
    except ValueError as error:
        raise ValueError(
            f"{type(value).__name__} does not suit this codec, which could not read it: {error}"
        ) from error
    return body


class JsonCodec(Generic[T]):
    """JSON of one type: a dataclass, msgspec.Struct, TypedDict or any type known to msgspec.

    Unsuitable values are refused: each body is read once before it is sent. Type checkers infer the type from a class. For
    a union or another type that is not a class, annotate it: ``codec: JsonCodec[int | str] = JsonCodec(int | str)``.
    """

    @overload
    def __init__(self, value_type: type[T]) -> None: ...
    @overload
    def __init__(self: "JsonCodec[Any]", value_type: object = Any) -> None: ...
    def __init__(self, value_type: Any = Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(value_type)

    def encode(self, value: T) -> bytes:
        """Return the JSON text. Raises ValueError for a value without a JSON form, or that ``decode`` would refuse."""
        try:
            body = self._encoder.encode(value)
        except (TypeError, msgspec.MsgspecError) as error:
            raise ValueError(f"no JSON can be made of {type(value).__name__}: {error}") from error
        return readable(self, value, body)

    def decode(self, body: bytes) -> T:
        """Return the value. Raises ValueError with the mismatch."""
        try:
            value: T = self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"the body is not the JSON that is expected: {error}") from error
        return value
