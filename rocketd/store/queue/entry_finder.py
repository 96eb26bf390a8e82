"""Finds the record of a queue entry in the log, if the entry or its record is damaged.

Apache's broker serves the bytes at a damaged entry's offset, or skips the messages after it. This finder writes
nothing: it remembers its results, and a repair of the stopped store writes them.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.common.names import LMQ_PREFIX
from rocketd.store.base.errors import RecordSoughtError
from rocketd.store.base.layout import FILLER_SIZE
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.format.record import MAGIC_END
from rocketd.store.format.record_scanner import DelayTimeOf, RecordScanner, ScanEnd
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.state.deletions import Deletions

STEP_BYTES = 8 << 20
"""Most bytes of the log searched at once. The next search for the entry goes on behind them."""

SCANNED_RECORDS = 64
"""Most records read between two looks at the end of the part."""

REMEMBERED = 10_000
"""Entries with a remembered result, found or not, or with a search that is not finished."""

Entry = tuple[int, int, int]
"""Physical offset, record size, tags code."""

_Key = tuple[str, int, int]
"""Topic, queue id and queue offset of an entry."""


class _Search(NamedTuple):
    """An unfinished search. It goes on at an offset of the log, up to the end that the log had when it began."""

    offset: int
    end: int


class EntryFinder:
    """Finds the records of damaged entries. Any thread may call `find`."""

    def __init__(
        self,
        log: CommitLog,
        delay_time_of: DelayTimeOf | None = None,
        deletions: Callable[[], Deletions] = Deletions,
        throttle: LogThrottle | None = None,
    ) -> None:
        """`delay_time_of` returns the delivery time of delayed messages, `deletions` the deleted topics."""
        self._log = log
        self._deletions = deletions
        self._throttled = ThrottledLog(Logger(), throttle)
        self._scanner = RecordScanner(delay_time_of)
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Entry | _Search | None] = OrderedDict()

    def find(self, queue: ConsumeQueue, index: int, given: Entry) -> Entry | None:
        """Return the right entry of a queue offset, None if the log has no whole record for it.

        `given` is the entry in the queue. If it is wrong, an error is logged, once per minute and queue. Raises
        RecordSoughtError if the search is not finished: the next call goes on with it.
        """
        with self._lock:
            if self._matches_record(queue, index, given):
                return given
            key = (queue.topic, queue.queue_id, index)
            if key not in self._known or isinstance(self._known[key], _Search):
                self._search(queue, index)
            self._known.move_to_end(key)
            found = self._known[key]
        if isinstance(found, _Search):
            raise RecordSoughtError(*key, *found)
        if found is None:
            text = "the log has no whole record with number {index} of this queue, so the message is skipped"
        else:
            text = "its record of {found_size} bytes was found at {found} and is served"
        self._throttled.error(
            f"queue {queue.topic}-{queue.queue_id}",
            "queue {topic}-{queue}: entry {index} has offset {offset} and size {size}, but the log has no such "
            "record there; " + text + "; stop the broker and run 'rocketd store verify DIR', then 'repair'",
            topic=queue.topic,
            queue=queue.queue_id,
            index=index,
            offset=given[0],
            size=given[1],
            found=-1 if found is None else found[0],
            found_size=-1 if found is None else found[1],
        )
        return found

    def tags_code(self, queue: ConsumeQueue, index: int, given: Entry, code: int) -> int | None:
        """Return the tags code of the record of a queue offset, None if its entry leads to another place.

        `given` is the entry, `code` the tags code by it. If the code is wrong, an error is logged, once per minute and
        queue.
        """
        with self._lock:
            request = self._record_at(given[0]) if self._matches_record(queue, index, given) else None
        if request is None:
            return None
        if request.tags_code != code:
            self._throttled.error(
                f"queue {queue.topic}-{queue.queue_id}",
                "queue {topic}-{queue}: entry {index} has tags code {code}, but the tags code of its record is {right}, "
                "which is used; stop the broker and run 'rocketd store verify DIR', then 'repair'",
                topic=queue.topic,
                queue=queue.queue_id,
                index=index,
                code=code,
                right=request.tags_code,
            )
        return request.tags_code

    def _record_at(self, offset: int) -> DispatchRequest | None:
        """Return the whole record that begins at an offset of the log, None if none does."""
        data = self._log.data_from(offset) if offset >= 0 else None
        if data is None:
            return None
        found = self._scanner.scan(data, 0, len(data), offset, False, 1).requests
        return found[0] if found else None

    def _matches_record(self, queue: ConsumeQueue, index: int, entry: Entry) -> bool:
        request = self._record_at(entry[0])
        if request is None or request.size != entry[1]:
            return False
        # Records of a light queue name another topic.
        return queue.topic.startswith(LMQ_PREFIX) or (
            (request.topic, request.queue_id, request.queue_offset) == (queue.topic, queue.queue_id, index)
        )

    def _search(self, queue: ConsumeQueue, index: int) -> None:
        """Search a part of the log for the record of an entry, and remember the result.

        The record lies before the queue's next one. In a busy log, there may be gigabytes between both.
        """
        topic, queue_id = queue.topic, queue.queue_id
        key = topic, queue_id, index
        if topic.startswith(LMQ_PREFIX):
            self._remember(key, None)
            return
        known = self._known.get(key)
        if isinstance(known, _Search):
            offset, end = known
        else:
            offset, end = self._begin_of_search(queue, index), self._log.max_offset
        limit = min(offset + STEP_BYTES, end)
        deletions = self._deletions()
        following = -1
        while offset < limit and following < 0:
            data = self._log.data_from(offset)
            if data is None:
                break
            scan = self._scanner.scan(data, 0, len(data), offset, False, SCANNED_RECORDS)
            for request in scan.requests:
                if (
                    (request.topic, request.queue_id) == (topic, queue_id)
                    and request.queue_offset >= index
                    and not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
                    and not deletions.include(topic, request.physical_offset, request.store_timestamp)
                ):
                    entry = request.physical_offset, request.size, request.tags_code
                    self._remember((topic, queue_id, request.queue_offset), entry)
                    following = request.queue_offset if following < 0 else following
            if scan.end is ScanEnd.MORE:
                offset += scan.position
            elif scan.end is ScanEnd.BROKEN:
                offset = self._next_record(offset + scan.position + 1, limit)
            else:
                offset = self._log.roll(offset)
        if following > index:
            # All records before the queue's next one are lost.
            for lost in range(index, min(following, index + REMEMBERED // 2)):
                self._remember((topic, queue_id, lost), None)
        elif following < 0:
            is_finished = offset < limit or offset >= end
            self._remember(key, None if is_finished else _Search(offset, end))

    def _begin_of_search(self, queue: ConsumeQueue, index: int) -> int:
        """Return the end of the record of the last correct entry before an entry."""
        for before in range(index - 1, max(queue.min_offset, 0) - 1, -1):
            known = self._known.get((queue.topic, queue.queue_id, before))
            entry = known if known and not isinstance(known, _Search) else queue.entry(before)
            if entry is None:
                break
            if entry[1] != FILLER_SIZE and self._matches_record(queue, before, entry):
                return entry[0] + entry[1]
        return max(self._log.min_offset, 0)

    def _next_record(self, offset: int, limit: int) -> int:
        """Return the start of the next whole record after damaged bytes. Without one before `limit`, return about that,
        or else the start of the next file.
        """
        file = self._log.queue.find(offset)
        if file is not None:
            position = offset - file.file_from_offset
            end = max(position, limit - file.file_from_offset) + MAGIC_END
            begin = self._scanner.next_record(file.view, position, min(end, file.wrote_position), file.file_from_offset)
            if begin is not None:
                return file.file_from_offset + begin
            if end < file.wrote_position:
                return max(offset, limit)
        return self._log.roll(offset)

    def _remember(self, key: _Key, result: Entry | _Search | None) -> None:
        self._known[key] = result
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
