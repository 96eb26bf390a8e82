"""Delivers delayed messages when their time has come.

Answers to Apache's ScheduleMessageService, with its file ``config/delayOffset.json``. A delayed message waits in
SCHEDULE_TOPIC_XXXX, one queue for each level, where the tags code of an entry is the time it is due. Delivery is at least
once: after a crash it goes on from the offsets last written.
"""

from collections.abc import Iterator
from typing import Any

from twisted.logger import Logger

from rocketd.broker.json_file import JsonFile
from rocketd.broker.restored import restored_message
from rocketd.common import properties as names
from rocketd.common.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketd.common.permission import READ, WRITE
from rocketd.common.stamp_clock import STEP_MS
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies import DelayOffsetSerializeWrapper
from rocketd.store.errors import StoreError
from rocketd.store.message import MessageInner, PutStatus
from rocketd.store.record import MessageExt, decode_message

LEVEL_LIMIT = 256
LEVEL_BYTES = 4 << 20
"""Messages of one level delivered by one write, unless settings allow more, and bytes after which no more are added: sends
get their turn.
"""

_NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""What another try would not change."""


class ScheduleMessageService:
    """Moves due messages to their topics.

    ``deliver_due`` belongs to the storage thread, on a slave ``take_from_master`` to the admin pool's, ``load`` to the
    start; ``save``, ``persist`` and ``progress`` may be called from any thread.
    """

    _log = Logger()

    def __init__(
        self, broker: Any, file: JsonFile[DelayOffsetSerializeWrapper], writer: TableWriter | None = None
    ) -> None:
        """Without a ``writer``, ``save`` writes in the thread that knows of the flush."""
        self._broker = broker
        self._saved = (writer or TableWriter()).table(file.path, self._write)
        self._flushed: tuple[int, dict[int, int]] = (0, {})
        self._flushing = False
        self._levels = broker.delay_levels
        settings = self._settings = broker.settings.store
        is_async = settings.enable_schedule_async_deliver
        self._limit = settings.schedule_async_deliver_max_pending_limit if is_async else LEVEL_LIMIT
        self._file = file
        self._offsets: dict[int, int] = {}
        self._changes = 0
        self._stuck: set[int] = set()

    def load(self) -> None:
        """Read the file and correct offsets that lie outside the queues. The store must be open."""
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
        """Have the offsets written when what was delivered up to them is on the disk.

        Otherwise a crash of the system could lose messages that count as delivered.
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

        # Looked up behind the offsets: what was delivered up to them lies before this end.
        self._broker.store.when_flushed(self._broker.store.max_physical_offset(), flushed)

    def _write(self) -> None:
        changes, offsets = self._flushed
        self._file.save(lambda: (changes, DelayOffsetSerializeWrapper(offset_table=offsets)))

    def persist(self) -> None:
        """Do the same here and now. Raises OSError."""
        changes, offsets = self._changes, dict(self._offsets)
        # Looked up behind the offsets: what was delivered up to them lies before this end.
        end = self._broker.store.max_physical_offset()
        if changes and not self._broker.store.wait_until_flushed(end):
            self._log.warn("delayed messages: progress is not written, as the log is not flushed in time")
            return
        self._file.save(lambda: (changes, DelayOffsetSerializeWrapper(offset_table=offsets)))

    def take_from_master(self, master: DelayOffsetSerializeWrapper) -> None:
        """Take over how far a slave's master has delivered, which a slave does not. Raises OSError when it cannot be
        written.
        """
        if master.offset_table != self._offsets:
            self._offsets = dict(master.offset_table)
            self._changes += 1
        self.persist()

    @property
    def changes(self) -> int:
        """How many changes of the progress there were since the start. Any thread."""
        return self._changes

    def snapshot(self) -> DelayOffsetSerializeWrapper:
        """Copy the offsets by level, as the answer to code 45 carries them."""
        return DelayOffsetSerializeWrapper(offset_table=dict(self._offsets))

    def deliver_due(self) -> bool:
        """Store due messages in their own topics, up to a limit for each level; returns whether it is to be called again,
        behind the sends that have come meanwhile.
        """
        more = False
        now_ms = self._broker.clock_ms()
        store = self._broker.store
        for level, delay_ms in enumerate(self._levels.delays_ms, 1):
            offset = self._offsets.get(level, 0)
            if store.get_max_offset(SCHEDULE_TOPIC, level - 1) > offset:
                try:
                    # What was removed as too old cannot be delivered any more.
                    first = max(offset, store.get_min_offset(SCHEDULE_TOPIC, level - 1))
                    more = self._deliver_level(level, first, now_ms, delay_ms) or more
                except Exception as error:
                    self._complain(level, f"{type(error).__name__}: {error}")
        return more

    def _deliver_level(self, level: int, offset: int, now_ms: int, delay_ms: int) -> bool:
        """Deliver some messages of one level; returns whether there were any."""
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
                        "delay level {number}: the message at {offset} to {topic} is not delivered, ever: {cause}",
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
        self._stuck.discard(level)
        return True

    def _complain(self, level: int, cause: str) -> None:
        if level not in self._stuck:  # it is tried again ten times a second: once is enough
            self._stuck.add(level)
            self._log.error("delay level {number}: cannot deliver, trying again: {cause}", number=level, cause=cause)

    def _due(self, level: int, offset: int, now_ms: int, delay_ms: int) -> Iterator[tuple[int, MessageInner | None]]:
        """Yield the messages that are due with the offset behind each; None for one that cannot be delivered."""
        entries = self._broker.store.queue_entries(SCHEDULE_TOPIC, level - 1, offset, self._limit)
        total = 0
        for number, (physical_offset, size, due_ms) in enumerate(entries, offset + 1):
            if due_ms < 0:
                # The address of a unit of the queue's extension, which is lost.
                due_ms = self._broker.store.get_store_time(SCHEDULE_TOPIC, level - 1, number - 1) + delay_ms
            stored_ms = self._broker.stamps.clock_ms_of(due_ms - delay_ms)
            # One from the future was given before this start, by a clock that was set back since.
            if now_ms - delay_ms < stored_ms <= now_ms + STEP_MS or total > LEVEL_BYTES:
                return
            total += size
            record = self._broker.store.look_message(physical_offset)
            yield number, None if record is None else self._read(record, physical_offset)

    def _read(self, record: memoryview, physical_offset: int) -> MessageInner | None:
        try:
            return self._restore(decode_message(record))
        except (StoreError, ValueError) as error:
            self._log.error("the delayed message at {offset} is damaged: {error}", offset=physical_offset, error=error)
            return None

    def _restore(self, stored: MessageExt) -> MessageInner | None:
        table = stored.properties_map()
        topic = table.get(names.REAL_TOPIC)
        if not topic or topic == TRANS_HALF_TOPIC:
            self._log.error("the delayed message at {offset} has no topic to go to", offset=stored.physical_offset)
            return None
        queue_id = int(table.get(names.REAL_QID, 0))
        # A kill between the append of the message and the write of the table has left it without its topic.
        queues = max(queue_id + 1, self._broker.settings.broker.default_topic_queue_nums)
        self._broker.topics.create_topic_in_send_message_back(topic, queues, READ | WRITE, 0)
        return restored_message(stored, topic, queue_id, table, stored.properties)

    def progress(self) -> Iterator[tuple[int, int, int]]:
        """Yield level, delivered offset and queue end of each level in use."""
        for level, offset in sorted(self._offsets.items()):
            yield level, offset, self._broker.store.get_max_offset(SCHEDULE_TOPIC, level - 1)
