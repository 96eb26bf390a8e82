"""Java's .properties syntax: read, write, and edit in place.

Counterpart: `java.util.Properties.load` and `MixAll.string2Properties` (Apache): the same lines give the same pairs.
Bytes are read as UTF-8, or as Latin-1 if they are not valid UTF-8. Java 8 reads only Latin-1, so an old file may be
either. No I/O.
"""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

BLANK = " \t\f"
SHORT_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One pair as read. `line` (from 1) is the start of its logical line, `lines` the number of lines it spans."""

    key: str
    value: str
    line: int
    lines: int


def decode(raw: bytes) -> str:
    """Decode the bytes of a file: UTF-8 with or without a mark, else Latin-1.

    Raises ValueError for NUL bytes: the file is UTF-16 or not text, and Latin-1 would accept it.
    """
    if b"\0" in raw:
        kind = "UTF-16" if raw[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "UTF-16 or not a text"
        raise ValueError(f"it has NUL bytes and so is {kind}: accepted is UTF-8 (or Latin-1)")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def parse(text: str) -> list[Entry]:
    """Parse all pairs in order, including repeated keys (the last one counts).

    Raises ValueError for a malformed unicode escape, the only possible syntax error. Its text begins with `line N: `.
    """
    return list(_entries(_natural_lines(text)))


def edit(text: str, changes: Mapping[str, str]) -> str:
    """Set the given keys in a file's text, and keep every other line, comments and order.

    The last occurrence of a key is replaced, because it counts. New keys are added at the end.
    """
    lines = _natural_lines(text)
    entries = list(_entries(lines))
    end = entries[-1].line - 1 + entries[-1].lines if entries else 0
    if end == len(lines) and _continues(lines[-1]):
        # The file ends in the middle of a continued line. It must not continue into the added lines.
        lines.append("")
    elif end < len(lines) and not lines[-1]:
        # The text after the final line end is not a line.
        lines.pop()
    last = {entry.key: entry for entry in entries}
    for key in sorted(changes.keys() & last.keys(), key=lambda key: last[key].line, reverse=True):
        entry = last[key]
        lines[entry.line - 1 : entry.line - 1 + entry.lines] = [format_pair(key, changes[key])]
    lines += [format_pair(key, value) for key, value in changes.items() if key not in last]
    return "".join(line + "\n" for line in lines)


def format_pair(key: str, value: str) -> str:
    """Return one line, without its end, that reads back as the same pair."""
    escaped_key = re.sub(r"([\\ \t\f=:#!])", r"\\\1", key)
    return f"{_escape_controls(escaped_key)}={_escape_controls(_escape_value(value))}"


def _escape_value(value: str) -> str:
    escaped = value.replace("\\", "\\\\")
    # Only a blank at the start would be taken for part of the separator.
    return "\\" + escaped if escaped[:1] and escaped[0] in BLANK else escaped


def _escape_controls(text: str) -> str:
    """Escape characters that end the line. A tab or form feed after its backslash reads back unchanged."""
    return text.replace("\n", "\\n").replace("\r", "\\r")


def _natural_lines(text: str) -> list[str]:
    return re.split(r"\r\n|\n|\r", text)


def _entries(lines: list[str]) -> Iterator[Entry]:
    number = 0
    while number < len(lines):
        first = number
        logical = lines[number].lstrip(BLANK)
        number += 1
        if not logical or logical[0] in "#!":
            continue
        while _continues(logical) and number < len(lines) and logical != "\\":
            logical = logical[:-1] + lines[number].lstrip(BLANK)
            number += 1
        if logical == "\\":
            # Only the continuation mark: the next line starts afresh, comments included.
            continue
        if _continues(logical):
            logical = logical[:-1]
        try:
            key, value = _split(logical)
        except ValueError as error:
            raise ValueError(f"line {first + 1}: {error}") from None
        yield Entry(key, value, first + 1, number - first)


def _continues(line: str) -> bool:
    """Return whether a line ends with an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Split a logical line at the first separator: `=` or `:` with blanks around it, or blanks alone."""
    at = 0
    while at < len(line) and line[at] not in "=:" + BLANK:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANK)
    return _unescape(key), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = re.sub(r"\\(u.{0,4}|.|$)", _unescaped, text, flags=re.DOTALL)
    # Two escapes may form one character outside the basic plane.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(match: re.Match[str]) -> str:
    escape: str = match[1]
    if escape[:1] != "u":
        return SHORT_ESCAPES.get(escape, escape)
    if not re.fullmatch(r"u[0-9a-fA-F]{4}", escape):
        raise ValueError(f"malformed \\uXXXX escape: \\{escape}")
    return chr(int(escape[1:], 16))
