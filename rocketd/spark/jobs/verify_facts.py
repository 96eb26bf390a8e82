"""What the tasks of a verification are told and what they tell: plain values that cross by pickle."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from rocketd.spark.jobs.dispatched import QueueKey, Rules
from rocketd.spark.jobs.store_files import IndexShape
from rocketd.store.findings import Finding
from rocketd.store.message import DispatchRequest


class LogFile(NamedTuple):
    """One file of the log: path, offset of its first byte, its length."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What every task of a verification needs to know. Crosses to the tasks by pickle.

    `used` of the files hold records; the store was not stopped cleanly if it is `abnormal`. `queue_ends` has the queue
    offset behind the last entry of each queue there is. Records from `replayed_from` on are dispatched at the next start.
    """

    root: str
    log_directories: tuple[str, ...]
    file_size: int
    files: tuple[LogFile, ...]
    used: int
    abnormal: bool
    extended: bool
    queue_root: str
    queue_ends: dict[QueueKey, int]
    index_paths: tuple[str, ...]
    index_shape: IndexShape | None
    replayed_from: int
    rules: Rules = field(default_factory=Rules)

    @property
    def log_begin(self) -> int:
        """Offset of the first byte of the log."""
        return self.files[0].offset if self.files else 0


class EventKind(Enum):
    """What was seen of records of a queue that follow each other."""

    RUN = "they have their entries"
    DIFFERS = "the entry of one is another"
    BEYOND = "they lie behind the last entry"
    NO_QUEUE = "there is no queue"


@dataclass(slots=True)
class QueueEvent:
    """Records of a queue, `count` from a first one on, in the order of the log."""

    kind: EventKind
    first: DispatchRequest
    count: int

    @property
    def upto(self) -> int:
        """Queue offset behind the last."""
        return self.first.queue_offset + self.count


@dataclass(slots=True)
class LogReport:
    """What one file's task found. `end` is the offset of the log behind the last whole record.

    `queues` are not told of where all is as it should be but for the runs. `suspects` are index files that have to be
    looked at closely; `late` and `unindexed` count records with keys that have no entries, for an innocent reason.
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
    """The events of each queue in the order of the log; `reports` are in that order."""
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
                        event.kind in (EventKind.BEYOND, EventKind.NO_QUEUE)
                        or (event.kind is EventKind.RUN and last.upto == event.first.queue_offset)
                    )
                ):
                    last.count += event.count
                else:
                    known.append(event)
    return result
