"""How ``rocketd consume`` prints a message: its body, fields in a template, or JSON."""

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Final

import click

from rocketd.client.messages.message import ReceivedMessage
from rocketd.common.command_line.output import escape_cell, escape_controls
from rocketd.common.message_properties import RESERVED
from rocketd.common.suggest import did_you_mean
from rocketd.tools.base.json_lines import json_text

_PROPERTY: Final = "properties."

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_ESCAPED: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "e": b"\x1b", "\\": b"\\"}


def _text(value: Callable[[ReceivedMessage[bytes]], object]) -> Callable[[ReceivedMessage[bytes]], bytes]:
    return lambda message: str(value(message)).encode()


FIELDS: Final[dict[str, Callable[[ReceivedMessage[bytes]], bytes]]] = {
    "topic": _text(lambda message: message.topic),
    "broker": _text(lambda message: message.queue.broker_name),
    "queue": _text(lambda message: message.queue.queue_id),
    "offset": _text(lambda message: message.queue_offset),
    "id": _text(lambda message: message.msg_id),
    "tags": _text(lambda message: message.tags or ""),
    "keys": _text(lambda message: " ".join(message.keys)),
    "properties": _text(lambda message: json_text(_own(message))),
    "born": _text(lambda message: time_text(message.born_timestamp)),
    "stored": _text(lambda message: time_text(message.store_timestamp)),
    "retries": _text(lambda message: message.reconsume_times),
    "size": _text(lambda message: len(message.body)),
    "body": lambda message: message.body,
    "body_base64": lambda message: base64.b64encode(message.body),
}
"""The fields of a template. ``properties.NAME`` is one property."""


def unescape(text: str) -> bytes:
    r"""Return a text with its escapes replaced: \n \t \r \0 \e \\ and \xHH. Raises BadParameter for any other."""

    def replaced(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) == 3:
            return bytes([int(code[1:], 16)]).decode("latin-1")
        if code not in _ESCAPED:
            raise click.BadParameter(rf"{text!r}: accepted escapes are \n \t \r \0 \e \\ and \xHH")
        return _ESCAPED[code].decode("latin-1")

    # Each byte is a character here, so that \xHH is a byte.
    whole = text.encode("utf-8", "surrogateescape").decode("latin-1")
    return _ESCAPE.sub(replaced, whole).encode("latin-1")


class Template:
    """A text with fields such as ``{tags}``. Raises BadParameter for an unknown field or escape."""

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | Callable[[ReceivedMessage[bytes]], bytes]] = []
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as error:
            raise click.BadParameter(f"{text!r}: {error}; write {{{{ for a brace") from None
        for literal, field, spec, conversion in parsed:
            self._parts.append(unescape(literal))
            if field is not None:
                whole = field + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
                self._parts.append(_field(whole))

    def render(self, message: ReceivedMessage[bytes], clean: Callable[[bytes], bytes]) -> bytes:
        """Return the text for a message. ``clean`` is applied to the values of its fields."""
        return b"".join(part if isinstance(part, bytes) else clean(part(message)) for part in self._parts)


def _field(name: str) -> Callable[[ReceivedMessage[bytes]], bytes]:
    if name.startswith(_PROPERTY) and name != _PROPERTY:
        key = name.removeprefix(_PROPERTY)
        return _text(lambda message: message.properties.get(key, ""))
    if name not in FIELDS:
        known = ", ".join((*FIELDS, "properties.NAME"))
        raise click.BadParameter(f"unknown field {{{name}}}{did_you_mean(name, FIELDS)}; fields are {known}")
    return FIELDS[name]


def json_line(message: ReceivedMessage[bytes]) -> bytes:
    """Return a message as one line of JSON."""
    return json_text(json_of(message)).encode()


def json_of(message: ReceivedMessage[bytes]) -> dict[str, Any]:
    """Return the object for a message. A body that is not UTF-8 is ``body_base64`` instead of ``body``."""
    line: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "id": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": _own(message),
        "system_properties": {name: value for name, value in message.properties.items() if name in RESERVED},
        "born": time_text(message.born_timestamp),
        "stored": time_text(message.store_timestamp),
        "retries": message.reconsume_times,
    }
    try:
        line["body"] = message.body.decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(message.body).decode()
    return line


def described(facts: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact that is known, then an empty line, then the body. ``facts`` are as those of `json_of`.

    The body is indented, so that it cannot pass for facts. A body in Base64 has a line before it that says so.
    """
    table = dict(facts)
    base64_body = table.pop("body_base64", None)
    body = table.pop("body", "") if base64_body is None else base64_body
    heading = [] if base64_body is None else ["body (Base64):"]
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value}"
        for name, value in table.items()
        if value not in (None, [], {})
    ]
    return [*map(escape_cell, lines), "", *heading, *("    " + line for line in escape_controls(body).split("\n"))]


def printable(data: bytes) -> bytes:
    r"""Return bytes that a terminal shows and does not obey. Bytes that are not UTF-8 become \xHH."""
    return escape_controls(data.decode("utf-8", "backslashreplace")).encode()


def _own(message: ReceivedMessage[bytes]) -> dict[str, str]:
    return {name: value for name, value in message.properties.items() if name not in RESERVED}


def time_text(milliseconds: int) -> str | int:
    """Return a time in UTC, or the milliseconds if no calendar has it."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return milliseconds
