"""The ROCKETMQ form of a command's header.

Counterpart: `RocketMQSerializable` (Apache). ``code (2) | language (1) | version (2) | opaque (4) | flag (4) | remark
length (4) | remark | fields length (4) | fields``. A field is ``name length (2) | name | value length (4) | value``.
All integers are big-endian. Lengths that exceed the header are refused.
"""

from struct import Struct
from typing import TYPE_CHECKING

from rocketd.remoting.errors import MAX_FIELDS, FrameError, too_many_fields
from rocketd.remoting.wire.codes import LanguageCode

if TYPE_CHECKING:
    from rocketd.remoting.wire.command import RemotingCommand

_FIXED = Struct(">hBhiii")
_INT = Struct(">i")
_SHORT = Struct(">H")
_LANGUAGES = frozenset(map(int, LanguageCode))


def encode(command: "RemotingCommand") -> bytes:
    """Encode a command's header. Raises FrameError if code or version does not fit into two bytes."""
    if not 0 <= command.code <= 32767 or not 0 <= command.version <= 32767:
        raise FrameError(f"code {command.code} and version {command.version} must fit into 15 bits in a binary header")
    remark = command.remark.encode() if command.remark else b""
    pairs = bytearray()
    for name, value in (command.ext_fields or {}).items():
        key, text = name.encode(), value.encode()
        pairs += _SHORT.pack(len(key)) + key + _INT.pack(len(text)) + text
    return b"".join(
        (
            _FIXED.pack(command.code, command.language, command.version, command.opaque, command.flag, len(remark)),
            remark,
            _INT.pack(len(pairs)),
            pairs,
        )
    )


def decode_into(command: "RemotingCommand", header: bytes) -> None:
    """Fill a command from its header. Raises FrameError if a length does not fit."""
    end = len(header)
    if end < 21:
        raise FrameError(f"binary header of {end} bytes is too short, at least 21 are needed")
    code, language, version, opaque, flag, length = _FIXED.unpack_from(header)
    command.code = code
    command.language = language if language in _LANGUAGES else LanguageCode.OTHER
    command.version = version
    command.opaque = opaque
    command.flag = flag
    at = 17 + length
    if length < 0 or at + 4 > end:
        raise FrameError(f"remark of {length} bytes does not fit into a header of {end}")
    command.remark = header[17:at].decode() if length else None
    (length,) = _INT.unpack_from(header, at)
    at += 4
    if length < 0 or at + length > end:
        raise FrameError(f"fields of {length} bytes do not fit into a header of {end}")
    command.ext_fields = fields = _decode_pairs(header, at, at + length) if length else None
    if fields is not None and len(fields) > MAX_FIELDS:
        raise too_many_fields(len(fields))


def _decode_pairs(header: bytes, at: int, end: int) -> dict[str, str]:
    fields = {}
    while at < end:
        key_at = at + 2
        if key_at > end:
            raise FrameError("a field name's length is cut off")
        value_at = key_at + _SHORT.unpack_from(header, at)[0] + 4
        if value_at > end:
            raise FrameError("a field name extends beyond the header")
        (size,) = _INT.unpack_from(header, value_at - 4)
        at = value_at + size
        if size < 0 or at > end:
            raise FrameError("a field value extends beyond the header")
        if size:  # Apache 4.9.7 treats an empty value as absent
            fields[header[key_at : value_at - 4].decode()] = header[value_at:at].decode()
    return fields
