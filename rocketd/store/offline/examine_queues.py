"""Compares the consume queues of a stopped store with its log, record by record.

Holds one cursor for each queue. Normal cases are not damage: entries of expired records, fillers, prepared and rolled
back messages without entries, queues of deleted topics, and work left by a crash to the next start.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from rocketd.store.base.findings import Disorder, Finding, Remedy, Severity
from rocketd.store.base.layout import FILLER_SIZE, SCHEDULE_TOPIC
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.offline.stopped_store import Entry, LogReader, QueueReader
from rocketd.store.state.deletions import Deletions

LMQ_PREFIX = "%LMQ%"
"""Queues of these topics also hold records of other topics. The fixed fields of a record do not tell which."""

HIGHEST_EXT_ADDRESS = -(1 << 31) - 1
"""Tags codes up to this are addresses in the extension of the queue."""


class DamagedRanges:
    """Damaged ranges of the log, in log order."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        """Add the next range."""
        self._begins.append(begin)
        self._ends.append(end)

    def __contains__(self, offset: object) -> bool:
        assert isinstance(offset, int)
        at = bisect_right(self._begins, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __bool__(self) -> bool:
        return bool(self._begins)


class _Cursor:
    """Progress of the comparison of one queue. Entries before `next` have been compared."""

    __slots__ = ("beyond", "beyond_count", "next", "queue", "reported", "superseded")

    def __init__(self, queue: QueueReader, first: int) -> None:
        self.queue = queue
        self.next = first
        self.superseded = False
        self.beyond: DispatchRequest | None = None
        """First of the records after the last entry."""
        self.beyond_count = 0
        self.reported = range(0)
        """The last run of entries found to differ from their records."""


class QueueCheck:
    """Takes every record of the log in order, then `finish`. Each call yields its findings."""

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
        """Take the facts about the store.

        - `topics`: configured topics with their number of queues, None if unknown.
        - `replayed_from`: records from here on are dispatched at the next start if they lack entries. None means
          records after the last record with an entry.
        - `extended`: tags codes may be addresses in the extension of the queues.
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
                    yield self._finding(queue, Disorder.FILE_MISSING, text, place=(segment.path, 0))
                expected = segment.offset + queue.file_size
                if segment.size != queue.file_size and not (last and not segment.size):
                    text = f"the file has {segment.size} bytes instead of {queue.file_size}"
                    yield self._finding(queue, Disorder.FILE_SIZE, text, place=(segment.path, segment.size))

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
            yield from self._wrong_entry(cursor, request, entry)
            if index == cursor.next:
                cursor.next += 1
            elif index == cursor.reported.stop:
                cursor.reported = range(cursor.reported.start, index + 1)
            else:
                cursor.reported = range(index, index + 1)
            return
        if entry[2] != request.tags_code and not (self._extended and entry[2] <= HIGHEST_EXT_ADDRESS):
            what = "delivery time" if request.topic == SCHEDULE_TOPIC else "tags code"
            text = f"entry {index} has the {what} {entry[2]}, its record at {entry[0]} has {request.tags_code}"
            yield self._finding(cursor.queue, Disorder.QUEUE_TAGS, text, index)
        if cursor.beyond is not None and index <= cursor.beyond.queue_offset:
            # Those records belong to a queue deleted since; this is a new one of the same name.
            yield from self._recreated_topic(cursor, cursor.beyond)
            cursor.beyond = None
            cursor.beyond_count = 0
        if index >= cursor.next:
            for skipped in range(cursor.next, index):
                if skipped not in cursor.reported:
                    yield from self._unclaimed(cursor.queue, skipped)
            cursor.next = index + 1

    def _is_deleted(self, request: DispatchRequest, cursor: _Cursor | None) -> bool:
        """Return whether a record's topic and queue were deleted later. A kill may have left the queue."""
        if not self._deletions.include(request.topic, request.physical_offset, request.store_timestamp):
            return False
        if cursor is None or request.queue_offset >= cursor.queue.end:
            return True
        entry = cursor.queue.entry(request.queue_offset)
        return entry is None or entry[:2] != (request.physical_offset, request.size)

    def finish(self, log_end: int) -> Iterator[Finding]:
        """Report the entries not claimed by any record of the log."""
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
                yield self._finding(queue, Disorder.QUEUE_LACKS, text, place=place, at_start=late)
            for index in range(cursor.next, queue.end):
                entry = queue.entry(index)
                if entry is not None and entry[1] != FILLER_SIZE and entry[0] + entry[1] > log_end:
                    text = f"entries {index} to {queue.end - 1} lead to records behind the end of the log at {log_end}"
                    yield self._finding(queue, Disorder.QUEUE_AHEAD, text, index, at_start=self._abnormal)
                    break
                if index not in cursor.reported:
                    yield from self._unclaimed(queue, index)
        for (topic, queue_id), count in self._late.items():
            text = f"{count} records of {topic}-{queue_id} have no entries yet"
            place = (self._log.directory, 0)
            yield Finding(Severity.NOTE, Disorder.QUEUE_LACKS, Remedy.START, *place, text, queue=(topic, queue_id))
        for (topic, queue_id), count in self._deleted.items():
            text = f"{count} records of {topic}-{queue_id} were deleted with their topic"
            place = (self._log.directory, 0)
            yield Finding(Severity.NOTE, Disorder.QUEUE_MISSING, Remedy.NONE, *place, text, queue=(topic, queue_id))
        for (topic, queue_id), count in self._queueless.items():
            place = (self._log.directory, 0)
            cause = self._why_no_queue(topic, queue_id)
            if cause:
                text = f"{count} records of {topic}-{queue_id} have no queue: {cause}"
                yield Finding(Severity.NOTE, Disorder.QUEUE_MISSING, Remedy.NONE, *place, text, queue=(topic, queue_id))
            else:
                text = f"{count} records of {topic}-{queue_id} have no queue"
                yield Finding(
                    Severity.DAMAGE, Disorder.QUEUE_MISSING, Remedy.REPAIR, *place, text, queue=(topic, queue_id)
                )

    def _why_no_queue(self, topic: str, queue_id: int) -> str:
        """Return why records may have no queue without damage, empty without a reason."""
        if self._topics is None:
            return ""
        if topic not in self._topics:
            return "the topic was deleted"
        queues = self._topics[topic]
        if 0 < queues <= queue_id:
            return f"the topic has {queues} queues: it was created again, or its queues were reduced"
        return ""

    def _wrong_entry(self, cursor: _Cursor, request: DispatchRequest, entry: Entry | None) -> Iterator[Finding]:
        """Yield the findings about a record whose entry is wrong or missing."""
        queue = cursor.queue
        index = request.queue_offset
        where = f"the record at {request.physical_offset} of {queue.topic}-{queue.queue_id}"
        if entry is None or entry[1] == FILLER_SIZE or entry == (0, 0, 0):
            kind = "no entry" if entry is None else "a filler for an entry" if entry[1] else "an empty entry"
            text = f"{where} has {kind} {index}"
            yield self._finding(queue, Disorder.QUEUE_LACKS, text, index)
            return
        other = self._log.record_at(entry[0])
        if (
            other is not None
            and (other.topic, other.queue_id, other.queue_offset) == (queue.topic, queue.queue_id, index)
            and other.size == entry[1]
        ):
            if other.physical_offset > request.physical_offset:
                # The topic was deleted and recreated: its queues restarted at offset 0.
                yield from self._recreated_topic(cursor, request)
                return
            text = f"{where} claims entry {index}, which belongs to the record at {entry[0]}"
            yield self._finding(queue, Disorder.QUEUE_ENTRY, text, index, remedy=Remedy.BACKUP)
            return
        text = f"entry {index} says offset {entry[0]} and size {entry[1]}, its record is at "
        text += f"{request.physical_offset} and has {request.size} bytes"
        yield self._finding(queue, Disorder.QUEUE_ENTRY, text, index)

    def _recreated_topic(self, cursor: _Cursor, request: DispatchRequest) -> Iterator[Finding]:
        """Report once per queue that it is younger than some of its records."""
        queue = cursor.queue
        if not cursor.superseded:
            cursor.superseded = True
            text = f"the record at {request.physical_offset} of {queue.topic}-{queue.queue_id} and maybe others are "
            text += "older than the queue: the topic was deleted and created again"
            path, position = queue.path_of(request.queue_offset)
            key = (queue.topic, queue.queue_id)
            yield Finding(Severity.NOTE, Disorder.QUEUE_LACKS, Remedy.NONE, path, position, text, queue=key)

    def _unclaimed(self, queue: QueueReader, index: int) -> Iterator[Finding]:
        """Yield the findings about an entry without a record in the log."""
        entry = queue.entry(index)
        if entry is None:
            return
        offset, size, _ = entry
        if offset < 0 or size <= 0:
            text = f"entry {index} says offset {offset} and size {size}, and entries follow"
            yield self._finding(queue, Disorder.QUEUE_ENTRY, text, index)
        elif size == FILLER_SIZE or offset < self._log.min_offset or offset in self._damaged:
            return
        else:
            record = self._log.record_at(offset)
            if record is None:
                text = f"entry {index} says offset {offset}, where no record begins"
                yield self._finding(queue, Disorder.QUEUE_ENTRY, text, index)
            elif record.size != size:
                text = f"entry {index} says a size of {size}, the record at {offset} has {record.size} bytes"
                yield self._finding(queue, Disorder.QUEUE_ENTRY, text, index)
            else:
                yield self._misplaced(queue, index, record)

    def _misplaced(self, queue: QueueReader, index: int, record: DispatchRequest) -> Finding:
        """Return the finding about an entry whose whole record names another place, or none.

        The entry is trusted: no checksum covers these fields of a record, and a damaged entry would hardly point
        exactly to a record.
        """
        path, position = queue.path_of(index)
        segment = self._log.find(record.physical_offset)
        if segment is not None:
            path, position = segment.path, record.physical_offset - segment.offset
        says = f"number {record.queue_offset} of {record.topic}-{record.queue_id}"
        if record.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
            says = f"a prepared or rolled back one of {record.topic}-{record.queue_id}, which has no entry"
        text = f"the record says that it is {says}, but entry {index} of {queue.topic}-{queue.queue_id} leads to it"
        fits = len(queue.topic.encode()) == len(record.topic.encode())
        return Finding(
            Severity.DAMAGE,
            Disorder.RECORD_PLACE,
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
        problem: Disorder,
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
