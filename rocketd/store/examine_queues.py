"""Compares the consume queues of a stopped store with its log, record by record.

Answers to nothing in Apache's code. Holds one cursor for each queue. What is normal is told from damage: entries of
expired records, fillers, prepared and rolled back messages without entries, queues of deleted topics, what a crash left
for the next start to do.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from rocketd.store.deletions import Deletions
from rocketd.store.findings import Finding, Problem, Remedy, Severity
from rocketd.store.layout import FILLER_SIZE, SCHEDULE_TOPIC
from rocketd.store.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.stopped_store import Entry, LogReader, QueueReader

LMQ_PREFIX = "%LMQ%"
"""Queues of these topics hold records of other topics too; the log does not say in its fixed fields which."""

HIGHEST_EXT_ADDRESS = -(1 << 31) - 1
"""Tags codes up to this are places in the extension of the queue."""


class DamagedRanges:
    """Stretches of the log that were found damaged, in the order of the log."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        """Take the next stretch."""
        self._begins.append(begin)
        self._ends.append(end)

    def __contains__(self, offset: object) -> bool:
        assert isinstance(offset, int)
        at = bisect_right(self._begins, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __bool__(self) -> bool:
        return bool(self._begins)


class _Cursor:
    """Where the comparison of one queue is: entries before `next` have been accounted for."""

    __slots__ = ("beyond", "beyond_count", "next", "queue", "reported", "superseded")

    def __init__(self, queue: QueueReader, first: int) -> None:
        self.queue = queue
        self.next = first
        self.superseded = False
        self.beyond: DispatchRequest | None = None
        """First of the records that lie behind the last entry."""
        self.beyond_count = 0
        self.reported = range(0)
        """The last run of entries that were found to be other than their records say."""


class QueueCheck:
    """Gets every record of the log in order, then `finish`; each call yields what it finds wrong."""

    def __init__(
        self,
        queues: list[QueueReader],
        log: LogReader,
        damaged: DamagedRanges,
        *,
        topics: Mapping[str, int] | None,
        deletions: Deletions,
        replayed_from: int | None,
        abnormal: bool,
        extended: bool,
    ) -> None:
        """`topics` are those configured and how many queues each has, None when that is not known. Records from
        `replayed_from` on are dispatched at the next start if they lack entries; None means those behind the last record
        that has an entry. `extended`: tags codes may be places in the extension of the queues.
        """
        self._log = log
        self._damaged = damaged
        self._topics = topics
        self._deletions = deletions
        self._abnormal = abnormal
        self._extended = extended
        self._cursors: dict[tuple[str, int], _Cursor] = {}
        self._queueless: dict[tuple[str, int], int] = {}
        self._late: dict[tuple[str, int], int] = {}
        self._deleted: dict[tuple[str, int], int] = {}
        highest = 0
        for queue in queues:
            queue.find_end()
            first = queue.first_from(log.min_offset, queue.end)
            self._cursors[queue.topic, queue.queue_id] = _Cursor(queue, first)
            last = queue.entry(queue.end - 1) if queue.end > queue.begin else None
            if last is not None and last[1] != FILLER_SIZE and log.record_at(last[0]) is not None:
                highest = max(highest, last[0] + last[1])
        self.replayed_from = highest if replayed_from is None else replayed_from

    def sizes(self) -> Iterator[Finding]:
        """Check the files before their entries."""
        for cursor in self._cursors.values():
            queue = cursor.queue
            expected = None
            for segment in queue.segments:
                last = segment is queue.segments[-1]
                if expected is not None and segment.offset != expected:
                    text = f"the queue's files from offset {expected} to {segment.offset} are missing"
                    yield self._finding(queue, Problem.FILE_MISSING, text, place=(segment.path, 0))
                expected = segment.offset + queue.file_size
                if segment.size != queue.file_size and not (last and not segment.size):
                    text = f"the file has {segment.size} bytes where {queue.file_size} belong"
                    yield self._finding(queue, Problem.FILE_SIZE, text, place=(segment.path, segment.size))

    def record(self, request: DispatchRequest) -> Iterator[Finding]:
        """Compare one record with its entry."""
        if request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
            return
        key = (request.topic, request.queue_id)
        cursor = self._cursors.get(key)
        if request.physical_offset < self._deletions.upto and self._is_deleted(request, cursor):
            self._deleted[key] = self._deleted.get(key, 0) + 1
            return
        if cursor is None:
            if request.physical_offset < self.replayed_from:
                self._queueless[key] = self._queueless.get(key, 0) + 1
            else:
                self._late[key] = self._late.get(key, 0) + 1
            return
        index = request.queue_offset
        entry = cursor.queue.entry(index) if index < cursor.queue.end else None
        if index >= cursor.queue.end:
            cursor.beyond = cursor.beyond or request
            cursor.beyond_count += 1
            return
        if entry is None or entry[0] != request.physical_offset or entry[1] != request.size:
            yield from self._differs(cursor, request, entry)
            if index == cursor.next:
                cursor.next += 1
            elif index == cursor.reported.stop:
                cursor.reported = range(cursor.reported.start, index + 1)
            else:
                cursor.reported = range(index, index + 1)
            return
        if entry[2] != request.tags_code and not (self._extended and entry[2] <= HIGHEST_EXT_ADDRESS):
            what = "delivery time" if request.topic == SCHEDULE_TOPIC else "tags code"
            text = f"entry {index} has the {what} {entry[2]}, the record at {entry[0]} makes it {request.tags_code}"
            yield self._finding(cursor.queue, Problem.QUEUE_TAGS, text, index)
        if cursor.beyond is not None and index <= cursor.beyond.queue_offset:
            # Those records were of a queue that was deleted since, and of which this is a new one.
            yield from self._made_again(cursor, cursor.beyond)
            cursor.beyond = None
            cursor.beyond_count = 0
        if index >= cursor.next:
            for skipped in range(cursor.next, index):
                if skipped not in cursor.reported:
                    yield from self._unclaimed(cursor.queue, skipped)
            cursor.next = index + 1

    def _is_deleted(self, request: DispatchRequest, cursor: _Cursor | None) -> bool:
        """Whether a record's topic was deleted since, and its queue with it: a kill may have left that."""
        if not self._deletions.include(request.topic, request.physical_offset, request.store_timestamp):
            return False
        if cursor is None or request.queue_offset >= cursor.queue.end:
            return True
        entry = cursor.queue.entry(request.queue_offset)
        return entry is None or entry[:2] != (request.physical_offset, request.size)

    def finish(self, log_end: int) -> Iterator[Finding]:
        """Look at what no record of the log has claimed."""
        for cursor in self._cursors.values():
            queue = cursor.queue
            if queue.topic.startswith(LMQ_PREFIX):
                continue
            if cursor.beyond is not None:
                first = cursor.beyond
                late = first.physical_offset >= self.replayed_from
                text = f"{cursor.beyond_count} records of {queue.topic}-{queue.queue_id}, the first at "
                text += f"{first.physical_offset} with queue offset {first.queue_offset}, have no entries"
                place = queue.path_of(first.queue_offset)
                yield self._finding(queue, Problem.QUEUE_LACKS, text, place=place, at_start=late)
            for index in range(cursor.next, queue.end):
                entry = queue.entry(index)
                if entry is not None and entry[1] != FILLER_SIZE and entry[0] + entry[1] > log_end:
                    text = f"entries {index} to {queue.end - 1} mean records behind the end of the log at {log_end}"
                    yield self._finding(queue, Problem.QUEUE_AHEAD, text, index, at_start=self._abnormal)
                    break
                if index not in cursor.reported:
                    yield from self._unclaimed(queue, index)
        for (topic, queue_id), count in self._late.items():
            text = f"{count} records of {topic}-{queue_id} have no entries yet"
            place = (self._log.directory, 0)
            yield Finding(Severity.NOTE, Problem.QUEUE_LACKS, Remedy.START, *place, text, queue=(topic, queue_id))
        for (topic, queue_id), count in self._deleted.items():
            text = f"{count} records of {topic}-{queue_id} were deleted with their topic"
            place = (self._log.directory, 0)
            yield Finding(Severity.NOTE, Problem.QUEUE_MISSING, Remedy.NONE, *place, text, queue=(topic, queue_id))
        for (topic, queue_id), count in self._queueless.items():
            place = (self._log.directory, 0)
            cause = self._why_no_queue(topic, queue_id)
            if cause:
                text = f"{count} records of {topic}-{queue_id} have no queue: {cause}"
                yield Finding(Severity.NOTE, Problem.QUEUE_MISSING, Remedy.NONE, *place, text, queue=(topic, queue_id))
            else:
                text = f"{count} records of {topic}-{queue_id} have no queue"
                yield Finding(
                    Severity.DAMAGE, Problem.QUEUE_MISSING, Remedy.REPAIR, *place, text, queue=(topic, queue_id)
                )

    def _why_no_queue(self, topic: str, queue_id: int) -> str:
        """Why records may have no queue without damage; empty if there is no reason."""
        if self._topics is None:
            return ""
        if topic not in self._topics:
            return "the topic was deleted"
        queues = self._topics[topic]
        if 0 < queues <= queue_id:
            return f"the topic has {queues} queues, it was made again or made smaller"
        return ""

    def _differs(self, cursor: _Cursor, request: DispatchRequest, entry: Entry | None) -> Iterator[Finding]:
        """What it means that a record's entry is another, or none."""
        queue = cursor.queue
        index = request.queue_offset
        where = f"the record at {request.physical_offset} of {queue.topic}-{queue.queue_id}"
        if entry is None or entry[1] == FILLER_SIZE or entry == (0, 0, 0):
            kind = "no entry" if entry is None else "a filler for an entry" if entry[1] else "an empty entry"
            text = f"{where} has {kind} {index}"
            yield self._finding(queue, Problem.QUEUE_LACKS, text, index)
            return
        other = self._log.record_at(entry[0])
        if (
            other is not None
            and (other.topic, other.queue_id, other.queue_offset) == (queue.topic, queue.queue_id, index)
            and other.size == entry[1]
        ):
            if other.physical_offset > request.physical_offset:
                # The topic was deleted and made again: its queues began again with offset 0.
                yield from self._made_again(cursor, request)
                return
            text = f"{where} says that it has entry {index}, which the record at {entry[0]} has"
            yield self._finding(queue, Problem.QUEUE_ENTRY, text, index, remedy=Remedy.BACKUP)
            return
        text = f"entry {index} says offset {entry[0]} and size {entry[1]}, its record is at "
        text += f"{request.physical_offset} and has {request.size} bytes"
        yield self._finding(queue, Problem.QUEUE_ENTRY, text, index)

    def _made_again(self, cursor: _Cursor, request: DispatchRequest) -> Iterator[Finding]:
        """Say once of a queue that it is younger than some of its records."""
        queue = cursor.queue
        if not cursor.superseded:
            cursor.superseded = True
            text = f"the record at {request.physical_offset} of {queue.topic}-{queue.queue_id} and maybe others are "
            text += "older than the queue: the topic was deleted and made again"
            path, position = queue.path_of(request.queue_offset)
            key = (queue.topic, queue.queue_id)
            yield Finding(Severity.NOTE, Problem.QUEUE_LACKS, Remedy.NONE, path, position, text, queue=key)

    def _unclaimed(self, queue: QueueReader, index: int) -> Iterator[Finding]:
        """What it means that no record of the log has this entry."""
        entry = queue.entry(index)
        if entry is None:
            return
        offset, size, _ = entry
        if offset < 0 or size <= 0:
            text = f"entry {index} says offset {offset} and size {size}, and entries follow"
            yield self._finding(queue, Problem.QUEUE_ENTRY, text, index)
        elif size == FILLER_SIZE or offset < self._log.min_offset or offset in self._damaged:
            return
        else:
            record = self._log.record_at(offset)
            if record is None:
                text = f"entry {index} says offset {offset}, where no record begins"
                yield self._finding(queue, Problem.QUEUE_ENTRY, text, index)
            elif record.size != size:
                text = f"entry {index} says a size of {size}, the record at {offset} has {record.size} bytes"
                yield self._finding(queue, Problem.QUEUE_ENTRY, text, index)
            else:
                yield self._misplaced(queue, index, record)

    def _misplaced(self, queue: QueueReader, index: int, record: DispatchRequest) -> Finding:
        """An entry means a whole record that says it belongs elsewhere, or nowhere.

        The entry is believed: no checksum covers these fields of a record, and a damaged entry would hardly mean
        exactly a record.
        """
        path, position = queue.path_of(index)
        segment = self._log.find(record.physical_offset)
        if segment is not None:
            path, position = segment.path, record.physical_offset - segment.offset
        says = f"number {record.queue_offset} of {record.topic}-{record.queue_id}"
        if record.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
            says = f"a prepared or rolled back one of {record.topic}-{record.queue_id}, which has no entry"
        text = f"the record says that it is {says}, but entry {index} of {queue.topic}-{queue.queue_id} means it"
        fits = len(queue.topic.encode()) == len(record.topic.encode())
        return Finding(
            Severity.DAMAGE,
            Problem.RECORD_PLACE,
            Remedy.REPAIR if fits else Remedy.BACKUP,
            path,
            position,
            text,
            record.physical_offset,
            record.size,
            (queue.topic, queue.queue_id),
            index,
        )

    def _finding(
        self,
        queue: QueueReader,
        problem: Problem,
        text: str,
        index: int = -1,
        *,
        place: tuple[str, int] | None = None,
        at_start: bool = False,
        remedy: Remedy = Remedy.REPAIR,
    ) -> Finding:
        path, position = place or queue.path_of(index)
        severity = Severity.NOTE if at_start else Severity.DAMAGE
        key = (queue.topic, queue.queue_id)
        return Finding(severity, problem, Remedy.START if at_start else remedy, path, position, text, queue=key)
