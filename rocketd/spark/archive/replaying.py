"""Sends the messages of an archive in batches, cut in the same way each time, so that each message is sent once.

A batch takes the next offsets of every queue. The messages of a queue go to one target queue and keep their order. The
target is fixed at the beginning and recorded.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from rocketd.common.message_properties import DELAY
from rocketd.spark.archive.format.journal import Entry, Journal
from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.reader import by_queue
from rocketd.spark.archive.selection import Selection
from rocketd.spark.columns import COLUMNS, arrow_schema
from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.effectively_once.delivery import sink_folder
from rocketd.spark.sink.effectively_once.staging import StagedFile, Staging, check_reached
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.rows import RowReader
from rocketd.spark.wire.unique_keys import unique_keys

SINK = "replay"

_BATCH_MESSAGES = 100_000
_LEAST_WINDOW = 500
_COLUMNS = ("broker", "topic", "queue_id", "queue_offset", "flag", "sys_flag", "body_crc", "properties", "body")
_DELAYS = (DELAY, "TIMER_")


@dataclass(frozen=True, slots=True)
class OffsetSlice:
    """Offsets of one queue for one batch, the files that contain them, and the target queue."""

    queue: Queue
    start: int
    end: int
    files: tuple[ArchiveFile, ...]
    target: Queue


@dataclass(frozen=True, slots=True)
class StageTask:
    """The work of a task for one batch."""

    root: str
    selection: Selection
    slice: OffsetSlice
    options: WriteOptions
    mark: str
    batch: str
    place: int


def targets_of(queues: Sequence[Queue], there: dict[str, list[Queue]], topic: str) -> dict[Queue, Queue]:
    """Return the target queue of each queue: the queues of a topic take turns, and wrap around if the target has fewer."""
    turns: dict[str, int] = {}
    found = {}
    for queue in sorted(queues):
        name = topic or queue.topic
        turn = turns.get(name, 0)
        turns[name] = turn + 1
        found[queue] = there[name][turn % len(there[name])]
    return found


def batches(
    files: Sequence[ArchiveFile], selection: Selection, targets: dict[Queue, Queue]
) -> Iterator[list[OffsetSlice]]:
    """Yield the slices of each batch. Raises ArchiveError if a queue's files overlap, since their order is unknown."""
    queues = by_queue(files)
    window = max(_LEAST_WINDOW, _BATCH_MESSAGES // len(queues))
    extents = {}
    for queue, some in queues.items():
        for before, after in pairwise(some):
            if after.first <= before.last:
                raise ArchiveError(f"{queue}: {before.path} and {after.path} overlap; they were written out of order")
        low, high = selection.limits(queue)
        extents[queue] = max(low, some[0].first), min(high, some[-1].last + 1)
    longest = max(end - first for first, end in extents.values())
    for begin in range(0, longest, window):
        cut = []
        for queue, (first, end) in extents.items():
            start, stop = first + begin, min(end, first + begin + window)
            held = tuple(file for file in queues[queue] if file.first < stop and file.last >= start)
            if start < stop and held:
                cut.append(OffsetSlice(queue, start, stop, held, targets[queue]))
        # Empty if all queues have a gap here.
        if cut:
            yield cut


def stage(task: StageTask) -> StagedFile:
    """Write the messages of a slice into a staged file."""
    pa.set_cpu_count(1)
    check_reached(task.options.staging, task.mark, os.uname().nodename)
    staging = Staging(sink_folder(task.options, SINK))
    return staging.write(task.batch, f"{task.place}-0", _messages(task))


def _messages(task: StageTask) -> Iterator[Outgoing]:
    part = task.slice
    schema = arrow_schema(_COLUMNS)
    reader = RowReader(schema, task.options, lambda: unique_keys(1)[0], str(part.queue))
    for file in part.files:
        limits = {"queue_offset": (part.start, part.end)}
        for batch in task.selection.read(task.root, file, _COLUMNS, limits, decompress=False):
            yield from reader.read(_readdressed(batch, part.target))


def _readdressed(batch: pa.RecordBatch, target: Queue) -> pa.RecordBatch:
    """Return the batch with the target's queue, and without expired delays."""
    made: dict[str, Any] = {
        "broker": pa.repeat(pa.scalar(target.broker, pa.string()), batch.num_rows),
        "topic": pa.repeat(pa.scalar(target.topic, pa.string()), batch.num_rows),
        "queue_id": pa.repeat(pa.scalar(target.queue_id, pa.int32()), batch.num_rows),
        "properties": _without_delays(batch.column("properties")),
    }
    arrays = [made.get(name, batch.column(name)) for name in _COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(_COLUMNS))


def _without_delays(properties: pa.MapArray) -> pa.MapArray:
    names = pa.compute.unique(properties.keys).to_pylist()
    if not any(name.startswith(_DELAYS) for name in names):
        return properties
    kept = [
        [(name, value) for name, value in row or () if not name.startswith(_DELAYS)] for row in properties.to_pylist()
    ]
    return pa.array(kept, COLUMNS["properties"].arrow)


class ReplayState:
    """The plan and the progress of a replay, in its state directory."""

    def __init__(self, directory: str) -> None:
        self._journal = Journal(os.path.join(directory, "journal"))
        self._journal.refresh()

    def plan(self, wanted: Entry) -> Entry:
        """Return the recorded plan, or record this one. Raises ArchiveError if another plan was begun."""
        if not self._journal.entries:
            self._journal.append(wanted)
        begun = self._journal.entries[0]
        for name in ("archive", "selection", "namesrv", "topic"):
            if begun.get(name) != wanted[name]:
                raise ArchiveError(
                    f"the state directory has a replay that was begun with another {name}, {begun.get(name)}; "
                    "give the same, or another directory"
                )
        return begun

    @property
    def done(self) -> int:
        """The number of finished batches."""
        return max(0, len(self._journal.entries) - 1)

    @property
    def messages(self) -> int:
        """The number of messages in finished batches."""
        return sum(entry["messages"] for entry in self._journal.entries[1:])

    def note_batch(self, messages: int) -> None:
        """Record that the next batch is done."""
        self._journal.append({"messages": messages})


def targets_to_json(targets: dict[Queue, Queue]) -> list[list[Any]]:
    """Return the targets as JSON for the plan."""
    return [
        [*(one.topic, one.broker, one.queue_id), *(other.topic, other.broker, other.queue_id)]
        for one, other in sorted(targets.items())
    ]


def targets_from_json(said: list[list[Any]]) -> dict[Queue, Queue]:
    """The reverse of `targets_to_json`."""
    return {Queue(*one[:3]): Queue(*one[3:]) for one in said}
