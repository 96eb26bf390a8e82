"""Kinds of option values: the reader of each text, and a description of the accepted values.

Spark passes every option as text. A reader raises ValueError for an invalid text; the caller adds the name of the
option. Pure.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from rocketd.common.settings import checks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OptionKind(Generic[T]):
    """One kind of value: a description of accepted texts, and the reader of a text."""

    accepted: str
    read: Callable[[str], T]


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text.strip()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError("an empty name")
    return tuple(dict.fromkeys(names))


def _addresses(text: str) -> tuple[str, ...]:
    text = text.replace(",", ";").strip().rstrip("; ")
    if not checks.is_address_list(text):
        raise ValueError("no address")
    return tuple(part.strip() for part in text.split(";"))


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("less than 1")
    return number


_SIZE_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([bkmgt]?)(?:i?b)?", text.strip().lower(), re.ASCII)
    number = int(match[1]) * _SIZE_UNITS[match[2]] if match else 0
    if number < 1:
        raise ValueError("no size")
    return number


def _duration(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)", text.strip().lower(), re.ASCII)
    if not match:
        raise ValueError("no duration")
    return float(match[1]) * _SECONDS[match[2]]


def read_time(value: object) -> int:
    """Return milliseconds since 1970 from a number of milliseconds or an ISO-8601 text (UTC without a zone).

    Raises ValueError for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("no time")
    text = str(value).strip()
    if re.fullmatch("[0-9]+", text, re.ASCII):
        return int(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = round(moment.timestamp() * 1000)
    if milliseconds < 0:
        raise ValueError("before 1970")
    return milliseconds


def _pattern(text: str) -> str:
    try:
        re.compile(_text(text))
    except re.error as error:
        raise ValueError(str(error)) from error
    return text.strip()


def _tags(text: str) -> frozenset[str] | None:
    tags = [part.strip() for part in text.split("||")]
    if tags == ["*"]:
        return None
    if not all(tags) or "*" in tags:
        raise ValueError("an empty tag")
    return frozenset(tags)


def _sql92(text: str) -> str:
    from rocketd.filter.parser import parse

    condition = _text(text)
    rest = condition[parse(condition).end :]
    if rest.strip():
        # Brokers would ignore the rest.
        raise ValueError(f"it ends before {rest!r}: remove that, or join it by AND")
    return condition


def read_json(text: str) -> Any:
    """Parse JSON, without duplicate keys. Raises ValueError."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key twice")
        return found

    return json.loads(text, object_pairs_hook=unique)


TEXT = OptionKind("any text except an empty one", _text)
PATH = OptionKind("a path", _text)
NAMES = OptionKind("names, separated by commas", _names)
ADDRESSES = OptionKind(checks.ADDRESSES, _addresses)
FLAG = OptionKind("true or false", _flag)
COUNT = OptionKind("a whole number from 1 on", _count)
SIZE = OptionKind("bytes, or a number with k, m or g, like 64m", _size)
DURATION = OptionKind("a number with ms, s, m, h or d, like 15m", _duration)
TIME = OptionKind("milliseconds since 1970, or ISO-8601 like 2024-05-01T12:00:00Z (UTC without a zone)", read_time)
PATTERN = OptionKind("a regular expression that matches whole topic names", _pattern)
TAGS = OptionKind("tags separated by ||, like TagA || TagB, or * for all", _tags)
SQL92 = OptionKind("an SQL92 expression over the properties, like a > 5 AND b IN ('x', 'y')", _sql92)


def choice(*words: str) -> OptionKind[str]:
    """Return a kind that accepts one of these words, ignoring letter case."""

    def read(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError("none of them")
        return text.strip().lower()

    return OptionKind(" or ".join(words), read)
