"""One request or response.

Counterpart: `RemotingCommand` (Apache). A command holds its header fields as text (``ext_fields``), as on the wire.
Typed views of them are declared in ``headers``. The two header forms are encoded and decoded in ``header_json`` and
``header_binary``; this module chooses by serialize type.
"""

from collections.abc import Sequence
from itertools import count
from struct import Struct
from typing import Final

import msgspec

from rocketd.remoting.errors import JSON_ERRORS, FrameError
from rocketd.remoting.wire import header_binary, header_json
from rocketd.remoting.wire.codes import LanguageCode, ResponseCode, SerializeType, request_name
from rocketd.remoting.wire.frame import Frame
from rocketd.remoting.wire.versions import own_version

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

_PREFIX = Struct(">II")
_QUICK_LENGTH = 4096
"""Length in bytes of the longest response header decoded in the reactor thread."""
_FLAG_END = 13
"""Position after the flag in a binary header. The opaque is before the flag."""


class _Peeked(msgspec.Struct):
    flag: int
    opaque: int


_decode_peeked = msgspec.json.Decoder(_Peeked).decode
_count_requests = count().__next__


def next_opaque() -> int:
    """Return the next opaque, process-wide, on any thread. It wraps around after 2**31, because it is sent in 31 bits."""
    return _count_requests() & 0x7FFFFFFF


class RemotingCommand:
    """A request or a response with its body.

    - ``language`` is a LanguageCode; unknown ones read as OTHER.
    - ``ext_fields`` maps names to text, None without fields.
    - ``body`` is None without a body.
    - ``version`` defaults to that of this process (``versions.own_version``).
    - ``buffers`` are a body sent without a copy, for responses encoded here.

    Plain data without a lock.
    """

    __slots__ = (
        "body",
        "buffers",
        "code",
        "ext_fields",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialize_type",
        "version",
    )

    def __init__(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        remark: str | None = None,
        flag: int = 0,
        opaque: int | None = None,
        language: int = LanguageCode.PYTHON,
        version: int | None = None,
        serialize_type: int = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.language = language
        self.version = own_version() if version is None else version
        self.opaque = next_opaque() if opaque is None else opaque
        self.flag = flag
        self.remark = remark
        self.ext_fields = ext_fields
        self.body = body
        self.buffers: Sequence[memoryview] = ()
        self.serialize_type = serialize_type

    @classmethod
    def response(
        cls,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        buffers: Sequence[memoryview] = (),
    ) -> "RemotingCommand":
        """Return a response. ``answering`` sets opaque and serialize type when it is sent."""
        response = cls(code, ext_fields, body, remark=remark, flag=RESPONSE_FLAG, opaque=0)
        response.buffers = buffers
        return response

    def answering(self, request: "RemotingCommand") -> "RemotingCommand":
        """Address this response to a request: set its opaque and its header encoding."""
        self.opaque = request.opaque
        self.flag |= RESPONSE_FLAG
        self.serialize_type = request.serialize_type
        return self

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether the request needs no answer."""
        return bool(self.flag & ONEWAY_FLAG)

    def encode_header(self, body_length: int) -> bytes:
        """Encode everything except the body. The caller sends ``body_length`` bytes after it."""
        if self.serialize_type == SerializeType.JSON:
            header = header_json.encode(self)
        else:
            header = header_binary.encode(self)
        return _PREFIX.pack(4 + len(header) + body_length, self.serialize_type << 24 | len(header)) + header

    def encode(self) -> bytes:
        """Encode the whole frame."""
        return b"".join(self.encode_parts())

    def encode_parts(self) -> tuple[bytes | memoryview, ...]:
        """Encode the frame as header and body, without copying the body."""
        body = self.body
        if self.buffers:
            return self.encode_header(sum(map(len, self.buffers))), *self.buffers
        return (self.encode_header(len(body)), body) if body else (self.encode_header(0),)

    @classmethod
    def decode(cls, frame: Frame) -> "RemotingCommand":
        """Decode a frame. Raises FrameError if its header is invalid."""
        serialize_type, header, body = frame
        command = cls.__new__(cls)
        command.serialize_type = serialize_type
        command.body = body or None
        command.buffers = ()
        try:
            if serialize_type == SerializeType.JSON:
                header_json.decode_into(command, header)
            else:
                header_binary.decode_into(command, header)
        except FrameError as error:
            if error.is_answerable:
                command.ext_fields = None
                error.command = command
            raise
        except Exception as error:
            raise FrameError(f"header cannot be decoded: {error}") from error
        return command

    @classmethod
    def decode_response(cls, frame: Frame) -> "RemotingCommand | None":
        """Decode a frame if it is a response in the common form, which is cheap. Return None otherwise."""
        serialize_type, header, body = frame
        peeked = peek(frame)
        if peeked is None or not peeked[0] & RESPONSE_FLAG or len(header) > _QUICK_LENGTH:
            return None
        command = cls.__new__(cls)
        command.serialize_type = serialize_type
        command.body = body or None
        command.buffers = ()
        if serialize_type != SerializeType.JSON:
            return cls.decode(frame)
        return command if header_json.decode_strictly_into(command, header) else None

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        code = self.code if self.is_response else request_name(self.code)
        fields = "" if self.ext_fields is None else str(self.ext_fields)[:300]
        return (
            f"<{kind} {code} opaque={self.opaque} version={self.version} remark={self.remark!r:.200} "
            f"fields={fields} body={len(self.body or b'')} bytes>"
        )


def peek(frame: Frame) -> tuple[int, int] | None:
    """Return (flag, opaque) of a frame without decoding the rest, None if its header is not of the common form."""
    serialize_type, header, _ = frame
    if serialize_type == SerializeType.JSON:
        try:
            peeked = _decode_peeked(header)
        except JSON_ERRORS:
            return None
        return peeked.flag, peeked.opaque
    if len(header) < _FLAG_END:
        return None
    return int.from_bytes(header[_FLAG_END - 4 : _FLAG_END], "big", signed=True), int.from_bytes(
        header[_FLAG_END - 8 : _FLAG_END - 4], "big", signed=True
    )


def cannot_be_refused(frame: Frame) -> bool:
    """Return whether a frame must be kept instead of refused.

    A refusal of a one-way request would reach no caller. A header of an unusual form may only be decoded by a pool
    thread.
    """
    peeked = peek(frame)
    return peeked is None or peeked[0] & (ONEWAY_FLAG | RESPONSE_FLAG) == ONEWAY_FLAG
