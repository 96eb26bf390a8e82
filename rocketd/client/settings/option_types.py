"""Checks the values of options against their declared types: one check for all classes of options.

Each class checks the ranges and forms of values itself.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import cache
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import get_protocol_members, is_protocol
from zope.interface.interface import InterfaceClass

from rocketd.client.errors import IllegalOptionError

SECRET: Final = {"secret": True}
"""Metadata of an option whose value must not appear in errors."""

_WORDS: Final[Mapping[Any, str]] = {
    str: "a text",
    bool: "True or False",
    int: "a whole number",
    float: "a number of seconds",
    NoneType: "None",
    datetime: "a datetime",
    timedelta: "a timedelta",
    Callable: "a function",
    PathLike: "a path",
    Mapping: "a mapping",
}


def check_types(options: Any, *, but: Collection[str] = ()) -> None:
    """Raise IllegalOptionError for the first field of a dataclass whose value does not have the declared type.

    The rules are mypy's, except that True is not a number. Each element of a sequence is checked. For protocols and
    interfaces the names must exist. Mappings and one-time iterables are not inspected. ``but`` are options with another
    check.
    """
    for option, declared, secret in _declared(options.__class__):
        value = getattr(options, option)
        if option not in but and not _fits(value, declared):
            shown = f"{option} is a {type(value).__name__}" if secret else f"{option}={value!r}"
            raise IllegalOptionError(f"{shown}: accepted is {_words(declared)}")


@cache
def _declared(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name], field.metadata.get("secret", False)) for field in fields(kind))


def _fits(value: object, declared: Any) -> bool:
    if declared is Any or isinstance(declared, TypeVar):
        return True
    kind = get_origin(declared) or declared
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(declared))
    if kind is Literal:
        return value in get_args(declared)
    if kind is Callable:
        return callable(value)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if kind is Sequence:
        return isinstance(value, Sequence) and all(_fits(each, get_args(declared)[0]) for each in value)
    members = _members(kind)
    if members:
        return all(hasattr(value, name) for name in members)
    return isinstance(value, kind)


def _members(kind: Any) -> list[str]:
    """Return the required names of a protocol or an interface; an empty list for a class."""
    if isinstance(kind, InterfaceClass):
        return sorted(kind.names(all=True))
    return sorted(get_protocol_members(kind)) if is_protocol(kind) else []


def _either(several: Iterable[str]) -> str:
    *most, last = several
    return f"{', '.join(most)} or {last}" if most else last


def _words(declared: Any) -> str:
    """Describe the accepted values."""
    kind = get_origin(declared) or declared
    if kind in (Union, UnionType):
        return _either(map(_words, get_args(declared)))
    if kind is Literal:
        return _either(map(repr, get_args(declared)))
    if kind in (Sequence, Iterable):
        several = "a sequence" if kind is Sequence else "what can be iterated over"
        return f"{several}, each {_words(get_args(declared)[0])}"
    if kind in _WORDS:
        return _WORDS[kind]
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    members = _members(kind)
    return f"{article} {kind.__name__}" + (f" (an object with {', '.join(members)})" if members else "")
