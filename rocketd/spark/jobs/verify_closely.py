"""The store's own examination, for the parts of a store in which the quick look found something.

Answers to `rocketd.store.examine`, whose findings these are, in its words. Each function looks at one file or one queue, so
that many can be looked at at the same time. Reads only; runs in Spark's tasks, and imports no PySpark.
"""

from collections.abc import Iterator, Mapping, Sequence

from rocketd.spark.jobs.dispatched import QueueKey
from rocketd.spark.jobs.verify_facts import EventKind, QueueEvent, StoreFacts
from rocketd.store.examine import Examination
from rocketd.store.examine_index import IndexCheck, IndexReader, IndexShape, check_file
from rocketd.store.examine_log import Damaged, Event, LogEnd, LogWalk, Missing, Records, WrongFiller
from rocketd.store.examine_queues import DamagedRanges, QueueCheck
from rocketd.store.findings import Finding
from rocketd.store.message import DispatchRequest
from rocketd.store.stopped_store import LogReader, QueueReader, Segment, StoppedStore

Seen = tuple[list[DispatchRequest], list[Finding], list[tuple[int, int]], int]
"""Records that follow each other, findings, damaged stretches of the log, and the offset that the log reaches up to."""


class PartialExamination(Examination):
    """The examination's words for what was found elsewhere."""

    def about(self, event: Event) -> list[Finding]:
        """What is to be said of a part of the log that is no records."""
        return list(self._log_finding(event))

    def files(self) -> list[Finding]:
        """What is wrong with the lengths of the log's files."""
        return list(self._log_files())

    def index_files(self) -> list[Finding]:
        """What is wrong with index files that cannot even be read; `index_shape` is known then."""
        return self._index_readers()[1]

    def times(self, requests: Sequence[DispatchRequest]) -> list[Finding]:
        """What is odd about the store times of records that follow each other."""
        watch = type(self._times)()
        return [self._time_finding(suspect) for request in requests for suspect in watch.see(request)]

    def checkpoint(self, log_end: int, latest: DispatchRequest | None) -> list[Finding]:
        """What is wrong with the checkpoint of a log that ends there, and whose latest record is that."""
        self.log_end = log_end
        self._times = type(self._times)()
        if latest is not None:
            self._times.see(latest)
        return list(self._check_checkpoint())


class _FileWalk(LogWalk):
    def file_events(self, segment: Segment, is_last: bool) -> Iterator[Event]:
        ended = False
        for event in self._walk(segment, 0, is_last):
            ended = ended or isinstance(event, LogEnd)
            yield event
        if is_last and not ended:
            yield LogEnd(segment, segment.end, segment.end, "")

    def used(self) -> int:
        """How many of the files there are up to the last that holds a record."""
        return len(self._used())


def used_files(log: LogReader) -> int:
    """How many of a log's files there are up to the last that holds a record; 1 where none does."""
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
    """Walk one file of the log record by record, from an offset of the log on: what is to be dispatched, and damages.

    A record of wrong CRC is dispatched too: all but its body is there.
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
    """What is odd about the store times of records that follow each other."""
    return PartialExamination(StoppedStore(facts.root, facts.log_directories)).times(requests)


def damaged_ranges(ranges: Sequence[tuple[int, int]]) -> DamagedRanges:
    """The stretches of the log, which are in its order, as the examination keeps them."""
    result = DamagedRanges()
    for begin, end in ranges:
        result.add(begin, end)
    return result


class _QueueEvents(QueueCheck):
    """Compares a queue with records that were compared already, but for those that have no, or another, entry."""

    def see(self, key: QueueKey, event: QueueEvent) -> Iterator[Finding]:
        if event.kind is EventKind.NO_QUEUE:
            counts = self._queueless if event.first.physical_offset < self.replayed_from else self._late
            counts[key] = counts.get(key, 0) + event.count
            return
        yield from self.record(event.first)
        cursor = self._cursors[key]
        if event.kind is EventKind.RUN:
            cursor.next = max(cursor.next, event.upto)
        elif event.kind is EventKind.BEYOND:
            cursor.beyond_count += event.count - 1


def queue_findings(
    facts: StoreFacts,
    queues: Sequence[QueueReader],
    events: dict[QueueKey, list[QueueEvent]],
    damaged: Sequence[tuple[int, int]],
    topics: Mapping[str, int] | None,
    log_end: int,
) -> list[Finding]:
    """What is wrong with queues, given what was seen of their records; with no queues, of records without any."""
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
    """The records from an offset of the log on."""
    for event in events:
        if isinstance(event, Records):
            yield from (request for request in event.requests if request.physical_offset >= begin)


def index_findings(
    facts: StoreFacts, number: int, is_last: bool, damaged: Sequence[tuple[int, int]], log_end: int, *, closely: bool
) -> list[Finding]:
    """What is wrong with one index file: by itself, and `closely` also beside the records that it is about.

    `is_last` says that no later file has an entry.
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
            # This one, too: it shows that no record has the last entries.
            break
    if is_last or end >= log_end:
        seen += check.finish(log_end, facts.root)
    # What is summed up, and what is about the neighbours, is said elsewhere.
    return found + [finding for finding in seen if finding.path == path]
