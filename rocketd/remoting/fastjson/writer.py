"""Writes JSON like Apache's FastJSON.

Counterpart: the serializer of com.alibaba.fastjson with the features of `RemotingSerializable` (Apache). Members of
beans are sorted by their wire names, null members are left out, enums are written by name, integer and object keys of
maps without quotes. The order of map entries is undefined, as in Java.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from json.encoder import encode_basestring, encode_basestring_ascii
from math import isfinite
from re import Match
from re import compile as compile_pattern
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import (
    BoolType,
    DictType,
    EnumType,
    FloatType,
    IntType,
    ListType,
    SetType,
    StrType,
    StructType,
    Type,
    VarTupleType,
    type_info,
)
from msgspec.structs import fields as struct_fields

T = TypeVar("T")

_encode_plain = msgspec.json.Encoder(order="sorted").encode
_beyond_ascii = compile_pattern(r"[^\x00-\x7f]")


def as_text(value: object) -> str:
    """Return a value as text: ``true``, ``1.0``, ``null``. Text is unchanged, objects become JSON."""
    if isinstance(value, str):
        return str(value)
    if type(value) is int:
        return str(value)
    return "".join(_Writer(standard=False).pieces(value))


def dumps(value: Any, *, standard: bool = False) -> bytes:
    """Return compact JSON.

    ``standard`` gives JSON for any parser, like Apache's answers to route requests of new clients: all keys are quoted
    (an object as a key becomes a string of its JSON), and all characters are ASCII.
    """
    type_: Any = type(value)
    if _is_plain(type_):
        data = _encode_plain(value)
        return data if not standard or data.isascii() else _escape_beyond_ascii(data)
    return "".join(_Writer(standard=standard).pieces(value)).encode("utf-8", "replace")


class KeptTexts:
    """Texts of a table's entries, kept between writes, so a write costs only the changes.

    For tables whose entries are replaced, never changed. One thread at a time.
    """

    def __init__(self) -> None:
        self._texts: dict[str, tuple[object, str]] = {}
        self.written = 0
        """Number of entries written, without those whose text was kept."""

    def texts(self, table: Mapping[str, T], write: Callable[[str, T], str]) -> list[str]:
        """Return the text of each entry. ``write`` makes it if the entry is another object than last time."""
        known, self._texts = self._texts, {}
        for name, entry in table.items():
            kept = known.get(name)
            if kept is None or kept[0] is not entry:
                kept = entry, write(name, entry)
                self.written += 1
            self._texts[name] = kept
        return [text for _, text in self._texts.values()]


def dumps_pretty(value: object, kept: KeptTexts | None = None) -> bytes:
    """Return the form of Apache's config files: one member per line, one tab per level, no blank after the colon.

    Maps with integer or object keys stay on one line up to their closing brace, like FastJSON's. With ``kept``, the
    value is a bean with one table, and only its new entries are written again.
    """
    return "".join(_Writer(standard=False, pretty=True, kept=kept).pieces(value)).encode("utf-8", "replace")


def _escape_beyond_ascii(data: bytes) -> bytes:
    return _beyond_ascii.sub(_unicode_escape, data.decode()).encode()


def _unicode_escape(match: Match[str]) -> str:
    return encode_basestring_ascii(match[0])[1:-1]


@cache
def _is_plain(type_: Any) -> bool:
    """Return whether the fast encoder writes values of this type exactly as required."""
    return issubclass(type_, msgspec.Struct) and _all_plain(type_info(type_))


def _all_plain(info: Type) -> bool:
    match info:
        case StructType(fields=fields):
            return all(_all_plain(field.type) for field in fields)
        case ListType(item_type=item) | SetType(item_type=item) | VarTupleType(item_type=item):
            return _all_plain(item)
        case DictType(key_type=key, value_type=item):
            return isinstance(key, StrType) and _all_plain(item)
        case EnumType(cls=cls):
            return all(member.value == member.name for member in cls)
    return isinstance(info, (StrType, IntType, BoolType, FloatType))


@cache
def _members(type_: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return (wire name, attribute name) of a bean's members in the order of writing."""
    return tuple(sorted((field.encode_name, field.name) for field in struct_fields(type_)))


class _Writer:
    """One text being written. ``pieces`` appends to one list and returns it."""

    __slots__ = ("_depth", "_kept", "_out", "_pretty", "_quote", "_standard")

    def __init__(self, *, standard: bool, pretty: bool = False, kept: KeptTexts | None = None) -> None:
        self._kept = kept
        self._out: list[str] = []
        self._standard = standard
        self._quote: Callable[[str], str] = encode_basestring_ascii if standard else encode_basestring
        self._pretty = pretty
        self._depth = 0

    def pieces(self, value: object) -> list[str]:
        self._write(value)
        return self._out

    def _write(self, value: object) -> None:
        put = self._out.append
        if isinstance(value, Enum):
            put(self._quote(value.name))
        elif isinstance(value, str):
            put(self._quote(value))
        elif value is None:
            put("null")
        elif isinstance(value, bool):
            put("true" if value else "false")
        elif isinstance(value, int):
            put(str(value))
        elif isinstance(value, float):
            put(repr(value) if isfinite(value) else "null")
        elif isinstance(value, msgspec.Struct):
            self._write_struct(value)
        elif isinstance(value, dict):
            self._write_dict(value)
        elif isinstance(value, tuple):
            self._write_array(value)
        elif isinstance(value, list | set | frozenset):
            self._write_list(value)
        else:
            raise TypeError(f"{type(value).__name__} has no JSON form")

    def _line(self) -> None:
        if self._pretty:
            self._out.append("\n" + "\t" * self._depth)

    def _write_struct(self, value: msgspec.Struct) -> None:
        type_: Any = type(value)
        if not self._pretty and _is_plain(type_):
            data = _encode_plain(value)
            self._out.append((_escape_beyond_ascii(data) if self._standard else data).decode())
            return
        self._write_members(
            (name, member) for name, attribute in _members(type_) if (member := getattr(value, attribute)) is not None
        )

    def _write_members(self, members: Iterable[tuple[str, Any]]) -> None:
        put = self._out.append
        put("{")
        self._depth += 1
        comma = ""
        for name, member in members:
            put(comma)
            self._line()
            put(self._quote(name) + ":")
            self._write(member)
            comma = ","
        self._depth -= 1
        if comma:
            self._line()
        put("}")

    def _write_dict(self, value: dict[Any, Any]) -> None:
        entries = ((key, member) for key, member in value.items() if member is not None)
        if self._kept is not None and self._depth == 1 and value:
            self._write_kept(value, self._kept)
        elif all(isinstance(key, str) for key in value):
            self._write_members(entries)
        elif self._standard:
            self._write_members(
                (as_text(dict(key) if isinstance(key, tuple) else key), member) for key, member in entries
            )
        else:
            self._write_bare(entries)

    def _write_kept(self, table: dict[str, Any], kept: KeptTexts) -> None:
        self._depth += 1
        texts = kept.texts(table, self._entry)
        self._depth -= 1
        self._out += ["{", ",".join(texts)]
        self._line()
        self._out.append("}")

    def _entry(self, name: str, entry: object) -> str:
        out, self._out = self._out, []
        self._line()
        self._out.append(self._quote(name) + ":")
        self._write(entry)
        text, self._out = "".join(self._out), out
        return text

    def _write_bare(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Write a map without string keys. FastJSON does not break the line before such an entry."""
        put = self._out.append
        put("{")
        self._depth += 1
        comma = ""
        for key, member in entries:
            if type(key) is int and type(member) is int:  # offset tables have many of these
                put(f"{comma}{key}:{member}")
                comma = ","
                continue
            put(comma)
            self._write(dict(key) if isinstance(key, tuple) else key)
            put(":")
            self._write(member)
            comma = ","
        self._depth -= 1
        if comma:
            self._line()
        put("}")

    def _write_array(self, value: tuple[Any, ...]) -> None:
        """Write an array in the sense of Java, not a collection. FastJSON does not break lines within it."""
        put = self._out.append
        comma = "["
        for item in value:
            put(comma)
            self._write(item)
            comma = ","
        put("]" if value else "[]")

    def _write_list(self, value: Iterable[Any]) -> None:
        put = self._out.append
        put("[")
        self._depth += 1
        comma = ""
        for item in sorted(value) if isinstance(value, set | frozenset) else value:
            put(comma)
            self._line()
            self._write(item)
            comma = ","
        self._depth -= 1
        if comma:
            self._line()
        put("]")
