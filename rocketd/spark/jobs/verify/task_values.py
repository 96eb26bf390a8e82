"""Inputs and results of a verification's tasks: plain values that are pickled."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules, QueueKey
from rocketd.spark.jobs.stopped_store.files import IndexSizes
from rocketd.store.base.findings import Finding
from rocketd.store.format.message import DispatchRequest


class LogFileSpan(NamedTuple):
    """One file of the log: its path, the offset of its first byte, and its length."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The facts about a store for every task of a verification. Sent to the tasks by pickle.

    `used` is the number of log files with records. `abnormal` means the store was not stopped cleanly. `queue_ends` has
    for each queue the offset after its last entry. Records from `replayed_from` on are dispatched at the next start.
    """

    root: str
    log_directories: tuple[str, ...]
    file_size: int
    files: tuple[LogFileSpan, ...]
    used: int
    abnormal: bool
    extended: bool
    queue_root: str
    queue_ends: dict[QueueKey, int]
    index_paths: tuple[str, ...]
    index_shape: IndexSizes | None
    replayed_from: int
    rules: DispatchRules = field(default_factory=DispatchRules)

    @property
    def log_begin(self) -> int:
        """The offset of the first byte of the log."""
        return self.files[0].offset if self.files else 0


class SequenceEvent(Enum):
    """An observation about consecutive records of a queue."""

    RUN = "they have their entries"
    DIFFERS = "the entry of one is another"
    BEYOND = "they lie behind the last entry"
    NO_QUEUE = "the queue is missing"


@dataclass(slots=True)
class QueueEvent:
    """Consecutive records of a queue in the order of the log: the first one, and their number."""

    kind: SequenceEvent
    first: DispatchRequest
    count: int

    @property
    def upto(self) -> int:
        """The queue offset after the last record."""
        return self.first.queue_offset + self.count


@dataclass(slots=True)
class LogReport:
    """The result of one log file's task. `end` is the log offset after the last whole record.

    `queues` has the events of each queue; correct records give only runs. `untold` counts further wrong records.
    `suspects` are index files to examine closely. `late` and `unindexed` count records with keys but without entries,
    for a harmless reason.
    """

    number: int
    records: int = 0
    end: int = 0
    closely: bool = False
    findings: list[Finding] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    queues: dict[QueueKey, list[QueueEvent]] = field(default_factory=dict)
    untold: dict[QueueKey, int] = field(default_factory=dict)
    suspects: set[str] = field(default_factory=set)
    late: int = 0
    unindexed: int = 0
    latest: int = 0
    head: list[DispatchRequest] = field(default_factory=list)
    tail: list[DispatchRequest] = field(default_factory=list)


def merged_events(reports: Iterable[LogReport]) -> dict[QueueKey, list[QueueEvent]]:
    """Merge the events of each queue in the order of the log; `reports` are in that order."""
    result: dict[QueueKey, list[QueueEvent]] = {}
    for report in reports:
        for key, events in report.queues.items():
            known = result.setdefault(key, [])
            for event in events:
                last = known[-1] if known else None
                if (
                    last is not None
                    and last.kind is event.kind
                    and (
                        event.kind in (SequenceEvent.BEYOND, SequenceEvent.NO_QUEUE)
                        or (event.kind is SequenceEvent.RUN and last.upto == event.first.queue_offset)
                    )
                ):
                    last.count += event.count
                else:
                    known.append(event)
    return result
