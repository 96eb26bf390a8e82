"""Delivers delayed messages at their due time.

A delayed message waits in SCHEDULE_TOPIC_XXXX, which has one queue per level. There, the tags code of an entry is the
due time. Delivery is at least once: after a crash it continues from the last offsets written to
``config/delayOffset.json``, Apache's file.

Counterpart: `ScheduleMessageService` (Apache).
"""

from collections.abc import Iterator

from twisted.logger import Logger

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.restored_message import restored_message
from rocketd.broker.tables.implied_topics import make_topic_of
from rocketd.broker.timer.delay_levels import DelayLevels
from rocketd.broker.timer.parts import TimerParts
from rocketd.common import message_properties as props
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog, event_log
from rocketd.common.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies.tables import DelayOffsetSerializeWrapper
from rocketd.store.base.errors import RecordSoughtError, StoreError
from rocketd.store.format.message import MessageInner, PutStatus
from rocketd.store.format.record import MessageExt, decode_message

LEVEL_LIMIT = 256
LEVEL_BYTES = 4 << 20
"""Limits of one write for one level, in messages (unless settings allow more) and bytes.

Beyond them, sends get their turn.
"""

SET_BACK_MS = 500.0
"""A message stored so far in the future, or more, is of an earlier process, and the clock was set back since."""

_NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""Statuses that another attempt would not change."""


class ScheduleMessageService:
    """Moves due messages to their topics.

    ``deliver_due`` belongs to the storage thread, ``load`` to the start, and ``take_from_master`` on a slave to the
    admin pool's thread. ``save``, ``persist`` and ``progress`` may be called from any thread.
    """

    _log = Logger()

    def __init__(
        self,
        broker: TimerParts,
        levels: DelayLevels,
        file: JsonFile[DelayOffsetSerializeWrapper],
        writer: TableWriter | None = None,
    ) -> None:
        """Without a ``writer``, ``save`` writes in the thread that learns of the flush."""
        self._broker = broker
        self._saved = (writer or TableWriter()).table(file.path, self._write)
        self._flushed: tuple[int, dict[int, int]] = (0, {})
        self._flushing = False
        self._levels = levels
        settings = self._settings = broker.settings.store
        is_async = settings.enable_schedule_async_deliver
        self._limit = settings.schedule_async_deliver_max_pending_limit if is_async else LEVEL_LIMIT
        self._file = file
        self._offsets: dict[int, int] = {}
        self._changes = 0
        self._trouble = ThrottledLog(self._log, LogThrottle(lambda: broker.clock_ms() / 1000))
        self._events = event_log(self._log)

    def load(self) -> None:
        """Read the file and correct offsets outside the queues. The store must be open."""
        stored = self._file.load()
        if stored is not None:
            self._offsets = dict(stored.offset_table)
        store = self._broker.store
        for level, offset in self._offsets.items():
            lowest = store.get_min_offset(SCHEDULE_TOPIC, level - 1)
            highest = store.get_max_offset(SCHEDULE_TOPIC, level - 1)
            corrected = min(max(offset, lowest), highest)
            if corrected != offset:
                self._log.warn(
                    "delay level {number}: offset {offset} is outside the queue, going on at {corrected}",
                    number=level,
                    offset=offset,
                    corrected=corrected,
                )
                self._offsets[level] = corrected
        for topic, queue_id in store.queue_keys():
            waiting = store.get_max_offset(topic, queue_id) - self._offsets.get(queue_id + 1, 0)
            if topic == SCHEDULE_TOPIC and queue_id >= self._levels.highest and waiting > 0:
                self._log.warn(
                    "delay level {number}: {waiting} messages wait, but messageDelayLevel has only {highest} levels: they "
                    "are not delivered until it has that level again",
                    number=queue_id + 1,
                    waiting=waiting,
                    highest=self._levels.highest,
                )

    def save(self) -> None:
        """Write the offsets after the messages delivered up to them are on disk.

        Otherwise a power loss could destroy messages that count as delivered.
        """
        progress = self._changes, dict(self._offsets)
        if progress[0] == self._flushed[0] or self._flushing:
            return
        self._flushing = True

        def flushed(status: PutStatus) -> None:
            self._flushing = False
            if status is PutStatus.PUT_OK:
                self._flushed = progress
                self._saved.changed()

        # This end is read after the offsets, so everything delivered up to them lies before it.
        self._broker.store.when_flushed(self._broker.store.max_physical_offset(), flushed)

    def _write(self) -> None:
        changes, offsets = self._flushed
        self._file.save(lambda: (changes, DelayOffsetSerializeWrapper(offset_table=offsets)))

    def persist(self) -> None:
        """Write the offsets now, after a flush. Blocks. Raises OSError."""
        changes, offsets = self._changes, dict(self._offsets)
        # This end is read after the offsets, so everything delivered up to them lies before it.
        end = self._broker.store.max_physical_offset()
        if changes and not self._broker.store.wait_until_flushed(end):
            self._log.warn("delayed messages: progress is not written, as the log is not flushed in time")
            return
        self._file.save(lambda: (changes, DelayOffsetSerializeWrapper(offset_table=offsets)))

    def take_from_master(self, master: DelayOffsetSerializeWrapper) -> None:
        """Copy the master's delivery progress to this slave, which delivers nothing itself.

        Raises OSError if the file cannot be written.
        """
        if master.offset_table != self._offsets:
            self._offsets = dict(master.offset_table)
            self._changes += 1
        self.persist()

    @property
    def changes(self) -> int:
        """The number of progress changes since the start. Any thread."""
        return self._changes

    def snapshot(self) -> DelayOffsetSerializeWrapper:
        """Copy the offsets by level, as in the answer to code 45."""
        return DelayOffsetSerializeWrapper(offset_table=dict(self._offsets))

    def deliver_due(self) -> bool:
        """Store due messages in their topics, up to a limit per level.

        Returns whether to call it again, behind the sends received meanwhile.
        """
        more = False
        now_ms = self._broker.clock_ms()
        store = self._broker.store
        for level, delay_ms in enumerate(self._levels.delays_ms, 1):
            offset = self._offsets.get(level, 0)
            if store.get_max_offset(SCHEDULE_TOPIC, level - 1) > offset:
                try:
                    # Entries deleted as too old can no longer be delivered.
                    first = max(offset, store.get_min_offset(SCHEDULE_TOPIC, level - 1))
                    more = self._deliver_level(level, first, now_ms, delay_ms) or more
                except Exception as error:
                    self._complain(level, f"{type(error).__name__}: {error}")
        return more

    def _deliver_level(self, level: int, offset: int, now_ms: int, delay_ms: int) -> bool:
        """Deliver some messages of one level; return whether there were any."""
        due = list(self._due(level, offset, now_ms, delay_ms))
        if not due:
            return False
        messages = [message for _, message in due if message is not None]
        results = iter(self._broker.store.put_messages(messages) if messages else ())
        for next_offset, message in due:
            if message is not None:
                result = next(results)
                if result.status in _NEVER_STORED:
                    self._log.error(
                        "delay level {number}: the message at {offset} to {topic} can never be delivered: {cause}",
                        number=level,
                        offset=next_offset - 1,
                        topic=message.topic,
                        cause=result.cause,
                    )
                elif result.status is not PutStatus.PUT_OK:
                    # Nothing behind it was stored either.
                    self._complain(level, result.cause)
                    return False
                elif self._settings.enable_schedule_message_stats:
                    self._broker.broker_stats.count_delivery(level, message.topic, result.size)
            self._offsets[level] = next_offset
            self._changes += 1
        self._trouble.clear(f"level {level}")
        return True

    def _complain(self, level: int, cause: str) -> None:
        # It is tried again ten times a second.
        text = "delay level {number}: cannot deliver, trying again: {cause}"
        self._trouble.error(f"level {level}", text, number=level, cause=cause)

    def _due(self, level: int, offset: int, now_ms: int, delay_ms: int) -> Iterator[tuple[int, MessageInner | None]]:
        """Yield each due message with the offset behind it; None for one that cannot be delivered."""
        entries = self._broker.store.queue_entries(SCHEDULE_TOPIC, level - 1, offset, self._limit)
        total = 0
        for number, entry in enumerate(entries, offset + 1):
            due_ms = entry[2]
            if due_ms < 0:
                # A negative value is the address of an extension unit, which is lost.
                due_ms = self._broker.store.get_store_time(SCHEDULE_TOPIC, level - 1, number - 1) + delay_ms
            if not self._is_due(due_ms, now_ms, delay_ms) or total > LEVEL_BYTES:
                return
            try:
                found = self._broker.store.message_of(SCHEDULE_TOPIC, level - 1, number - 1, entry)
            except RecordSoughtError:
                return
            if found is None:
                yield number, None
                continue
            (physical_offset, size, right_due_ms), record = found
            if (physical_offset, size) != entry[:2] and not self._is_due(right_due_ms, now_ms, delay_ms):
                # The due time of a damaged entry is not reliable.
                return
            total += size
            yield number, self._read(record, physical_offset)

    def _is_due(self, due_ms: int, now_ms: int, delay_ms: int) -> bool:
        stored_ms = self._broker.stamps.clock_ms_of(due_ms - delay_ms)
        return not now_ms - delay_ms < stored_ms < now_ms + SET_BACK_MS

    def _read(self, record: memoryview, physical_offset: int) -> MessageInner | None:
        try:
            return self._restore(decode_message(record))
        except (StoreError, ValueError) as error:
            self._log.error("the delayed message at {offset} is damaged: {error}", offset=physical_offset, error=error)
            return None

    def _restore(self, stored: MessageExt) -> MessageInner | None:
        table = stored.properties_map()
        topic = table.get(props.REAL_TOPIC)
        if not topic or topic == TRANS_HALF_TOPIC:
            self._log.error(
                "the delayed message at {offset} has no topic to be delivered to",
                offset=stored.physical_offset,
            )
            return None
        queue_id = int(table.get(props.REAL_QID, 0))
        if not make_topic_of(self._broker, topic, queue_id, stored.physical_offset, stored.store_timestamp):
            self._events.warn("deleted", "a delayed message is not delivered: topic {topic} was deleted", topic=topic)
            return None
        queue_id = self._broker.topics.shown_queue(topic, queue_id)
        return restored_message(stored, topic, queue_id, stored.properties)

    def progress(self) -> Iterator[tuple[int, int, int]]:
        """Yield level, delivered offset and queue end of each level in use."""
        for level, offset in sorted(self._offsets.items()):
            yield level, offset, self._broker.store.get_max_offset(SCHEDULE_TOPIC, level - 1)
