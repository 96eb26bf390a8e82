"""Queues, ranges of their offsets, and the interface between planning and a store or cluster.

Pure values: nothing in this module reads a file or opens a socket.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rocketd.spark.errors import SparkError


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """One queue of one broker."""

    topic: str
    broker: str
    queue_id: int

    @property
    def broker_name(self) -> str:
        """The broker name, under the attribute name used in `rocketd.protocol`."""
        return self.broker

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The offsets of a queue from `start` to `end`, without `end`."""

    queue: Queue
    start: int
    end: int

    @property
    def count(self) -> int:
        """The number of offsets in the range."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.queue}[{self.start}, {self.end})"


Offsets = dict[Queue, int]
"""An offset for each queue: the next one to read, or the end of a range that was read."""

OnLoss = Callable[[QueueRange], None]
"""Called with each range whose messages are gone."""


def offsets_to_json(offsets: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return offsets as ``{topic: {broker: {queue id: offset}}}``, in sorted order because Spark compares the text."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def offsets_from_json(nested: Any) -> Offsets:
    """The reverse of `offsets_to_json`. Raises SparkError for a value of another shape."""
    offsets: Offsets = {}
    try:
        for topic, brokers in nested.items():
            for broker, queues in brokers.items():
                for queue_id, offset in queues.items():
                    if isinstance(offset, bool) or not isinstance(offset, int):
                        raise SparkError(f"the offset of {topic}/{broker}/{queue_id} is {offset!r}, not a whole number")
                    offsets[Queue(topic, broker, int(queue_id))] = offset
    except (AttributeError, ValueError) as error:
        raise SparkError('offsets have the shape {"topic": {"broker": {"0": 17}}}') from error
    return offsets


def groups_of(topic: str, keys: Iterable[str]) -> list[str]:
    """Return the groups of a topic, sorted, from the keys of a table of offsets: ``topic@group``."""
    begin = f"{topic}@"
    return sorted({key.removeprefix(begin) for key in keys if key.startswith(begin)})


def joined(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """Merge adjacent and overlapping ranges into as few as possible, sorted."""
    result: list[QueueRange] = []
    for one in sorted(ranges):
        if result and result[-1].queue == one.queue and one.start <= result[-1].end:
            last = result.pop()
            one = QueueRange(last.queue, last.start, max(last.end, one.end))
        result.append(one)
    return result


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Everything a task needs to know besides the ranges to read. Sent to the tasks by pickle.

    `batch_bytes` limits the records of one batch. `tags` are the accepted tags, None for all. `sql92` is an expression
    over the properties, "" for all messages. `on_loss` None makes a loss an error.
    """

    columns: tuple[str, ...]
    decompress: bool = True
    verify_crc: bool = False
    batch_bytes: int = 8 * 1024 * 1024
    tags: frozenset[str] | None = None
    sql92: str = ""


class Catalog(Protocol):
    """A store directory or a cluster, as planning sees it. Used by one thread at a time."""

    def topics(self) -> list[str]:
        """Return all topics that have queues in this catalog, sorted."""
        ...

    def queues(self, topic: str) -> list[Queue]:
        """Return the topic's queues, sorted; empty if the topic does not exist."""
        ...

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the lowest offset, and the offset after the highest."""
        ...

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after this time, or the end offset if there is none."""
        ...

    def stored_at(self, queue: Queue, offset: int) -> int | None:
        """Return the store time (ms) of the message at an offset, or None without a readable one."""
        ...

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """Return the committed offset of the consumer group, or None if it has not committed."""
        ...

    def known_groups(self, topic: str) -> list[str]:
        """Return the consumer groups with committed offsets in the topic, sorted."""
        ...

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit offsets for a consumer group, so that lag tools can show them."""
        ...

    def bytes_of(self, part: QueueRange) -> int | None:
        """Estimate the size of the range's records in bytes; None if unknown."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...
