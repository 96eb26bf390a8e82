"""Fills an archive with ranges of queues: one range after the other in each task, and commits in order.

The ranges of a queue are committed in the order of their offsets. So the archived part of a queue never has an unknown
hole, whenever the job ends.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from rocketd.spark.archive.archive import Archive, UncommittedFile
from rocketd.spark.archive.format.layout import staging_dir
from rocketd.spark.archive.format.manifest import ArchiveFile, Commit
from rocketd.spark.archive.parquet import DEFAULT_MAX_FILE_BYTES, OF_QUEUE, QueueFileWriter
from rocketd.spark.archive.reader import check_file
from rocketd.spark.columns import arrow_schema
from rocketd.spark.errors import DataLossError
from rocketd.spark.ranges import OnLoss, Queue, QueueRange, joined


class RangeSource(Protocol):
    """The source of a task; sent to the task by pickle."""

    def read(self, part: QueueRange, columns: Sequence[str], on_loss: OnLoss | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range. Without `on_loss`, raise DataLossError for a message that is gone."""
        ...


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The ranges for one task to archive. With `check`, each file is read back."""

    source: RangeSource
    root: str
    writer: str
    columns: tuple[str, ...]
    parts: tuple[QueueRange, ...]
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES
    allow_loss: bool = False
    check: bool = False


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of a range: staged files, and the offsets whose messages are gone."""

    part: QueueRange
    staged: tuple[UncommittedFile, ...]
    gaps: tuple[QueueRange, ...]


def archive_ranges(task: RangeTask) -> list[Archived]:
    """Read ranges and write them into staged files, in a Spark task. Raises DataLossError, ClusterError, OSError."""
    pa.set_cpu_count(1)
    return [_archive_range(task, part) for part in task.parts]


def _archive_range(task: RangeTask, part: QueueRange) -> Archived:
    gaps: list[QueueRange] = []
    wanted = [name for name in task.columns if name not in OF_QUEUE]
    staging = os.path.relpath(staging_dir(task.root, task.writer), task.root)
    files = QueueFileWriter(task.root, staging, arrow_schema(task.columns), part.queue, task.max_file_bytes)
    try:
        for batch in task.source.read(part, wanted, gaps.append if task.allow_loss else None):
            files.add(batch)
        staged = files.finish()
    except BaseException:
        files.abandon()
        raise
    lost = joined(gaps)
    _check_whole(part, [one.file for one in staged], lost)
    if task.check:
        for one in staged:
            check_file(task.root, _as_staged(one))
    return Archived(part, tuple(staged), tuple(lost))


def _as_staged(one: UncommittedFile) -> ArchiveFile:
    file = one.file
    return ArchiveFile(
        one.path, file.rows, file.size, file.crc32, file.queue, file.first, file.last, file.raw_bytes, file.raw_crc32
    )


def _check_whole(part: QueueRange, files: list[ArchiveFile], gaps: list[QueueRange]) -> None:
    rows, lost = sum(file.rows for file in files), sum(gap.count for gap in gaps)
    outside = [file for file in files if file.first < part.start or file.last >= part.end]
    if rows + lost != part.count or outside:
        raise DataLossError(
            f"of {part}, {rows} messages were read and {lost} are known to be gone: they do not make up the range; "
            "run the job again, with --allow-loss if the source has lost them"
        )


RunTasks = Callable[[list[RangeTask]], Iterable[list[Archived]]]
"""Runs tasks in parallel as far as possible, and yields the results of each as it ends."""


@dataclass
class Totals:
    """Totals of a run's commits, taken from the archive itself."""

    messages: int = 0
    raw_bytes: int = 0
    file_bytes: int = 0
    files: int = 0
    ranges: list[QueueRange] = field(default_factory=list)
    gaps: list[QueueRange] = field(default_factory=list)

    @staticmethod
    def of(archive: Archive, writer: str) -> "Totals":
        """Return the totals of all commits of one writer."""
        totals = Totals()
        for commit in archive.commits:
            if commit.writer == writer:
                totals._add(commit)
        return totals

    def _add(self, commit: Commit) -> None:
        self.messages += sum(file.rows for file in commit.files)
        self.raw_bytes += sum(file.raw_bytes for file in commit.files)
        self.file_bytes += sum(file.size for file in commit.files)
        self.files += len(commit.files)
        self.ranges += commit.ranges
        self.gaps += commit.gaps


def fill(
    archive: Archive,
    writer: str,
    gaps: list[QueueRange],
    tasks: list[RangeTask],
    run: RunTasks,
    brokers: dict[str, dict[str, Any]],
) -> None:
    """Record the gaps, run the tasks, and commit their files in the name of `writer`.

    Raises the errors of the tasks, ArchiveError, OSError.
    """
    facts = brokers

    def commit(ranges: list[QueueRange], gaps: list[QueueRange], staged: list[UncommittedFile]) -> None:
        nonlocal facts
        made = Commit(
            writer,
            time.time_ns() // 1_000_000,
            ranges=tuple(joined(ranges)),
            gaps=tuple(joined(gaps)),
            brokers=facts,
        )
        archive.commit(made, staged)
        # Once is enough.
        facts = {}

    if gaps:
        commit(gaps, gaps, [])
    waiting: dict[Queue, list[QueueRange]] = {}
    for part in sorted(part for task in tasks for part in task.parts):
        waiting.setdefault(part.queue, []).append(part)
    ended: dict[QueueRange, Archived] = {}
    for results in run(tasks):
        ended |= {result.part: result for result in results}
        ready = []
        for queue in {result.part.queue for result in results}:
            parts = waiting[queue]
            while parts and parts[0] in ended:
                ready.append(ended.pop(parts.pop(0)))
        if ready:
            commit(
                [one.part for one in ready],
                [gap for one in ready for gap in one.gaps],
                [staged for one in ready for staged in one.staged],
            )
