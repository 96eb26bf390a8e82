"""Filters of a query: what they say about topics, queues, offsets, times and tags narrows what is read.

A filter is kept from Spark only where every row that is read passes it for certain. Filters are AND-ed, and a row passes
where all are true: unknown, as a comparison with null is, does not pass.
"""

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rocketd.common.names import LMQ_PREFIX, SCHEDULE_TOPIC
from rocketd.spark.columns import COLUMNS
from rocketd.spark.options import ReadOptions
from rocketd.spark.ranges import Catalog, Queue, QueueRange

NULLABLE: Final = frozenset({"uniq_key", "tags", "keys", "born_time", "store_time"})
"""The columns that may be null: times are where no calendar has them."""

CLOCK_MARGIN_MS: Final = 600_000
"""How far a broker's clock may have gone back: offsets are found by time as if times only grew."""

_COMPARE: Final[dict[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: lambda value, part: value.startswith(part),
    StringEndsWith: lambda value, part: value.endswith(part),
    StringContains: lambda value, part: part in value,
}
_QUEUE_COLUMNS: Final[dict[str, tuple[type, Callable[[Queue], Any]]]] = {
    # Spark compares texts by their bytes in UTF-8.
    "topic": (str, lambda queue: queue.topic.encode()),
    "broker": (str, lambda queue: queue.broker.encode()),
    "queue_id": (int, lambda queue: queue.queue_id),
}


class Narrowing:
    """What the filters of one query leave to be read. `remaining` are those that Spark has to apply all the same.

    Not `exact` are reads that may have light queues: the rows of those have the columns of other queues.
    """

    def __init__(self, filters: Sequence[Filter], *, exact: bool = True) -> None:
        self.remaining: list[Filter] = []
        self._of_queue: list[tuple[Filter, Callable[[Queue], Any]]] = []
        self._lowest = 0
        self._end: int | None = None
        self._since_ms: int | None = None
        self._until_ms: int | None = None
        self._tags: frozenset[str] | None = None
        for one in filters:
            if not self._take(one) or not exact:
                self.remaining.append(one)

    def apply(self, ranges: Sequence[QueueRange], catalog: Catalog) -> tuple[list[QueueRange], frozenset[str] | None]:
        """The parts of the ranges that have to be read, and the tags that are enough; None for all tags."""
        tags = self._tags
        kept: list[QueueRange] = []
        for one in ranges:
            if one.queue.topic.startswith(LMQ_PREFIX):
                kept.append(one)
                continue
            if not all(is_true(each, value(one.queue)) for each, value in self._of_queue):
                continue
            if one.queue.topic == SCHEDULE_TOPIC:
                tags = None  # its queues hold times where others hold the hashes of tags
            start = max(one.start, self._lowest)
            end = one.end if self._end is None else min(one.end, self._end)
            if start < end and self._since_ms is not None:
                start = max(start, catalog.offset_at(one.queue, self._since_ms))
            if start < end and self._until_ms is not None:
                end = min(end, catalog.offset_at(one.queue, self._until_ms))
            if start < end:
                kept.append(QueueRange(one.queue, start, end))
        return ([], tags) if tags is not None and not tags else (kept, tags)

    def _take(self, one: Filter) -> bool:
        """Use a filter; whether it is done with."""
        column = _column(one)
        if column in _QUEUE_COLUMNS:
            kind, value = _QUEUE_COLUMNS[column]
            if _has_values_of(one, kind):
                self._of_queue.append((one, value))
                return True
            return False
        if isinstance(one, IsNotNull):
            return column in COLUMNS and column not in NULLABLE
        match column:
            case "queue_offset":
                return self._take_offset(one)
            case "store_time":
                self._take_time(one)
            case "tags":
                self._take_tags(one)
        return False

    def _take_offset(self, one: Filter) -> bool:
        if isinstance(one, In):
            values = [value for value in one.value if value is not None]
            if _has_values_of(one, int) and values:
                self._offsets(min(values), max(values) + 1)
            return False
        if not _has_values_of(one, int):
            return False
        match one:
            case EqualTo() | EqualNullSafe():
                self._offsets(one.value, one.value + 1)
            case GreaterThan():
                self._offsets(one.value + 1, None)
            case GreaterThanOrEqual():
                self._offsets(one.value, None)
            case LessThan():
                self._offsets(0, one.value)
            case LessThanOrEqual():
                self._offsets(0, one.value + 1)
            case _:
                return False
        return True

    def _offsets(self, lowest: int, end: int | None) -> None:
        self._lowest = max(self._lowest, lowest)
        if end is not None:
            self._end = end if self._end is None else min(self._end, end)

    def _take_time(self, one: Filter) -> None:
        if not isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return
        moment = _milliseconds(one.value)
        if moment is None:
            return
        if not isinstance(one, LessThan | LessThanOrEqual):
            since = max(0, moment - CLOCK_MARGIN_MS)
            self._since_ms = since if self._since_ms is None else max(self._since_ms, since)
        if not isinstance(one, GreaterThan | GreaterThanOrEqual):
            until = max(0, moment + 1 + CLOCK_MARGIN_MS)
            self._until_ms = until if self._until_ms is None else min(self._until_ms, until)

    def _take_tags(self, one: Filter) -> None:
        match one:
            case EqualTo() | EqualNullSafe():
                values = [one.value]
            case In():
                values = [value for value in one.value if value is not None]
            case _:
                return
        # Without a tag and with an empty one, messages have the same hash; null is what IsNull finds.
        if all(isinstance(value, str) and value for value in values):
            wanted = frozenset(values)
            self._tags = wanted if self._tags is None else self._tags & wanted


def may_have_light_queues(options: ReadOptions) -> bool:
    """Whether a read may have queues that are views of others."""
    topics = (*options.subscribe, *(name.topic for name in options.assign))
    return bool(options.subscribe_pattern) or any(topic.startswith(LMQ_PREFIX) for topic in topics)


def is_true(one: Filter, value: Any) -> bool:
    """Whether a filter is true for the value of its column, which is not null."""
    return _truth(one, value) is True


def _truth(one: Filter, value: Any) -> bool | None:
    """The same in three values: None is unknown."""
    match one:
        case Not(child):
            truth = _truth(child, value)
            return None if truth is None else not truth
        case IsNull():
            return False
        case IsNotNull():
            return True
        case In():
            if value in [_comparable(each) for each in one.value if each is not None]:
                return True
            return None if any(each is None for each in one.value) else False
    given = one.value  # type: ignore[attr-defined]
    if given is None:
        return False if isinstance(one, EqualNullSafe) else None
    return bool(_COMPARE[type(one)](value, _comparable(given)))


def _comparable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _column(one: Filter) -> str:
    """The column of a filter, "" where it is about a part of one."""
    inner = one.child if isinstance(one, Not) else one
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    return str(attribute[0]) if len(attribute) == 1 else ""


def _has_values_of(one: Filter, kind: type) -> bool:
    """Whether a filter is one of those known here and compares with values of this type."""
    inner = one.child if isinstance(one, Not) else one
    if isinstance(inner, IsNull | IsNotNull):
        return True
    if isinstance(inner, StringStartsWith | StringEndsWith | StringContains):
        return kind is str and isinstance(inner.value, str)
    if isinstance(inner, In):
        return all(value is None or (isinstance(value, kind) and not isinstance(value, bool)) for value in inner.value)
    if type(inner) not in _COMPARE:
        return False
    value = inner.value  # type: ignore[attr-defined]
    return value is not None and isinstance(value, kind) and not isinstance(value, bool)


def _milliseconds(value: Any) -> int | None:
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
