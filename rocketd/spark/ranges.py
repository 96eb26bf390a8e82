"""Queues, ranges of their offsets, and what planning asks of a store or a cluster.

Pure values: nothing here reads a file or opens a socket.
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

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The offsets from `start` up to and without `end` of a queue."""

    queue: Queue
    start: int
    end: int

    @property
    def count(self) -> int:
        """How many offsets there are."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.queue}[{self.start}, {self.end})"


Offsets = dict[Queue, int]
"""An offset for each queue: the next one to read, or the end of what was read."""

OnLoss = Callable[[QueueRange], None]
"""Told of each range whose messages are not there any more."""


def offsets_to_json(offsets: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Offsets as ``{topic: {broker: {queue id: offset}}}``, in sorted order: Spark compares the text of it."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def offsets_from_json(nested: Any) -> Offsets:
    """The reverse of `offsets_to_json`. Raises SparkError when the value does not have that shape."""
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


def joined(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """The same offsets in as few ranges as possible, sorted."""
    result: list[QueueRange] = []
    for one in sorted(ranges):
        if result and result[-1].queue == one.queue and one.start <= result[-1].end:
            last = result.pop()
            one = QueueRange(last.queue, last.start, max(last.end, one.end))
        result.append(one)
    return result


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a task needs to know besides the range that it reads. Crosses to the tasks by pickle.

    `batch_bytes` bounds the records of one batch. `tags` are the wanted ones, None for all; `sql92` is an expression
    over the properties, "" for all. `on_loss` None makes a loss an error.
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
        """All topics that have queues here, sorted."""
        ...

    def queues(self, topic: str) -> list[Queue]:
        """The topic's queues, sorted; empty when there is no such topic."""
        ...

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Lowest offset, and the one behind the highest."""
        ...

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset that was stored at or after this time, the end when there is none."""
        ...

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """What the consumer group has committed, None when it has not."""
        ...

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit for a consumer group, for the tools that show its lag."""
        ...

    def bytes_of(self, part: QueueRange) -> int | None:
        """About how many bytes the range's records have; None when that cannot be told."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
