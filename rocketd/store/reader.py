"""Reading: by queue offset, by time, by key and by place in the log.

Answers to the reading half of Apache's `DefaultMessageStore`. Answers are views of the mapped log, nothing is
copied; a view stays readable as long as somebody holds it, also when its file is removed.
"""

import struct
from itertools import islice

from rocketd.store.commit_log import CommitLog
from rocketd.store.consume_queue import ConsumeQueue
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.entry_finder import EntryFinder
from rocketd.store.index_service import IndexService
from rocketd.store.layout import CONSUME_QUEUE_UNIT, FILLER_SIZE, MAX_EXT_ADDRESS, MESSAGE_MAGIC
from rocketd.store.mapped_file import LogFile
from rocketd.store.message import GetResult, GetStatus, MessageFilter, QueryResult
from rocketd.store.record import MIN_RECORD_SIZE, properties_of, store_timestamp_of
from rocketd.store.settings import MessageStoreConfig

MIN_FILTERED_ENTRIES = 800
"""A read looks at no more entries than these, or than it may return, however few of them the filter lets through."""

QUERY_ROUNDS = 3

_HEAD = struct.Struct(">ii")
"""Size and magic, with which a record begins."""


class MessageReader:
    """Any thread may call any method; what is appended meanwhile is seen or not."""

    def __init__(
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        index: IndexService | None,
        physical_memory: int,
        finder: EntryFinder,
    ) -> None:
        """`physical_memory` (bytes) of the machine tells which part of the log counts as being in memory. `finder` finds
        the records of damaged entries.
        """
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._physical_memory = physical_memory
        self._finder = finder

    def get_messages(
        self, topic: str, queue_id: int, offset: int, max_messages: int, message_filter: MessageFilter | None
    ) -> GetResult:
        """Messages of a queue from a queue offset on, at least one where there is one that the filter wants.

        As Apache's, a queue that no message was dispatched to is one without messages: NO_MATCHED_LOGIC_QUEUE is
        never answered.
        """
        queue = self._queues.find(topic, queue_id)
        max_offset = 0 if queue is None else queue.max_offset
        if queue is None or max_offset == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, self._corrected(offset, 0), 0, 0)
        min_offset = queue.min_offset
        if offset < min_offset:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, self._corrected(offset, min_offset), min_offset, max_offset)
        if offset == max_offset:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
        if offset > max_offset:
            return GetResult(
                GetStatus.OFFSET_OVERFLOW_BADLY, self._corrected(offset, max_offset), min_offset, max_offset
            )
        entries = queue.read(offset)
        if entries is None:
            following = self._corrected(offset, queue.next_file_offset(offset))
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, min_offset, max_offset)

        tags_codes = None if message_filter is None else message_filter.tags_codes
        matches_unit = None if message_filter is None else message_filter.matches_unit
        matches = None if message_filter is None else message_filter.matches
        log = self._log
        log_end = log.max_offset
        memory_begin = log_end - self._memory()
        config = self._config
        count_limit = min(max_messages, config.max_transfer_count_on_message_in_memory)
        bytes_limit = config.max_transfer_bytes_on_message_in_memory
        disk_count_limit = min(max_messages, config.max_transfer_count_on_message_in_disk)
        disk_bytes_limit = config.max_transfer_bytes_on_message_in_disk

        status = GetStatus.NO_MATCHED_MESSAGE
        buffers: list[memoryview] = []
        total = count = seen = 0
        next_file = -1
        physical = log_end
        file: LogFile | None = None
        view = memoryview(b"")
        file_from = file_size = 0
        # Adjacent records are collected as one run of bytes, positions in the view of their file.
        run_begin = run_end = -1
        last = -1
        least, magic = MIN_RECORD_SIZE, MESSAGE_MAGIC
        read_head = _HEAD.unpack_from
        for physical, size, tags_code in islice(entries, max(MIN_FILTERED_ENTRIES, max_messages)):
            if 0 <= physical < next_file or size == FILLER_SIZE:
                seen += 1
                continue
            if count:
                if physical < memory_begin:
                    if count >= disk_count_limit or total + size > disk_bytes_limit:
                        break
                elif count >= count_limit or total + size > bytes_limit:
                    break
            if not last < physical < log_end:
                # Entries lead to one record behind the other; of what a filter leaves out, the log is not looked at.
                record = self._record_of(queue, offset + seen, (physical, size, tags_code), message_filter)
                seen += 1
                if record is not None:
                    buffers += [*([view[run_begin:run_end]] if run_end > 0 else ()), record]
                    run_end = -1
                    total += len(record)
                    count += 1
                continue
            last = physical
            if matches_unit is not None and tags_code <= MAX_EXT_ADDRESS and queue.ext is not None:
                unit = queue.ext.get(tags_code)
                if unit is not None and not matches_unit(unit.store_timestamp, unit.bitmap):
                    seen += 1
                    continue
            if tags_codes is not None and tags_code not in tags_codes:
                tag = queue.tags_code_of(tags_code)
                if tag is not None and tag not in tags_codes:
                    seen += 1
                    continue
            position = physical - file_from
            if not 0 <= position < file_size:
                if run_end > 0:
                    buffers.append(view[run_begin:run_end])
                    run_end = -1
                file = log.queue.find(physical)
                if file is not None:
                    view = file.view
                    file_from = file.file_from_offset
                    file_size = file.file_size
                    position = physical - file_from
            end = position + size
            if not file.available if file is not None else not self._is_behind_kept(queue, offset + seen):
                if not count:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                next_file = log.roll(physical)
                seen += 1
                continue
            if size < least or file is None or end > file.wrote_position or read_head(view, position) != (size, magic):
                record = self._record_of(queue, offset + seen, (physical, size, tags_code), message_filter)
                seen += 1
                if record is not None:
                    buffers += [*([view[run_begin:run_end]] if run_end > 0 else ()), record]
                    run_end = -1
                    total += len(record)
                    count += 1
                continue
            if matches is not None and not matches(properties_of(view[position:end])):
                if not count:
                    status = GetStatus.NO_MATCHED_MESSAGE
                seen += 1
                continue
            if position != run_end:
                if run_end > 0:
                    buffers.append(view[run_begin:run_end])
                run_begin = position
            run_end = end
            total += size
            count += 1
            seen += 1
        if count:
            if run_end > 0:
                buffers.append(view[run_begin:run_end])
            status = GetStatus.FOUND
        return GetResult(status, offset + seen, min_offset, max_offset, buffers, total, count, physical < memory_begin)

    def _is_behind_kept(self, queue: ConsumeQueue, index: int) -> bool:
        """Whether the entry before one leads to a record that has not expired, so that this one's has not either."""
        entry = queue.entry(index - 1) if index > queue.min_offset else None
        return entry is not None and entry[1] != FILLER_SIZE and entry[0] >= self._log.min_offset >= 0

    def _record_of(
        self, queue: ConsumeQueue, index: int, entry: tuple[int, int, int], message_filter: MessageFilter | None
    ) -> memoryview | None:
        """The record of an entry that seems to be damaged; None if there is none, or the filter does not want it."""
        found = self._finder.find(queue, index, entry)
        record = None if found is None else self._log.record_at(found[0])
        if found is None or record is None:
            return None
        if message_filter is not None:
            codes, matches = message_filter.tags_codes, message_filter.matches
            tag = None if codes is None else queue.tags_code_of(found[2])
            if (codes is not None and tag is not None and tag not in codes) or (
                matches is not None and not matches(properties_of(record))
            ):
                return None
        return record

    def get_max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the last visible message, 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def get_min_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the first message still there, 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def get_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the message stored nearest to a time, as 4.x searches: within the first file that reaches
        that time.

        0 for a queue without messages, the last message for a time in the future.
        """
        queue = self._queues.find(topic, queue_id)
        files = [] if queue is None else [file for file in queue.files.files if file.wrote_position]
        if queue is None or not files:
            return 0
        chosen = files[-1]
        for file in files[:-1]:
            last = (file.file_from_offset + file.wrote_position) // CONSUME_QUEUE_UNIT - 1
            if self._time_of(queue, last) >= timestamp_ms:
                chosen = file
                break
        first = chosen.file_from_offset // CONSUME_QUEUE_UNIT
        low = max(queue.min_offset - first, 0)
        high = chosen.wrote_position // CONSUME_QUEUE_UNIT - 1
        left = right = -1
        left_time = right_time = -1
        while low <= high:
            middle = (low + high) // 2
            entry = queue.entry(first + middle)
            if entry is None or entry[0] < self._log.min_offset:
                low = middle + 1
                continue
            stored = self._log.store_timestamp_at(entry[0], entry[1])
            if stored < 0:
                return 0
            if stored == timestamp_ms:
                return first + middle
            if stored > timestamp_ms:
                high, right, right_time = middle - 1, middle, stored
            else:
                low, left, left_time = middle + 1, middle, stored
        if left < 0 and right < 0:
            return queue.min_offset
        if left < 0:
            return first + right
        if right < 0:
            return first + left
        return first + (right if timestamp_ms - left_time > right_time - timestamp_ms else left)

    def get_earliest_time(self, topic: str, queue_id: int) -> int:
        """Store time in ms of the first message of a queue, -1 where there is none."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._time_of(queue, queue.min_offset)

    def get_store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time in ms of the message at a queue offset, -1 where there is none."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._time_of(queue, offset)

    def queue_entries(self, topic: str, queue_id: int, offset: int, limit: int) -> list[tuple[int, int, int]]:
        """Entries of a queue from a queue offset on, at most so many, of one file: physical offset, size, tags code.

        The tags code of an entry of an extended queue is as its unit has it, or its address where that is lost.
        """
        queue = self._queues.find(topic, queue_id)
        entries = None if queue is None else queue.read(offset)
        if queue is None or entries is None:
            return []
        found = list(islice(entries, limit))
        if queue.ext is None:
            return found
        return [
            (entry[0], entry[1], entry[2] if (tag := queue.tags_code_of(entry[2])) is None else tag) for entry in found
        ]

    def look_message(self, physical_offset: int) -> memoryview | None:
        """The record that begins at an offset of the log; None where none does."""
        return self._log.record_at(physical_offset)

    def query_messages(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Messages by key (one of KEYS, or UNIQ_KEY) and store time. Other keys of the same hash may be among them."""
        result = QueryResult([], 0, 0)
        for _ in range(QUERY_ROUNDS if self._index is not None else 0):
            assert self._index is not None
            found = self._index.query(topic, key, max_num, begin_ms, end_ms)
            if not found.offsets:
                break
            result.index_last_update_timestamp = found.index_last_update_timestamp
            result.index_last_update_phyoffset = found.index_last_update_physical_offset
            # A message that was indexed again after a crash is there twice.
            records = [self._log.record_at(offset) for offset in sorted(set(found.offsets))]
            result.buffers = [record for record in records if record is not None]
            if result.buffers or not records:
                break
        return result

    def is_on_disk(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message lies so far back in the log that it has to be read from the disk; false where there is
        none.
        """
        queue = self._queues.find(topic, queue_id)
        entry = None if queue is None else queue.entry(offset)
        return entry is not None and self._log.max_offset - entry[0] > self._memory()

    def _time_of(self, queue: ConsumeQueue, offset: int) -> int:
        entry = queue.entry(offset)
        if entry is None:
            return -1
        record = self._log.select(entry[0], entry[1])
        return -1 if record is None else store_timestamp_of(record)

    def _memory(self) -> int:
        return self._physical_memory * self._config.access_message_in_memory_max_ratio // 100

    def _corrected(self, offset: int, proper: int) -> int:
        """Where to go on from a wrong offset: a slave, whose queues may be behind, leaves that to the master."""
        config = self._config
        return offset if config.broker_role == "SLAVE" and not config.offset_check_in_slave else proper
