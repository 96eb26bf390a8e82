"""The JSON form of a command's header.

Counterpart: `RemotingSerializable` as used by `RemotingCommand` (Apache). The encoder writes exactly like FastJSON:
compact, members sorted by name, null members left out. The decoder is strict first. Quoted numbers, enum ordinals and
bare extension values, as sent by C++ and Node clients, go to the lenient decoder.
"""

import re
from typing import TYPE_CHECKING, Any

import msgspec

from rocketd.remoting.errors import JSON_ERRORS, MAX_FIELDS, FrameError, too_many_fields
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.wire.codes import LanguageCode

if TYPE_CHECKING:
    from rocketd.remoting.wire.command import RemotingCommand


class _Header(msgspec.Struct, rename="camel"):
    code: int
    opaque: int
    flag: int
    version: int
    language: str
    remark: str | None = None
    ext_fields: dict[str, str] | None = None


_decode_strict = msgspec.json.Decoder(_Header).decode
_decode_untyped = msgspec.json.Decoder().decode
_encode_text = msgspec.json.Encoder().encode
LENIENT_LIMIT = 16 * 1024
"""Longest header in bytes read in Java's dialect of JSON. That takes half a second per megabyte.

Invalid UTF-8 and raw control characters, which some clients send, are read in headers of any size.
"""

_CONTROLS = [number for number in range(32) if chr(number) not in "\t\n\f\r"]
"""Control characters without a meaning between the tokens of JSON."""
_find_numbers = re.compile(rb"""['"]?\b(code|opaque|flag)['"]?\s*:\s*['"]?(-?\d{1,9})\b""").findall

LANGUAGES = {language.name: int(language) for language in LanguageCode}
_NAMES = {number: name for name, number in LANGUAGES.items()}


def decode_into(command: "RemotingCommand", header: bytes) -> None:
    """Fill a command from its header. Raises FrameError if the header is not a JSON object with the known members."""
    if not decode_strictly_into(command, header):
        _decode_leniently(command, header)


def decode_strictly_into(command: "RemotingCommand", header: bytes) -> bool:
    """Fill a command from a header of the common form. Return whether it has that form."""
    try:
        read = _decode_strict(header)
    except JSON_ERRORS:
        return False
    command.code = read.code
    command.opaque = read.opaque
    command.flag = read.flag
    command.version = read.version
    command.language = LANGUAGES.get(read.language, LanguageCode.OTHER)
    command.remark = read.remark
    command.ext_fields = fields = read.ext_fields
    if fields is not None and len(fields) > MAX_FIELDS:
        raise too_many_fields(len(fields))
    return True


def _decode_leniently(command: "RemotingCommand", header: bytes) -> None:
    try:
        members = _decode_untyped(header)
    except JSON_ERRORS:
        members = _decode_long(command, header) if len(header) > LENIENT_LIMIT else _decode_dialect(header)
    if not isinstance(members, dict):
        raise FrameError("header is not a JSON object")
    command.code = _number(members, "code")
    command.opaque = _number(members, "opaque")
    command.flag = _number(members, "flag")
    command.version = _number(members, "version")
    command.language = _language(members.get("language"))
    remark = members.get("remark")
    command.remark = None if remark is None else fastjson.as_text(remark)
    fields = members.get("extFields")
    if fields is not None and not isinstance(fields, dict):
        raise FrameError("extFields is not a JSON object")
    if fields is not None and len(fields) > MAX_FIELDS:
        raise too_many_fields(len(fields))
    command.ext_fields = fields and {
        fastjson.as_text(name): fastjson.as_text(value) for name, value in fields.items() if value is not None
    }


def _decode_dialect(header: bytes) -> object:
    try:
        return fastjson.loads(header)
    except fastjson.FastJSONError as error:
        raise FrameError(f"header is not JSON: {error}") from error


def _decode_long(command: "RemotingCommand", header: bytes) -> object:
    """Decode a long header after its characters have been repaired. Raises FrameError for other deviations from JSON."""
    repaired = header.decode("utf-8", "replace").encode()
    for number in _CONTROLS:
        repaired = repaired.replace(bytes([number]), b"\\u%04x" % number)
    try:
        return _decode_untyped(repaired)
    except JSON_ERRORS as error:
        is_answerable = _find_numbers_of(command, header)
        raise FrameError(
            f"header of {len(header)} bytes is not JSON: {error}. Java's dialect is read up to {LENIENT_LIMIT} bytes",
            "headers in Java's dialect too long" if is_answerable else "",
            is_answerable,
        ) from error


def _find_numbers_of(command: "RemotingCommand", header: bytes) -> bool:
    """Set the numbers needed for an answer. Return whether the header shows them."""
    found = {name: int(value) for name, value in _find_numbers(header)}  # opaque and flag come after the fields
    if not {b"code", b"opaque", b"flag"} <= found.keys():
        return False
    command.code, command.opaque, command.flag = found[b"code"], found[b"opaque"], found[b"flag"]
    command.version, command.language, command.remark, command.ext_fields = 0, LanguageCode.OTHER, None, None
    return True


def _number(members: dict[Any, Any], name: str) -> int:
    value = members.get(name, 0)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise FrameError(f"{name} is not a number: {value!r:.100}") from None


def _language(value: object) -> int:
    if isinstance(value, str):
        return LANGUAGES.get(value.upper(), LanguageCode.OTHER)
    return value if isinstance(value, int) and value in _NAMES else LanguageCode.OTHER


def encode(command: "RemotingCommand") -> bytes:
    """Encode a command's header like Apache's FastJSON."""
    remark = b"" if command.remark is None else b'"remark":%b,' % _encode_text(command.remark)
    fields = b"" if command.ext_fields is None else b'"extFields":%b,' % _encode_text(command.ext_fields)
    return b'{"code":%d,%b"flag":%d,"language":"%b","opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        fields,
        command.flag,
        _NAMES[command.language].encode(),
        command.opaque,
        remark,
        command.version,
    )
