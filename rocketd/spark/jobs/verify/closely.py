"""The store's examination, for the parts of a store in which the quick check found a problem.

The findings are those of `rocketd.store.offline.examine`. Each function examines one file or one queue, so that many
can run at the same time. Reads only; runs in Spark's tasks, and does not import PySpark.
"""

from collections.abc import Iterator, Mapping, Sequence

from rocketd.spark.jobs.stopped_store.dispatched import QueueKey
from rocketd.spark.jobs.verify.task_values import QueueEvent, SequenceEvent, StoreFacts
from rocketd.store.base.findings import Finding
from rocketd.store.format.message import DispatchRequest
from rocketd.store.offline.examine import Examination
from rocketd.store.offline.examine_index import IndexCheck, IndexReader, IndexShape, check_file
from rocketd.store.offline.examine_log import Damaged, Event, ExaminedEnd, LogWalk, Missing, Records, WrongFiller
from rocketd.store.offline.examine_queues import DamagedRanges, QueueCheck
from rocketd.store.offline.stopped_store import LogReader, QueueReader, Segment, StoppedStore

Seen = tuple[list[DispatchRequest], list[Finding], list[tuple[int, int]], int]
"""Consecutive records, findings, damaged ranges of the log, and the offset reached in the log."""


class PartialExamination(Examination):
    """The examination, used for its findings about results from other code."""

    def about(self, event: Event) -> list[Finding]:
        """Return the findings about a part of the log without records."""
        return list(self._log_finding(event))

    def files(self) -> list[Finding]:
        """Return the findings about the lengths of the log's files."""
        return list(self._log_files())

    def index_files(self) -> list[Finding]:
        """Return the findings about unreadable index files, and set `index_shape`."""
        return self._index_readers()[1]

    def times(self, requests: Sequence[DispatchRequest]) -> list[Finding]:
        """Return the findings about store times of consecutive records."""
        watch = type(self._times)()
        return [self._time_finding(suspect) for request in requests for suspect in watch.see(request)]

    def checkpoint(self, log_end: int, latest: DispatchRequest | None) -> list[Finding]:
        """Return the findings about the checkpoint, given the end of the log and its latest record."""
        self.log_end = log_end
        self._times = type(self._times)()
        if latest is not None:
            self._times.see(latest)
        return list(self._check_checkpoint())


class _FileWalk(LogWalk):
    def file_events(self, segment: Segment, is_last: bool) -> Iterator[Event]:
        ended = False
        for event in self._walk(segment, 0, is_last):
            ended = ended or isinstance(event, ExaminedEnd)
            yield event
        if is_last and not ended:
            yield ExaminedEnd(segment, segment.end, segment.end, "")

    def used(self) -> int:
        """Return the number of files up to the last one with a record."""
        return len(self._used())


def used_files(log: LogReader) -> int:
    """Return the number of a log's files up to the last one with a record; 1 without records."""
    return _FileWalk(log, None, False).used()


def _log(facts: StoreFacts) -> LogReader:
    return LogReader(facts.log_directories, facts.file_size)


def _delays(facts: StoreFacts):  # type: ignore[no-untyped-def]  # noqa: ANN202
    return facts.rules.deliver_ms if facts.rules.delays_ms else None


def log_events(facts: StoreFacts, number: int) -> Iterator[Seen]:
    """Walk one file of the log record by record."""
    log = _log(facts)
    examination = PartialExamination(StoppedStore(facts.root, facts.log_directories))
    examination.store.log = log
    file = facts.files[number]
    segment = Segment(file.path, file.offset, file.size)
    for event in _FileWalk(log, _delays(facts), facts.abnormal).file_events(segment, number == facts.used - 1):
        if isinstance(event, Records):
            last = event.requests[-1]
            yield event.requests, [], [], last.physical_offset + last.size
        elif isinstance(event, Damaged | Missing):
            yield [], examination.about(event), [(event.begin, event.end)], event.end
        elif isinstance(event, WrongFiller):
            yield [], examination.about(event), [], segment.end
        else:
            yield [], examination.about(event), [], event.offset


def log_requests(facts: StoreFacts, number: int, begin: int) -> Iterator[tuple[list[DispatchRequest], list[Finding]]]:
    """Walk one file of the log from an offset on, record by record: records to dispatch, and findings.

    A record with a wrong CRC is dispatched too, because everything except its body is valid.
    """
    examination = PartialExamination(StoppedStore(facts.root, facts.log_directories))
    log = _log(facts)
    examination.store.log = log
    segment = Segment(*facts.files[number])
    for event in _FileWalk(log, _delays(facts), facts.abnormal).file_events(segment, number == facts.used - 1):
        if isinstance(event, Records):
            yield [request for request in event.requests if request.physical_offset >= begin], []
        elif isinstance(event, Damaged):
            again = event.request is not None and event.begin >= begin
            yield [event.request] if again and event.request is not None else [], examination.about(event)
        else:
            yield [], examination.about(event)


def time_findings(facts: StoreFacts, requests: Sequence[DispatchRequest]) -> list[Finding]:
    """Return the findings about store times of consecutive records."""
    return PartialExamination(StoppedStore(facts.root, facts.log_directories)).times(requests)


def damaged_ranges(ranges: Sequence[tuple[int, int]]) -> DamagedRanges:
    """Return the damaged ranges of the log, given in its order, in the form of the examination."""
    result = DamagedRanges()
    for begin, end in ranges:
        result.add(begin, end)
    return result


class _QueueEvents(QueueCheck):
    """Checks a queue against compared records, and needs only those with a missing or a wrong entry."""

    def see(self, key: QueueKey, event: QueueEvent) -> Iterator[Finding]:
        if event.kind is SequenceEvent.NO_QUEUE:
            counts = self._queueless if event.first.physical_offset < self.replayed_from else self._late
            counts[key] = counts.get(key, 0) + event.count
            return
        yield from self.record(event.first)
        cursor = self._cursors[key]
        if event.kind is SequenceEvent.RUN:
            cursor.next = max(cursor.next, event.upto)
        elif event.kind is SequenceEvent.BEYOND:
            cursor.beyond_count += event.count - 1


def queue_findings(
    facts: StoreFacts,
    queues: Sequence[QueueReader],
    events: dict[QueueKey, list[QueueEvent]],
    damaged: Sequence[tuple[int, int]],
    topics: Mapping[str, int] | None,
    log_end: int,
) -> list[Finding]:
    """Return the findings about queues, from the events of their records; without queues, about records without one."""
    check = _QueueEvents(
        list(queues),
        _log(facts),
        damaged_ranges(damaged),
        topics=topics,
        deletions=facts.rules.deletions,
        replayed_from=facts.replayed_from,
        abnormal=facts.abnormal,
        extended=facts.extended,
    )
    found = list(check.sizes())
    for key, some in events.items():
        for event in some:
            found += check.see(key, event)
    found += check.finish(log_end)
    return found


def _requests(events: Iterator[Event], begin: int) -> Iterator[DispatchRequest]:
    """Yield the records from an offset of the log on."""
    for event in events:
        if isinstance(event, Records):
            yield from (request for request in event.requests if request.physical_offset >= begin)


def index_findings(
    facts: StoreFacts, number: int, is_last: bool, damaged: Sequence[tuple[int, int]], log_end: int, *, closely: bool
) -> list[Finding]:
    """Return the findings about one index file: alone, and with `closely` also against its records.

    `is_last` means no later file has an entry.
    """
    assert facts.index_shape is not None
    shape = IndexShape(facts.index_shape.slots, facts.index_shape.entries)
    path = facts.index_paths[number]
    reader = IndexReader(path)
    found = list(check_file(reader, shape, in_doubt=facts.abnormal))
    if not closely:
        return found
    offsets = [offset for _, offset, _, _ in reader.entries(shape) if offset >= facts.log_begin]
    if not offsets:
        return found
    begin, end = min(offsets), log_end if is_last else max(offsets)
    near = [IndexReader(other) for other in facts.index_paths[max(0, number - 1) : number + 2]]
    check = IndexCheck(near, shape, begin, damaged_ranges(damaged), facts.replayed_from)
    log = _log(facts)
    segment = log.find(begin)
    walk = LogWalk(log, _delays(facts), facts.abnormal)
    seen: list[Finding] = []
    for request in _requests(walk.events(segment.offset if segment else 0), begin):
        seen += check.record(request)
        if request.physical_offset > end:
            # Including this record: it shows that no record has the last entries.
            break
    if is_last or end >= log_end:
        seen += check.finish(log_end, facts.root)
    # Totals, and findings about neighbouring files, are reported elsewhere.
    return found + [finding for finding in seen if finding.path == path]
