"""Bodies of messages as text, JSON and hexadecimal. Pure functions."""

import json
from typing import Final, Literal

Shape = Literal["text", "json", "hex"]

MAX_BYTES: Final = 64 * 1024
"""Bytes of a body that are shown as text or JSON."""
MAX_CHARACTERS: Final = 4 * MAX_BYTES
"""Characters of a body that are shown as JSON, with the blanks in front of its lines."""
MAX_HEX_BYTES: Final = 4096
PREVIEW: Final = 80
_LINE: Final = 16


def shape_of(body: bytes) -> Shape:
    """Return how a body is shown best."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex"
    if body[:1] in (b"{", b"[") and len(body) <= MAX_BYTES:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return "text"
        return "json"
    return "text" if all(c.isprintable() or c in "\n\r\t" for c in text) else "hex"


def shown(body: bytes, shape: Shape) -> str:
    """Return a body in a shape. A body that is too long for a page is cut; the last line says so."""
    if shape == "hex":
        return _hex(body[:MAX_HEX_BYTES]) + _rest(len(body) - MAX_HEX_BYTES)
    if shape == "json" and len(body) <= MAX_BYTES:
        try:
            return _indented(json.loads(body))
        except (ValueError, RecursionError) as error:
            return f"This is not JSON: {error}"
    return body[:MAX_BYTES].decode("utf-8", "replace").replace("\r\n", "\n") + _rest(len(body) - MAX_BYTES)


def preview(body: bytes, compressed: bool) -> str:
    """Return the beginning of a body on one line."""
    if compressed:
        return f"({len(body):,} compressed bytes)"
    if shape_of(body[: 4 * PREVIEW]) == "hex" and not _is_cut_text(body):
        return f"({len(body):,} binary bytes)"
    text = " ".join(body[: 4 * PREVIEW].decode("utf-8", "ignore").split())
    return text if len(text) <= PREVIEW else text[:PREVIEW] + "…"


def _indented(value: object) -> str:
    """Return JSON in lines. Deep values in many lines would become a thousand times as long as their body: they are cut."""
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part)
        size += len(part)
        if size > MAX_CHARACTERS:
            return "".join(parts)[:MAX_CHARACTERS] + "\n… the rest is not shown: it is too deep"
    return "".join(parts)


def _is_cut_text(body: bytes) -> bool:
    """Return whether a body is text whose beginning ends within a character."""
    begin = body[: 4 * PREVIEW]
    return len(body) > len(begin) and begin.decode("utf-8", "ignore").encode() in (begin[:-n] for n in (1, 2, 3))


def _rest(size: int) -> str:
    return f"\n… {size:,} more bytes are not shown" if size > 0 else ""


def _hex(data: bytes) -> str:
    lines = []
    for begin in range(0, len(data), _LINE):
        part = data[begin : begin + _LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{begin:06x}  {part.hex(' '):<{3 * _LINE}} {text}")
    return "\n".join(lines)
