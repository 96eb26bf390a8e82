"""How bodies become values of the application, and back.

No counterpart in Apache, whose clients know bytes only.
"""

from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec

T = TypeVar("T")


class Codec(Protocol[T]):
    """Turns values into bodies and back; either raises ValueError for what it cannot turn."""

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
"""Bodies as they are."""

TEXT: Codec[str] = _Text()
"""Text in UTF-8."""


class JsonCodec(Generic[T]):
    """JSON of one type: a dataclass, msgspec.Struct, TypedDict or any type that msgspec knows.

    What does not fit is refused. Type checkers find out of which class values are; a union, or what else is no class, is
    named: ``codec: JsonCodec[int | str] = JsonCodec(int | str)``.
    """

    @overload
    def __init__(self, value_type: type[T]) -> None: ...
    @overload
    def __init__(self: "JsonCodec[Any]", value_type: Any = Any) -> None: ...
    def __init__(self, value_type: Any = Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(value_type)

    def encode(self, value: T) -> bytes:
        """Return the JSON text. Raises ValueError for a value that JSON has no form for."""
        try:
            return self._encoder.encode(value)
        except (TypeError, msgspec.MsgspecError) as error:
            raise ValueError(f"no JSON can be made of {type(value).__name__}: {error}") from error

    def decode(self, body: bytes) -> T:
        """Return the value. Raises ValueError that says what does not fit."""
        try:
            value: T = self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the body is not the JSON that is expected: {error}") from error
        return value
