"""Reading by queue offset, by time, by key and by place in the log.

Counterpart: the reading half of `DefaultMessageStore` (Apache). Answers are views of the mapped log, without a copy. A
view stays readable as long as it is referenced, even if its file is removed.
"""

import mmap
import struct
from itertools import islice

from rocketd.store.base.errors import RecordSoughtError
from rocketd.store.base.layout import FILLER_SIZE, MAX_EXT_ADDRESS, MESSAGE_MAGIC
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    GetResult,
    GetStatus,
    MessageFilter,
    QueryResult,
)
from rocketd.store.format.record import MIN_RECORD_SIZE, properties_of, store_timestamp_of, stored_topic, topic_position
from rocketd.store.index.service import IndexService
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.queue import record_run
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.queue.entry_finder import EntryFinder

MIN_FILTERED_ENTRIES = 800
"""Limit of entries looked at by one read, unless more messages are requested. It applies even if a filter rejects most.
"""

QUERY_ROUNDS = 3

_OFFSET = struct.Struct(">q")
"""Physical offset at the start of a queue entry."""

_HEAD = struct.Struct(">ii4xi4xq8xi44xI")
"""Size and magic at the start of a record, then queue id, queue offset, sysFlag and, without IPv6, body length."""
_V6_FLAGS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6


class MessageReader:
    """Reads the store. Any thread may call any method. Concurrent appends may or may not be seen."""

    def __init__(
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        index: IndexService | None,
        physical_memory: int,
        finder: EntryFinder,
    ) -> None:
        """Set the machine's `physical_memory` in bytes and the `finder` of damaged entries.

        The memory decides how much of the log counts as being in memory.
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
        """Return messages of a queue from a queue offset on, at least one if the filter wants one.

        As in Apache, a queue without dispatched messages is an empty queue: NO_MATCHED_LOGIC_QUEUE is never returned. A
        long search for the record of a damaged entry is shared among reads: the next one begins with that entry.
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
        if record_run.COMPILED and (
            message_filter is None or (message_filter.matches is None and message_filter.matches_unit is None)
        ):
            tags_codes = None if message_filter is None else message_filter.tags_codes
            found = self._get_run(queue, offset, max_messages, min_offset, max_offset, tags_codes)
            if found is not None:
                return found
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
        total = count = 0
        index = offset
        next_file = -1
        physical = log_end
        file: LogFile | None = None
        view = memoryview(b"")
        data: mmap.mmap | bytes = b""
        file_from = file_size = written = 0
        # Adjacent records are collected as one run of bytes, positions in the view of their file.
        run_begin = run_end = -1
        last = -1
        least, magic = MIN_RECORD_SIZE, MESSAGE_MAGIC
        read_head = _HEAD.unpack_from
        topic_bytes = queue.stored_topic
        head_size, topic_size = _HEAD.size, len(topic_bytes)
        is_light = queue.is_light
        for physical, size, tags_code in islice(entries, max(MIN_FILTERED_ENTRIES, max_messages)):
            if size == FILLER_SIZE or next_file > physical >= 0:
                index += 1
                continue
            if count:
                if physical < memory_begin:
                    if count >= disk_count_limit or total + size > disk_bytes_limit:
                        break
                elif count >= count_limit or total + size > bytes_limit:
                    break
            if not last < physical < log_end:
                # The records of entries follow each other in the log. The log is not read for messages left out by a
                # filter.
                try:
                    record = self._record_of(queue, index, (physical, size, tags_code), message_filter)
                except RecordSoughtError:
                    # The read ends before the message: the next one goes on with the search.
                    break
                index += 1
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
                    index += 1
                    continue
            if tags_codes is not None and tags_code not in tags_codes:
                tag = queue.tags_code_of(tags_code)
                if (
                    tag is not None
                    and tag not in tags_codes
                    and (
                        (proved := queue.proved_tags) is None
                        or tag in proved
                        or self._is_left_out(queue, index, (physical, size, tags_code), tag, tags_codes)
                    )
                ):
                    index += 1
                    continue
            position = physical - file_from
            if not 0 <= position < file_size:
                if run_end > 0:
                    buffers.append(view[run_begin:run_end])
                    run_end = -1
                file = log.queue.find(physical)
                written = -1
                if file is not None:
                    view = file.view
                    data = file.map
                    file_from = file.file_from_offset
                    file_size = file.file_size
                    # The entries were read before, and their records were written before them.
                    written = file.wrote_position
                    position = physical - file_from
            end = position + size
            if not file.available if file is not None else not self._is_behind_kept(queue, index):
                if not count:
                    status = GetStatus.MESSAGE_WAS_REMOVING
                next_file = log.roll(physical)
                index += 1
                continue
            is_right = least <= size and end <= written
            if is_right:
                found_size, found_magic, found_id, number, flags, body = read_head(view, position)
                is_right = found_size == size and found_magic == magic
                if is_right and not is_light:
                    at = topic_position(view, position) if flags & _V6_FLAGS else position + head_size + body
                    is_right = found_id == queue_id and number == index and data[at : at + topic_size] == topic_bytes
            if not is_right:
                try:
                    record = self._record_of(queue, index, (physical, size, tags_code), message_filter)
                except RecordSoughtError:
                    # The read ends before the message: the next one goes on with the search.
                    break
                index += 1
                if record is not None:
                    buffers += [*([view[run_begin:run_end]] if run_end > 0 else ()), record]
                    run_end = -1
                    total += len(record)
                    count += 1
                continue
            if matches is not None and not matches(properties_of(view[position:end])):
                if not count:
                    status = GetStatus.NO_MATCHED_MESSAGE
                index += 1
                continue
            if position != run_end:
                if run_end > 0:
                    buffers.append(view[run_begin:run_end])
                run_begin = position
            run_end = end
            total += size
            count += 1
            index += 1
        if count:
            if run_end > 0:
                buffers.append(view[run_begin:run_end])
            status = GetStatus.FOUND
        return GetResult(status, index, min_offset, max_offset, buffers, total, count, physical < memory_begin)

    def _get_run(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_messages: int,
        min_offset: int,
        max_offset: int,
        tags_codes: frozenset[int] | None,
    ) -> GetResult | None:
        """Return the messages of a read of all messages or of some tags. None if it needs the loop of `get_messages`.

        Such reads go to messages that count as on disk, or that are not all where their entries say.
        """
        config = self._config
        limit = config.max_transfer_count_on_message_in_memory
        if max_messages < limit:
            limit = max_messages if max_messages > 0 else 1
        # The entries are read before the end of the log, and their records were written before them.
        if tags_codes is None:
            entries = queue.read_bytes(offset, limit + 1)
        else:
            entries = queue.read_bytes(offset, max(MIN_FILTERED_ENTRIES, max_messages))
        if not entries or queue.is_light or (tags_codes is not None and queue.ext is not None):
            return None
        log = self._log.queue
        file = log.find(_OFFSET.unpack_from(entries)[0])
        if file is None or not file.available:
            return None
        log_from = file.file_from_offset
        proved = queue.proved_tags
        run = record_run.record_run(
            entries,
            queue.stored_topic,
            queue.queue_id,
            offset,
            file.map,
            file.view,
            log_from,
            log.max_offset - self._memory() - log_from,
            file.wrote_position,
            limit,
            config.max_transfer_bytes_on_message_in_memory,
            tags_codes,
            None if tags_codes is None or proved is None else proved - tags_codes,
        )
        if run is None:
            return None
        views, count, size, following = run
        status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, following, min_offset, max_offset, views, size, count)

    def _is_left_out(
        self, queue: ConsumeQueue, index: int, entry: tuple[int, int, int], tag: int, tags_codes: frozenset[int]
    ) -> bool:
        """Return whether a filter leaves out an entry with an unwanted tags code that no record has yet proved."""
        if entry[0] < self._log.min_offset:
            return True
        code = self._finder.tags_code(queue, index, entry, tag)
        if code == tag:
            queue.prove_tag(tag)
        # An entry that does not lead to its record is corrected later.
        return code is not None and code not in tags_codes

    def _is_behind_kept(self, queue: ConsumeQueue, index: int) -> bool:
        """Return whether the previous entry's record has not expired: then this entry's record has not either."""
        entry = queue.entry(index - 1) if index > queue.min_offset else None
        return entry is not None and entry[1] != FILLER_SIZE and entry[0] >= self._log.min_offset >= 0

    def _record_of(
        self, queue: ConsumeQueue, index: int, entry: tuple[int, int, int], message_filter: MessageFilter | None
    ) -> memoryview | None:
        """Return the record of an entry that seems damaged. None if it is missing or the filter rejects it.

        Raises RecordSoughtError if the log is still searched for it.
        """
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
        """Return the queue offset after the last visible message, 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def get_min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the first message still present, 0 for a queue without messages."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def get_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at a time or later, the end of the queue without one.

        Apache's broker returns the nearest message, or any of those stored in the same millisecond.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = known = (low + high) // 2
            stored = self._readable_time(queue, known)
            while stored is None and known + 1 < high:
                known += 1
                stored = self._readable_time(queue, known)
            if stored is not None and stored < timestamp_ms:
                low = known + 1
            else:
                high = middle
        return low

    def _readable_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the store time in ms of a message, -1 if it has expired. None if its entry or its record is damaged."""
        entry = queue.entry(offset)
        if entry is None or entry[1] == FILLER_SIZE:
            return None
        record = self._log.record_at(entry[0])
        if record is not None and len(record) == entry[1]:
            return store_timestamp_of(record)
        return -1 if entry[0] < self._log.min_offset and not self._is_behind_kept(queue, offset) else None

    def get_earliest_time(self, topic: str, queue_id: int) -> int:
        """Return the store time in ms of the first message of a queue, -1 without one."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._time_of(queue, queue.min_offset)

    def get_store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time in ms of the message at a queue offset, -1 without one."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._time_of(queue, offset)

    def queue_entries(self, topic: str, queue_id: int, offset: int, limit: int) -> list[tuple[int, int, int]]:
        """Return at most `limit` entries of a queue from a queue offset on, all from one file.

        An entry is (physical offset, size, tags code). For an extended queue, the tags code is that of the unit, or the
        unit's address if the unit is lost.
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

    def message_of(
        self, topic: str, queue_id: int, offset: int, entry: tuple[int, int, int]
    ) -> tuple[tuple[int, int, int], memoryview] | None:
        """Return the corrected entry, and the record, of an entry from `queue_entries` at a queue offset.

        If the entry does not point to its record, the log is searched for it. None if the record is not found. This is
        logged, unless the message has expired, was deleted, or the entry fills a gap. Raises RecordSoughtError if the
        search has to go on: call it again.
        """
        record = self._log.record_at(entry[0])
        if record is not None and _HEAD.unpack_from(record)[:4] == (entry[1], MESSAGE_MAGIC, queue_id, offset):
            wanted, at = stored_topic(topic), topic_position(record)
            if record[at : at + len(wanted)] == wanted:
                return entry, record
        queue = self._queues.find(topic, queue_id)
        if queue is None or offset < queue.min_offset or entry[1] == FILLER_SIZE:
            return None
        if 0 <= entry[0] < self._log.min_offset and not self._is_behind_kept(queue, offset):
            return None
        found = self._finder.find(queue, offset, entry)
        record = None if found is None else self._log.record_at(found[0])
        return None if found is None or record is None else (found, record)

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue itself, None if no message was dispatched to it."""
        return self._queues.find(topic, queue_id)

    def look_message(self, physical_offset: int) -> memoryview | None:
        """Return the record that begins at an offset of the log, None if none does."""
        return self._log.record_at(physical_offset)

    def query_messages(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Return messages by key (one of KEYS, or UNIQ_KEY), stored from `begin_ms` to `end_ms`.

        Messages of other keys with the same hash may be among them.
        """

        def is_wanted(offset: int) -> bool:
            record = self._log.record_at(offset)
            return record is None or begin_ms <= store_timestamp_of(record) <= end_ms

        result = QueryResult([], 0, 0)
        for _ in range(QUERY_ROUNDS if self._index is not None else 0):
            assert self._index is not None
            found = self._index.query(topic, key, max_num, begin_ms, end_ms, is_wanted)
            if not found.offsets:
                break
            result.index_last_update_timestamp = found.index_last_update_timestamp
            result.index_last_update_phyoffset = found.index_last_update_physical_offset
            # A message indexed again after a crash occurs twice.
            records = [self._log.record_at(offset) for offset in sorted(set(found.offsets))]
            result.buffers = [record for record in records if record is not None]
            if result.buffers or not records:
                break
        return result

    def is_on_disk(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether a message is so far back in the log that it must be read from the disk, False without one."""
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
        """Return the offset to continue from after a wrong one. A slave may be behind and leaves it to the master."""
        config = self._config
        return offset if config.broker_role == "SLAVE" and not config.offset_check_in_slave else proper
