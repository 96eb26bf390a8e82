"""Writes JSON as Apache's FastJSON does.

Answers to com.alibaba.fastjson's serializer with the features Apache's RemotingSerializable uses: members of beans in
order of their wire names, null members left out, enums by name, integer and object keys of maps bare. The entries of maps
come in no promised order, as in Java.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from json.encoder import encode_basestring, encode_basestring_ascii
from math import isfinite
from re import Match
from re import compile as compile_pattern
from typing import Any

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

_encode_plain = msgspec.json.Encoder(order="sorted").encode
_beyond_ascii = compile_pattern(r"[^\x00-\x7f]")


def as_text(value: object) -> str:
    """Write a bare value where text is wanted: ``true``, ``1.0``, ``null``; text as it is, objects as their JSON."""
    if isinstance(value, str):
        return str(value)
    if type(value) is int:
        return str(value)
    return "".join(_Writer(standard=False).pieces(value))


def dumps(value: Any, *, standard: bool = False) -> bytes:
    """Write compact JSON.

    ``standard`` makes it JSON that any parser reads, as Apache answers route requests of new clients: all keys quoted (an
    object as a key becomes a string that holds its JSON), and nothing beyond ASCII.
    """
    type_: Any = type(value)
    if _is_plain(type_):
        data = _encode_plain(value)
        return data if not standard or data.isascii() else _escape_beyond_ascii(data)
    return "".join(_Writer(standard=standard).pieces(value)).encode("utf-8", "replace")


def dumps_pretty(value: object) -> bytes:
    """Write the form of Apache's config files: a member a line, a tab a level, no blank after the colon.

    Maps with integer or object keys stay on one line up to their closing brace, as FastJSON leaves them.
    """
    return "".join(_Writer(standard=False, pretty=True).pieces(value)).encode("utf-8", "replace")


def _escape_beyond_ascii(data: bytes) -> bytes:
    return _beyond_ascii.sub(_unicode_escape, data.decode()).encode()


def _unicode_escape(match: Match[str]) -> str:
    return encode_basestring_ascii(match[0])[1:-1]


@cache
def _is_plain(type_: Any) -> bool:
    """Whether the fast encoder writes values of this type exactly as wanted."""
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
    """List (wire name, attribute name) of a bean in the order they are written."""
    return tuple(sorted((field.encode_name, field.name) for field in struct_fields(type_)))


class _Writer:
    """One text being written. ``pieces`` appends to one list and returns it."""

    __slots__ = ("_depth", "_out", "_pretty", "_quote", "_standard")

    def __init__(self, *, standard: bool, pretty: bool = False) -> None:
        self._out: list[str] = []
        self._standard = standard
        self._quote: Callable[[str], str] = encode_basestring_ascii if standard else encode_basestring
        self._pretty = pretty
        self._depth = 0

    def pieces(self, value: object) -> list[str]:
        self._write(value)
        return self._out

    def _write(self, value: Any) -> None:
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
        if all(isinstance(key, str) for key in value):
            self._write_members(entries)
        elif self._standard:
            self._write_members(
                (as_text(dict(key) if isinstance(key, tuple) else key), member) for key, member in entries
            )
        else:
            self._write_bare(entries)

    def _write_bare(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Write a map whose keys are no strings: FastJSON breaks no line before such an entry."""
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
        """Write what is an array in Java, not a collection: FastJSON breaks no line within such a one."""
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
