"""Starts and ends of a read, as the options name them. Only a catalog can turn them into offsets.

The format is the offsets JSON of Spark's Kafka source, with a broker level between topic and queue. That level may be
left out for a topic on a single broker. -2 stands for the earliest offset, -1 for the latest.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketd.spark.options.kinds import OptionKind, read_json, read_time
from rocketd.spark.ranges import Queue

EARLIEST_MARK: Final = -2
LATEST_MARK: Final = -1


@dataclass(frozen=True, slots=True)
class QueueName:
    """A queue as named in an option; `broker` "" stands for every broker of the topic."""

    topic: str
    broker: str
    queue_id: int

    def names(self, queue: Queue) -> bool:
        """Tell whether this name matches the queue."""
        return (
            (self.topic, self.queue_id) == (queue.topic, queue.queue_id)
            and self.broker in ("", queue.broker)
        )  # fmt: skip

    def __str__(self) -> str:
        return "/".join(part for part in (self.topic, self.broker, str(self.queue_id)) if part)


PerQueue = tuple[tuple[QueueName, int], ...]
"""A number for each named queue."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """The lowest offset of each queue."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The offset after the last message of each queue."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The committed offsets of a consumer group."""

    group: str


@dataclass(frozen=True, slots=True)
class ExactOffsets:
    """An offset for each queue, or one of the marks."""

    offsets: PerQueue


@dataclass(frozen=True, slots=True)
class SinceTime:
    """The first message of each queue stored at or after this time (ms)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SinceTimes:
    """Like `SinceTime`, with a time for each queue."""

    timestamps: PerQueue


Position = Earliest | Latest | GroupOffsets | ExactOffsets | SinceTime | SinceTimes


def _queue_id(text: Any) -> int:
    if isinstance(text, bool) or not re.fullmatch("[0-9]{1,9}", str(text), re.ASCII):
        raise ValueError("no queue id")
    return int(text)


def _leaves(nested: object) -> Iterator[tuple[QueueName, Any]]:
    """Yield each queue and its value from {"topic": {"broker": {"0": value}}} or {"topic": {"0": value}}."""
    if not isinstance(nested, Mapping) or not nested:
        raise ValueError("no object")
    for topic, below in nested.items():
        if not isinstance(below, Mapping) or not below:
            raise ValueError("no object")
        for key, value in below.items():
            if not isinstance(value, Mapping):
                yield QueueName(topic, "", _queue_id(key)), value
                continue
            for queue_id, leaf in value.items():
                yield QueueName(topic, key, _queue_id(queue_id)), leaf


def _numbers(text: str, read: Callable[[Any], int]) -> PerQueue:
    return tuple((name, read(leaf)) for name, leaf in _leaves(read_json(text)))


def _start_offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST_MARK:
        raise ValueError("no offset")
    return value


def _end_offset(value: object) -> int:
    if _start_offset(value) == EARLIEST_MARK:
        raise ValueError("no end")
    return _start_offset(value)


def _start(text: str) -> Position:
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return Earliest() if word.lower() == "earliest" else Latest()
    if word.lower().startswith("group:"):
        group = word[len("group:") :].strip()
        if not group:
            raise ValueError("no group")
        return GroupOffsets(group)
    return ExactOffsets(_numbers(word, _start_offset))


def _end(text: str) -> Position:
    if text.strip().lower() == "latest":
        return Latest()
    return ExactOffsets(_numbers(text, _end_offset))


def _assigned(text: str) -> tuple[QueueName, ...]:
    names: list[QueueName] = []
    nested = read_json(text)
    if not isinstance(nested, Mapping) or not nested:
        raise ValueError("no object")
    for topic, below in nested.items():
        by_broker = below if isinstance(below, Mapping) else {"": below}
        for broker, ids in by_broker.items():
            if not isinstance(ids, list) or not ids:
                raise ValueError("no list")
            names += [QueueName(topic, broker, _queue_id(each)) for each in ids]
    return tuple(dict.fromkeys(names))


_SHAPE = '{"topic": {"broker": {"0": %s}}} or, for a topic on one broker, {"topic": {"0": %s}}'

START = OptionKind(
    f"earliest, latest, group:NAME or JSON: {_SHAPE % (17, 17)}, with -2 for earliest and -1 for latest", _start
)
END = OptionKind(f"latest or JSON: {_SHAPE % (17, 17)}, with -1 for latest", _end)
TIMES = OptionKind(
    f"JSON: {_SHAPE % (1714564800000, 1714564800000)}, with milliseconds or ISO-8601 texts",
    lambda text: _numbers(text, read_time),
)
ASSIGNED = OptionKind('JSON: {"topic": {"broker": [0, 1]}} or {"topic": [0, 1]}', _assigned)
