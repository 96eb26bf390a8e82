"""Finds the queues whose end does not agree with the log.

Apache's broker trusts the entries it finds, or gives the offsets of lost entries to other messages. Only the last entry
of each queue and the bytes after it are examined, so the time does not depend on the size of the store. If they
disagree, the log is right.
"""

from rocketd.common.names import LMQ_PREFIX
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, FILLER_SIZE, SCHEDULE_TOPIC
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.queue.consume_queue import MAX_OFFSET, ConsumeQueue
from rocketd.store.queue.consume_queue_ext import is_ext_address
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.recovery.file_notes import Notes, QueueCut
from rocketd.store.state.last_stop import LastStop


class QueueTails:
    """Examines the ends of queues before the recovery. Changes nothing. Belongs to the thread that starts the store."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        scanner: RecordScanner,
        notes: Notes | None,
        last_stop: LastStop,
        limit: int | None,
        last: int,
    ) -> None:
        """`limit` is the offset of the log up to which entries are certainly present; after a clean stop it is None:
        all are.

        `last` is the start of the last record before the limit, -1 without one.
        """
        self._commit_log = commit_log
        self._queues = queues
        self._scanner = scanner
        self._notes = notes
        self._last_stop = last_stop
        self._limit = MAX_OFFSET if limit is None else limit
        self._last = last
        self._written: dict[LogFile, list[tuple[int, int]]] = {}
        self._first_behind: dict[tuple[str, int], int] | None = None

    def find_damaged(self) -> list[QueueCut]:
        """Return the queues to rebuild, each after its last entry that agrees with the log."""
        cuts = []
        last = self._last_request()
        ends = self._notes.ends if self._notes is not None and self._last_stop is LastStop.CLEAN else {}
        for key, queue in self._queues.all():
            if key[0].startswith(LMQ_PREFIX):
                # Entries of a light queue point to messages of other topics.
                continue
            found = queue.search_end(self._limit)
            end = self._valid_end(queue, found)
            expected = ends.get(key, 0)
            if last is not None and key == (last.topic, last.queue_id):
                expected = (last.queue_offset + 1) * CONSUME_QUEUE_UNIT
            if end < max(found, expected) or self._is_damaged(key, queue, end):
                cuts.append(QueueCut(*key, end, max(self._end_of_record(queue, end), self._begin_of(key))))
        return cuts

    def _last_request(self) -> DispatchRequest | None:
        """Return the last record before the limit, if the queue must have an entry for it."""
        request = self._request_at(self._last) if self._last >= 0 else None
        if request is None or request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED or self._notes is None:
            return None
        noted = self._notes.queues.get((request.topic, request.queue_id))
        # Otherwise its topic was deleted, or deleted and recreated.
        return request if noted and noted[0].first <= request.physical_offset else None

    def _begin_of(self, key: tuple[str, int]) -> int:
        """Return the log offset where a queue begins. Earlier records may be those of a deleted topic."""
        noted = () if self._notes is None else self._notes.queues.get(key, ())
        return max(self._commit_log.min_offset, noted[0].first if noted else 0)

    @staticmethod
    def _end_of_record(queue: ConsumeQueue, end: int) -> int:
        entry = queue.entry_before(end)
        return 0 if entry is None or entry[1] == FILLER_SIZE else entry[0] + entry[1]

    def _valid_end(self, queue: ConsumeQueue, end: int) -> int:
        """Return the byte of the queue after its last entry, up to `end`, that agrees with its record."""
        while (entry := queue.entry_before(end)) is not None:
            offset, size, _ = entry
            if size == FILLER_SIZE or 0 <= offset < self._commit_log.min_offset or self._agrees(queue, end, entry):
                break
            end -= CONSUME_QUEUE_UNIT
        return end

    def _agrees(self, queue: ConsumeQueue, end: int, entry: tuple[int, int, int]) -> bool:
        """Return whether the entry that ends at a byte of the queue agrees with its record."""
        offset, size, tags_code = entry
        request = self._request_at(offset)
        return (
            request is not None
            and (request.size, request.topic, request.queue_id) == (size, queue.topic, queue.queue_id)
            and (request.queue_offset + 1) * CONSUME_QUEUE_UNIT == end
            # Delivery times depend on settings, and the unit of an extension may be lost.
            and (tags_code == request.tags_code or queue.topic == SCHEDULE_TOPIC or is_ext_address(tags_code))
        )

    def _is_damaged(self, key: tuple[str, int], queue: ConsumeQueue, end: int) -> bool:
        """Return whether bytes after the good end of a queue are in the place of an entry."""
        following = queue.entry_before(end + CONSUME_QUEUE_UNIT)
        if following is not None and self._agrees(queue, end + CONSUME_QUEUE_UNIT, following):
            return False
        if queue.is_zero_behind(end):
            return False
        if self._last_stop is LastStop.CLEAN:
            return True
        # An entry being written when the process ended may be torn: its record is dispatched again.
        first = self._records_behind().get(key)
        if first is None:
            return self._last_stop is LastStop.KILLED
        return first * CONSUME_QUEUE_UNIT > end

    def _records_behind(self) -> dict[tuple[str, int], int]:
        """Return the queue offset of the first record after the limit, for each queue that has one."""
        if self._first_behind is None:
            self._first_behind = {}
            offset = self._limit
            while (file := self._commit_log.queue.find(offset)) is not None:
                position = offset - file.file_from_offset
                scan = self._scanner.scan(file.view, position, self._end_in(file), file.file_from_offset, False)
                for request in scan.requests:
                    if not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
                        self._first_behind.setdefault((request.topic, request.queue_id), request.queue_offset)
                if scan.end is ScanEnd.MORE:
                    offset = file.file_from_offset + scan.position
                elif scan.end is ScanEnd.END_OF_FILE:
                    offset = file.file_from_offset + file.file_size
                else:
                    # Remains of a crash, not part of the log.
                    break
        return self._first_behind

    def _request_at(self, offset: int) -> DispatchRequest | None:
        """Return the dispatch request of the record at an offset of the log, None without one."""
        file = self._commit_log.queue.find(offset) if offset >= 0 else None
        if file is None:
            return None
        scan = self._scanner.scan(
            file.view, offset - file.file_from_offset, self._end_in(file), file.file_from_offset, False, 1
        )
        return scan.requests[0] if scan.requests else None

    def _end_in(self, file: LogFile) -> int:
        """Return the end of the data in a log file: a full memory file system has no space for the hole after it."""
        ranges = self._written.get(file)
        if ranges is None:
            ranges = self._written[file] = self._commit_log.data_ranges(file, 0)
        return ranges[-1][1] if ranges else 0
