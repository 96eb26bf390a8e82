"""One request or response.

Answers to Apache's RemotingCommand. A command carries its header fields as text (``ext_fields``), as they travel; typed
views of them are declared in ``headers``. Encoding and decoding of the two header forms is in ``header_json`` and
``header_binary``; this module picks by serialize type.
"""

from collections.abc import Sequence
from itertools import count
from struct import Struct
from typing import Final

import msgspec

from rocketd.remoting import header_binary, header_json
from rocketd.remoting.codes import CURRENT_VERSION, LanguageCode, ResponseCode, SerializeType, request_name
from rocketd.remoting.errors import JSON_ERRORS, FrameError
from rocketd.remoting.frame import Frame

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

_PREFIX = Struct(">II")


class _Flag(msgspec.Struct):
    flag: int


_decode_flag = msgspec.json.Decoder(_Flag).decode
_count_requests = count().__next__


def next_opaque() -> int:
    """Number a request, process-wide, from any thread; after 2**31 it begins anew, as it travels in 31 bits."""
    return _count_requests() & 0x7FFFFFFF


class RemotingCommand:
    """A request or a response with its body.

    ``language`` is a LanguageCode (unknown ones read as OTHER); ``ext_fields`` maps names to text, None when there are
    none; ``body`` is None when there is none. ``buffers`` are a body that is sent without being copied, in a response that
    is encoded here. Plain data: it belongs to whoever holds it.
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
        version: int = CURRENT_VERSION,
        serialize_type: int = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.language = language
        self.version = version
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
        """Make a response; opaque and serialize type are set by ``answering`` when it is sent."""
        response = cls(code, ext_fields, body, remark=remark, flag=RESPONSE_FLAG, opaque=0)
        response.buffers = buffers
        return response

    def answering(self, request: "RemotingCommand") -> "RemotingCommand":
        """Address this response to a request: its opaque, and its header encoding."""
        self.opaque = request.opaque
        self.flag |= RESPONSE_FLAG
        self.serialize_type = request.serialize_type
        return self

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether no answer is wanted."""
        return bool(self.flag & ONEWAY_FLAG)

    def encode_header(self, body_length: int) -> bytes:
        """Encode all but the body: the caller sends ``body_length`` bytes after it."""
        if self.serialize_type == SerializeType.JSON:
            header = header_json.encode(self)
        else:
            header = header_binary.encode(self)
        return _PREFIX.pack(4 + len(header) + body_length, self.serialize_type << 24 | len(header)) + header

    def encode(self) -> bytes:
        """Encode the whole frame."""
        return b"".join(self.encode_parts())

    def encode_parts(self) -> tuple[bytes | memoryview, ...]:
        """Encode the frame as header and body; the body is not copied."""
        body = self.body
        if self.buffers:
            return self.encode_header(sum(map(len, self.buffers))), *self.buffers
        return (self.encode_header(len(body)), body) if body else (self.encode_header(0),)

    @classmethod
    def decode(cls, frame: Frame) -> "RemotingCommand":
        """Decode a frame. Raises FrameError when its header is not one."""
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
        except FrameError:
            raise
        except Exception as error:
            raise FrameError(f"header cannot be decoded: {error}") from error
        return command

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        code = self.code if self.is_response else request_name(self.code)
        fields = "" if self.ext_fields is None else str(self.ext_fields)[:300]
        return (
            f"<{kind} {code} opaque={self.opaque} version={self.version} remark={self.remark!r:.200} "
            f"fields={fields} body={len(self.body or b'')} bytes>"
        )


def is_oneway_frame(frame: Frame) -> bool:
    """Whether a frame is a request that wants no answer; False for a frame that cannot be decoded."""
    serialize_type, header, _ = frame
    try:
        if serialize_type == SerializeType.JSON:
            flag = _decode_flag(header).flag
        else:
            flag = RemotingCommand.decode(frame).flag
    except JSON_ERRORS:
        try:
            flag = RemotingCommand.decode(frame).flag
        except FrameError:
            return False
    except FrameError:
        return False
    return flag & (ONEWAY_FLAG | RESPONSE_FLAG) == ONEWAY_FLAG
