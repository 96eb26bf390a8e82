"""Reads the timer topic into the table: waiting messages, cancellations, and notes of delivery.

The table follows the topic and nothing else. So it can be deleted at any time, and records lost in a crash have no
effect.

Counterpart: `TimerMessageStore.enqueue` (Apache 5.x).
"""

import struct
from contextlib import suppress
from zlib import crc32

from twisted.logger import Logger

from rocketd.broker.timer.records import Cancellation, Done, Wait, hash_of, identity_in, read_event
from rocketd.broker.timer.table import ReadProgress, TimerTable
from rocketd.common.names import TIMER_TOPIC
from rocketd.common.stamp_clock import StampClock
from rocketd.store.base.errors import RecordSoughtError, StoreError
from rocketd.store.format.record import store_timestamp_of
from rocketd.store.interfaces import IMessageStore

READ_LIMIT = 2_000
"""The maximum number of records read before due messages get their turn."""


class TimerReader:
    """Reads the topic. Timer thread only, except ``awaited``: the storage thread sets it while the timer thread waits.

    ``next_offset`` is the next queue offset to read.
    """

    _log = Logger()

    def __init__(self, store: IMessageStore, table: TimerTable, stamps: StampClock) -> None:
        """``store`` is an open MessageStore; ``stamps`` gave its timestamps."""
        self._store = store
        self._table = table
        self._stamps = stamps
        self._stepped_ms = 0.0
        """The steps of the wall clock since the start, in ms, already applied to the table's times."""
        self.next_offset = 0
        self.awaited = -1
        """The queue offset of a note that must be read before anything is delivered; -1 if there is none."""
        self.cancelled = 0
        """The number of messages cancelled since the start."""

    def open(self) -> None:
        """Open the table, and rebuild it if it does not belong to the topic. Raises sqlite3.Error."""
        progress = self._table.open()
        lowest = self._store.get_min_offset(TIMER_TOPIC, 0)
        if progress is not None and progress.physical_offset >= 0 and progress == self._progress(progress.next_offset):
            self.next_offset = progress.next_offset
            return
        if progress is not None:
            self._log.warn("timers: {path} belongs to another log: it is rebuilt", path=self._table.path)
            self._table.clear()
        self.next_offset = lowest
        end = self._store.get_max_offset(TIMER_TOPIC, 0)
        if end > lowest:
            self._log.info(
                "timers: {path} is rebuilt from {count} records of {topic}",
                path=self._table.path,
                count=end - lowest,
                topic=TIMER_TOPIC,
            )

    def follow_steps(self) -> bool:
        """Shift the times of delayed messages if the wall clock was set, so that their delay stays the same.

        Returns whether it was set. Raises sqlite3.Error; nothing has changed then.
        """
        stepped_ms = self._stamps.stepped_ms()
        by_ms = round(stepped_ms) - round(self._stepped_ms)
        if by_ms:
            self._table.shift_delays(by_ms)
            self._stepped_ms = stepped_ms
        return by_ms != 0

    def _corrected_by_clock_steps(self, wait: Wait, record: memoryview) -> Wait:
        """Correct the time of a delayed message by the clock steps since its record was stored."""
        if not wait.is_delay:
            return wait
        stepped_ms = round(self._stepped_ms) - round(self._stamps.stepped_ms_at(store_timestamp_of(record)))
        return wait._replace(due_ms=wait.due_ms + stepped_ms)

    def _progress(self, next_offset: int) -> ReadProgress:
        """Return the topic's state at an offset. Without the record before it, return a value no table can hold."""
        entries = self._store.queue_entries(TIMER_TOPIC, 0, next_offset - 1, 1) if next_offset > 0 else []
        message = None
        while entries:
            with suppress(RecordSoughtError):
                message = self._store.message_of(TIMER_TOPIC, 0, next_offset - 1, entries[0])
                break
        if message is None:
            return ReadProgress(next_offset, -1, -1)
        (physical_offset, _, _), record = message
        return ReadProgress(next_offset, physical_offset, crc32(record))

    def read(self) -> bool:
        """Read some records; return whether there are more. Raises sqlite3.Error; nothing has changed then."""
        store = self._store
        if store.get_max_offset(TIMER_TOPIC, 0) < self.next_offset:
            self._log.warn("timers: the queue of {topic} was deleted: it begins at offset 0 again", topic=TIMER_TOPIC)
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
        end = begin
        for offset, entry in enumerate(entries, begin):
            try:
                message = store.message_of(TIMER_TOPIC, 0, offset, entry)
            except RecordSoughtError:
                break
            end = offset + 1
            if message is None:
                continue
            (physical_offset, _, _), record = message
            last = physical_offset, record
            try:
                event = read_event(record, physical_offset)
                if isinstance(event, Wait):
                    waits[offset] = self._corrected_by_clock_steps(event, record)
                elif isinstance(event, Done):
                    gone.update(event.queue_offsets)
                else:
                    found = self._cancelled_by(event, waits, gone)
                    gone.update(found)
                    cancelled += len(found)
            except (StoreError, ValueError, struct.error, OverflowError) as error:
                self._log.error("timers: the record at {at} is skipped: {error}", at=physical_offset, error=error)
        if end == begin:
            return True
        for offset in gone & waits.keys():
            del waits[offset]
        self._table.apply(waits, gone, ReadProgress(end, last[0], crc32(last[1])))
        self.cancelled += cancelled
        self.next_offset = end
        return bool(end < store.get_max_offset(TIMER_TOPIC, 0))

    def _cancelled_by(self, event: Cancellation, waits: dict[int, Wait], gone: set[int]) -> set[int]:
        """Return the queue offsets of the waiting messages that a cancellation matches."""
        key_hash = hash_of(event.identity)
        candidates = [(row.queue_offset, row.physical_offset) for row in self._table.with_hash(key_hash)]
        candidates += [(offset, wait.physical_offset) for offset, wait in waits.items() if wait.key_hash == key_hash]
        found = set()
        for offset, physical_offset in candidates:
            record = self._store.look_message(physical_offset)
            if offset not in gone and record is not None and identity_in(record) == event.identity:
                found.add(offset)
        return found
