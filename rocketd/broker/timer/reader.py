"""Reads the timer topic into the table: what begins to wait, what is cancelled, what is done.

Answers to TimerMessageStore.enqueue of Apache's 5.x. The table follows the topic and nothing else, so that it can be thrown
away, and what a crash has taken from the log is never believed.
"""

import struct
from typing import Any
from zlib import crc32

from twisted.logger import Logger

from rocketd.broker.timer.records import Cancellation, Done, Wait, hash_of, identity_in, read_event
from rocketd.broker.timer.table import Progress, TimerTable
from rocketd.common.names import TIMER_TOPIC
from rocketd.store.errors import StoreError
from rocketd.store.layout import FILLER_SIZE

READ_LIMIT = 2_000
"""Records read before what is due gets its turn."""


class TimerReader:
    """Belongs to the timer thread, but for ``awaited``, which the storage thread sets while the timer thread waits for it.

    ``next_offset`` is the topic's queue offset to go on at.
    """

    _log = Logger()

    def __init__(self, store: Any, table: TimerTable) -> None:
        """``store`` is an open MessageStore."""
        self._store = store
        self._table = table
        self.next_offset = 0
        self.awaited = -1
        """Queue offset of a note that has to be read before anything is delivered."""
        self.cancelled = 0
        """Messages taken back since the start."""

    def open(self) -> None:
        """Open the table, and begin anew where it does not belong to the topic. Raises sqlite3.Error."""
        progress = self._table.open()
        lowest = self._store.get_min_offset(TIMER_TOPIC, 0)
        if progress is not None and progress.physical_offset >= 0 and progress == self._progress(progress.next_offset):
            self.next_offset = progress.next_offset
            return
        if progress is not None:
            self._log.warn("timers: {path} is of another log: it is made anew", path=self._table.path)
            self._table.clear()
        self.next_offset = lowest
        end = self._store.get_max_offset(TIMER_TOPIC, 0)
        if end > lowest:
            self._log.info(
                "timers: {path} is made from {count} records of {topic}",
                path=self._table.path,
                count=end - lowest,
                topic=TIMER_TOPIC,
            )

    def _progress(self, next_offset: int) -> Progress:
        """How the topic looks at an offset; without the record before it, nothing that a table could have."""
        entries = self._store.queue_entries(TIMER_TOPIC, 0, next_offset - 1, 1) if next_offset > 0 else []
        record = self._store.look_message(entries[0][0]) if entries else None
        if record is None:
            return Progress(next_offset, -1, -1)
        return Progress(next_offset, entries[0][0], crc32(record))

    def read(self) -> bool:
        """Read some records; returns whether there are more. Raises sqlite3.Error, after which nothing has changed."""
        store = self._store
        if store.get_max_offset(TIMER_TOPIC, 0) < self.next_offset:
            self._log.warn("timers: the queue of {topic} begins anew: somebody has deleted it", topic=TIMER_TOPIC)
            self._table.clear()
            self.next_offset = 0
            self.awaited = -1
        begin = max(self.next_offset, store.get_min_offset(TIMER_TOPIC, 0))
        entries = store.queue_entries(TIMER_TOPIC, 0, begin, READ_LIMIT)
        if not entries:
            self.next_offset = begin
            return False
        waits: dict[int, Wait] = {}
        gone: set[int] = set()
        cancelled = 0
        last: tuple[int, memoryview | bytes] = -1, b""
        for offset, (physical_offset, size, _) in enumerate(entries, begin):
            record = None if size == FILLER_SIZE else store.look_message(physical_offset)
            if record is None:
                continue  # its file has been deleted
            last = physical_offset, record
            try:
                event = read_event(record, physical_offset)
                if isinstance(event, Wait):
                    waits[offset] = event
                elif isinstance(event, Done):
                    gone.update(event.queue_offsets)
                else:
                    found = self._cancelled_by(event, waits, gone)
                    gone.update(found)
                    cancelled += len(found)
            except (StoreError, ValueError, struct.error, OverflowError) as error:
                self._log.error("timers: the record at {at} is passed over: {error}", at=physical_offset, error=error)
        for offset in gone & waits.keys():
            del waits[offset]
        end = begin + len(entries)
        self._table.apply(waits, gone, Progress(end, last[0], crc32(last[1])))
        self.cancelled += cancelled
        self.next_offset = end
        return bool(end < store.get_max_offset(TIMER_TOPIC, 0))

    def _cancelled_by(self, event: Cancellation, waits: dict[int, Wait], gone: set[int]) -> set[int]:
        """Queue offsets of the waiting messages that a cancellation takes back."""
        key_hash = hash_of(event.identity)
        candidates = [(row.queue_offset, row.physical_offset) for row in self._table.with_hash(key_hash)]
        candidates += [(offset, wait.physical_offset) for offset, wait in waits.items() if wait.key_hash == key_hash]
        found = set()
        for offset, physical_offset in candidates:
            record = self._store.look_message(physical_offset)
            if offset not in gone and record is not None and identity_in(record) == event.identity:
                found.add(offset)
        return found
