"""`rocketd spark verify`: check every byte of a stopped store's log, queues and index against each other.

The findings are those of `rocketd store verify`. The work is spread over the cores of a machine, or of a cluster that
sees the files, with one task for each file. Reads only.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Arguments
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.tasks import need_files_everywhere, run_tasks
from rocketd.spark.jobs.stopped_store.arguments import StoreInUse, rules_of, shape_of, store_section
from rocketd.spark.jobs.stopped_store.dispatched import DispatchRules, QueueKey
from rocketd.spark.jobs.stopped_store.files import IndexSizes, IndexView
from rocketd.spark.jobs.verify.log_file import check_log_file
from rocketd.spark.jobs.verify.task_values import (
    LogFileSpan,
    LogReport,
    QueueEvent,
    SequenceEvent,
    StoreFacts,
    merged_events,
)
from rocketd.spark.jobs.verify.tasks import IndexTask, VerifyTask, check_index_file, check_queue
from rocketd.store.base.findings import Disorder, Finding, Remedy, Severity, shortened

if TYPE_CHECKING:
    from rocketd.store.offline.stopped_store import StoppedStore


Each = Callable[[Iterable[Any], Callable[[Any], Any]], Iterator[Any]]
"""Runs a function for each item, anywhere, and yields the results in any order."""


@job(
    "verify",
    store_section(),
)
def verify(context: JobContext, args: Arguments) -> Report:
    """Read every byte of a store and report the damage."""
    with StoreInUse(args.store, args.commit_log, context.progress, writes=False) as store:
        spark = context.spark()
        need_files_everywhere(spark, [store.root, *store.log.directories])
        run = partial(run_tasks, spark, description="rocketd verify")
        return Verification(store, rules_of(args), context.progress, shape_of(args, None)).run(run)


class Verification:
    """A verification of one store."""

    def __init__(
        self, store: "StoppedStore", rules: DispatchRules, progress: JobProgressBar, shape: IndexSizes | None = None
    ) -> None:
        from rocketd.spark.jobs.verify.closely import PartialExamination, used_files
        from rocketd.store.offline.examine import Checkpoint, configured_topics, replayed_from

        self._store = store
        self._progress = progress
        self._topics = configured_topics(store.root)
        self._examination = PartialExamination(store)
        self._findings = self._examination.files() + self._examination.index_files()
        found = self._examination.index_shape
        if shape is None:
            # Without index files, all records with keys count as not indexed.
            shape = IndexSizes(*(found or (1, 2)))
        self._queues = store.queues()
        replayed = replayed_from(store, Checkpoint(store.root))
        highest = 0
        for queue in self._queues:
            queue.find_end()
            last = queue.entry(queue.end - 1) if queue.end > queue.begin else None
            if replayed is None and last is not None and store.log.record_at(last[0]) is not None:
                highest = max(highest, last[0] + last[1])
        unreadable = {finding.path for finding in self._findings}
        self.facts = StoreFacts(
            store.root,
            store.log.directories,
            store.log.file_size,
            tuple(LogFileSpan(*segment) for segment in store.log.segments),
            used_files(store.log) if store.log.segments else 0,
            store.abnormal,
            store.extended,
            store.queue_root,
            {(queue.topic, queue.queue_id): queue.end for queue in self._queues},
            tuple(path for path in store.index_paths() if path not in unreadable),
            shape,
            highest if replayed is None else replayed,
            replace(rules, deletions=store.deletions),
        )

    @property
    def findings(self) -> list[Finding]:
        """All findings, after the run."""
        return list(self._softened(self._findings))

    def run(self, each: Each) -> Report:
        """Run the verification. `each` calls a function for each item, and yields the results as they come."""
        facts = self.facts
        sizes = [file.size for file in facts.files]
        self._progress.begin("log", sum(sizes), "bytes")
        reports: list[LogReport] = []
        numbers = range(len(facts.files))
        for report in each(numbers, partial(check_log_file, facts)):
            reports.append(report)
            self._progress.advance(sizes[report.number])
        reports.sort(key=lambda report: report.number)
        log_end, damaged = self._after_log(reports)
        events = merged_events(reports)
        untold = Counter[QueueKey]()
        for report in reports:
            untold.update(report.untold)
        self._look(each, "queues", self._queue_tasks(events, untold, damaged), partial(check_queue, facts, log_end))
        suspects = {path for report in reports for path in report.suspects}
        tasks = self._index_tasks(suspects, damaged)
        self._look(each, "index", tasks, partial(check_index_file, facts, log_end))
        self._finish(reports, events, damaged, log_end)
        return self._report(reports, log_end)

    def _look(self, each: Each, what: str, tasks: list[Any], function: Any) -> None:
        self._progress.begin(what, len(tasks), what)
        for found in each(tasks, function):
            self._findings += found
            self._progress.advance(1)

    def _after_log(self, reports: list[LogReport]) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return the end of the log, and its damaged ranges, including missing files."""
        from rocketd.store.offline.examine_log import Missing

        facts = self.facts
        ranges: list[tuple[int, int]] = []
        before: LogFileSpan | None = None
        for number, report in enumerate(reports):
            file = facts.files[number]
            if before is not None and number < facts.used:
                for offset in range(before.offset + facts.file_size, file.offset, facts.file_size):
                    path = os.path.join(facts.log_directories[0], f"{offset:020d}")
                    missing = Missing(path, offset, offset + facts.file_size)
                    self._findings += self._examination.about(missing)
                    ranges.append((missing.begin, missing.end))
            self._findings += report.findings
            ranges += report.damaged
            before = file
        end = reports[facts.used - 1].end if facts.used else 0
        return end, tuple(ranges)

    def _queue_tasks(
        self, events: dict[QueueKey, list[QueueEvent]], untold: Counter[QueueKey], damaged: tuple[tuple[int, int], ...]
    ) -> list[VerifyTask]:
        tasks = []
        for queue in self._queues:
            key = (queue.topic, queue.queue_id)
            some = events.get(key, [])
            first = queue.first_from(self.facts.log_begin, queue.end)
            if not _explains(some, first, queue.end) or _has_odd_files(queue):
                tasks.append(VerifyTask(key, queue.file_size, first, tuple(some), True, damaged))
            elif first > queue.begin:
                # All other entries were compared with their records.
                tasks.append(VerifyTask(key, queue.file_size, first, (), False, ()))
            if untold[key]:
                path, position = queue.path_of(queue.begin)
                text = f"{untold[key]} more records of {queue.topic}-{queue.queue_id} have other entries"
                self._findings.append(
                    Finding(Severity.DAMAGE, Disorder.QUEUE_ENTRY, Remedy.REPAIR, path, position, text, queue=key)
                )
        return tasks

    def _index_tasks(self, suspects: set[str], damaged: tuple[tuple[int, int], ...]) -> list[IndexTask]:
        shape = self.facts.index_shape
        if shape is None:
            return []
        lasts = [IndexView(path, shape).last for path in self.facts.index_paths]
        filled = max((number for number, last in enumerate(lasts) if last >= 0), default=-1)
        return [
            IndexTask(number, max(lasts[:number], default=-1), number == filled, path in suspects, damaged)
            for number, path in enumerate(self.facts.index_paths)
        ]

    def _finish(
        self,
        reports: list[LogReport],
        events: dict[QueueKey, list[QueueEvent]],
        damaged: tuple[tuple[int, int], ...],
        log_end: int,
    ) -> None:
        from rocketd.spark.jobs.verify.closely import queue_findings

        facts = self.facts
        queueless = {
            key: some for key, some in events.items() if any(event.kind is SequenceEvent.NO_QUEUE for event in some)
        }
        if queueless:
            self._findings += queue_findings(facts, (), queueless, damaged, self._topics, log_end)
        late, unindexed = sum(report.late for report in reports), sum(report.unindexed for report in reports)
        directory = self._store.index_root
        if late:
            text = f"{late} records with keys at the end of the log are not indexed yet"
            self._findings.append(Finding(Severity.NOTE, Disorder.INDEX_LACKS, Remedy.START, directory, 0, text))
        if unindexed:
            text = f"{unindexed} records with keys are not indexed, as after a crash or without messageIndexEnable"
            text += "; rocketd store repair --write --index indexes them"
            self._findings.append(Finding(Severity.NOTE, Disorder.INDEX_MISSING, Remedy.NONE, directory, 0, text))
        self._findings += self._times(reports)
        latest = max((request for report in reports for request in report.tail + report.head), key=_time, default=None)
        if latest is not None:
            latest.store_timestamp = max(report.latest for report in reports)
        self._findings += self._examination.checkpoint(log_end, latest)

    def _times(self, reports: list[LogReport]) -> Iterator[Finding]:
        """Yield the findings about store times at the borders between files."""
        filled = [report for report in reports if report.records]
        edges = [report.tail + after.head for report, after in pairwise(filled)]
        seen: set[int] = {
            finding.physical_offset for report in filled for finding in report.findings if finding.physical_offset >= 0
        }
        for requests in edges:
            times = np.array([request.store_timestamp for request in requests])
            if (np.diff(times) < 0).any():
                for finding in self._examination.times(requests):
                    if finding.physical_offset not in seen:
                        seen.add(finding.physical_offset)
                        yield finding

    def _report(self, reports: list[LogReport], log_end: int) -> Report:
        root = self.facts.root
        found = sorted(self.findings, key=lambda finding: (finding.path, finding.position))
        damages = sum(finding.severity is Severity.DAMAGE for finding in found)
        shown = list(shortened(found))
        facts: dict[str, Any] = {
            "store": root,
            "damaged": bool(damages),
            "records": sum(report.records for report in reports),
            "bytes": sum(file.size for file in self.facts.files),
            "end_offset": log_end,
            "log_files": len(reports),
            "queues": len(self._queues),
            "index_files": len(self.facts.index_paths),
            "findings": [
                {
                    "severity": finding.severity.value,
                    "problem": finding.problem.value,
                    "file": os.path.relpath(finding.path, root),
                    "position": finding.position,
                    "what": finding.text,
                    "advice": finding.remedy.advice(root),
                }
                for finding in shown
            ],
        }
        return Report(facts, [finding.line(root) for finding in shown if finding.severity is Severity.DAMAGE])

    def _softened(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Downgrade the findings about index files that the next start removes anyway."""
        from msgspec.structs import replace

        from rocketd.store.offline.examine import Checkpoint
        from rocketd.store.state.last_stop import LastStop

        doomed: set[str] = set()
        shape = self.facts.index_shape
        if self._store.last_stop is LastStop.CRASHED and shape is not None:
            known = Checkpoint(self.facts.root).index
            doomed = {path for path in self.facts.index_paths if IndexView(path, shape).end_time > known}
        for finding in findings:
            if finding.path in doomed:
                yield replace(finding, severity=Severity.NOTE, remedy=Remedy.START)
            else:
                yield finding


def _time(request: Any) -> int:
    return int(request.store_timestamp)


def _explains(events: list[QueueEvent], first: int, end: int) -> bool:
    """Tell whether the records seen are exactly those of the entries from `first` to `end`."""
    if not events:
        return first >= end
    return (
        len(events) == 1 and events[0].kind is SequenceEvent.RUN and events[0].first.queue_offset <= first <= end
    ) and events[0].upto == end


def _has_odd_files(queue: Any) -> bool:
    expected = None
    for segment in queue.segments:
        if (expected is not None and segment.offset != expected) or segment.size != queue.file_size:
            return True
        expected = segment.offset + queue.file_size
    return False
