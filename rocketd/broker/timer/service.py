"""Delivers messages at their delivery times.

The timer thread reads the timer topic into a table and sleeps until the first message is due. It lets the storage
thread append due messages together with a note of delivery. Nothing else is delivered until that note is read back. So
the log alone determines which messages have been delivered, even after a crash, and on a slave that becomes the master.

Counterpart: `TimerMessageStore` (Apache 5.x).
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.broker.tables.implied_topics import is_topic_deleted, make_topic_of
from rocketd.broker.timer.parts import TimerParts
from rocketd.broker.timer.reader import TimerReader
from rocketd.broker.timer.records import identity_in, message_to_deliver, message_to_roll, note_done
from rocketd.broker.timer.redirect import TimerRedirect
from rocketd.broker.timer.table import Row, TimerTable
from rocketd.common import message_properties as props
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog, event_log
from rocketd.common.message_properties import find_property
from rocketd.common.names import TIMER_TOPIC
from rocketd.store.base.errors import StoreError
from rocketd.store.format.message import MessageInner, PutStatus
from rocketd.store.format.record import store_timestamp_of

GROUP_MESSAGES = 512
GROUP_BYTES = 4 << 20
"""Limits of one write in messages and bytes, so that sends get their turn."""

LOOK_SECONDS = 0.1
"""The longest sleep of the thread, because the system's clock may be set."""
EAGER_SECONDS = 0.005
"""The interval between looks at the topic while messages come in or a note is awaited."""
EAGER_FOR_SECONDS = 0.2
RETRY_SECONDS = 1.0

ROLL_SECONDS = 60.0
"""The interval between searches for messages that have to be stored again."""
STUCK_SECONDS = 0.1
"""The interval at which a stop checks whether the thread waits for a plugin."""
HALF_HOUR_MS = 1_800_000

_TABLE, _DELIVERY = "table", "delivery"
"""Kinds of problems in the log."""
_NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


_Make = Callable[[memoryview, int], MessageInner]
"""Builds the message to store from a record and its due time in ms."""


class _Item(NamedTuple):
    """A message to store (None if it cannot be built), its queue offset in the topic, and its identity."""

    queue_offset: int
    identity: str
    message: MessageInner | None


class TimerMessageService:
    """The delivery of timed messages.

    ``start`` and ``stop`` belong to the store's owner, ``_store`` to the storage thread. ``wake`` and ``table`` may be
    called from any thread; the rest belongs to the timer thread. ``clock`` returns monotonic seconds.
    """

    _log = Logger()

    def __init__(self, broker: TimerParts, clock: Callable[[], float] = monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self._settings = broker.settings.store
        self.gate = TimerRedirect(broker, self.wake)
        self.waiting = TimerTable(os.path.join(self._settings.store_path_root_dir, "timer", "waiting.db"))
        self._reader: TimerReader | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._eager_until = 0.0
        self._log_end = 0
        self._undone: list[int] = []
        self._next_roll: float | None = None
        self._rested: tuple[int, int | None] | None = None
        self._trouble = ThrottledLog(self._log, LogThrottle(clock))
        self._events = event_log(self._log)
        self.delivered = 0
        """The number of messages delivered since the start. Any thread may read it."""
        self.lost = 0
        """The number of messages whose record was gone, or too large for any queue."""

    def start(self) -> None:
        """Start the thread on a master with ``timerWheelEnable``. The store must be open."""
        if self._settings.broker_role == "SLAVE" or not self._settings.timer_wheel_enable:
            return
        self.prepare()
        self._thread = threading.Thread(target=self._run, name="rocketd-timer", daemon=True)
        self._thread.start()

    def prepare(self) -> None:
        """Prepare for ``run_once``. The store must be open."""
        self._reader = TimerReader(self._broker.store, self.waiting, self._broker.stamps)
        # Everything in the log now must be read before the first delivery.
        self._log_end = self._broker.store.max_physical_offset()

    def stop(self) -> None:
        """End the thread and close the table. Blocks; the storage thread must still run.

        Does not wait for a storage thread that hangs in a plugin beyond the plugins' stop time.
        """
        self._stopping.set()
        self._awake.set()
        thread, self._thread = self._thread, None
        while thread is not None and thread.is_alive():
            thread.join(STUCK_SECONDS)
            if thread.is_alive() and (stuck := self._broker.dispatcher.plugin_calls.stuck()):
                self._log.error("timers: due messages are delivered after the next start: {stuck}", stuck=stuck)
                return
        self.waiting.close()

    def wake(self) -> None:
        """Announce that a message is about to be stored in the topic."""
        self._awake.set()

    def rests(self, end: int) -> bool:
        """Whether the topic is read up to an offset and nothing is due. Any thread."""
        rested = self._rested
        if rested is None or rested[0] < end:
            return False
        return rested[1] is None or rested[1] > int(self._broker.now_ms())

    @property
    def next_due_ms(self) -> int | None:
        """The due time of the next message at the last rest, in ms; None if none waited. Any thread."""
        return None if self._rested is None else self._rested[1]

    def table(self) -> dict[str, str]:
        """Return the values for brokerStatus, with the names of 5.x. Empty until the topic is used."""
        reader, store = self._reader, self._broker.store
        end = store.get_max_offset(TIMER_TOPIC, 0)
        if reader is None or not end:
            return {}
        return {
            "timerCongestNum": str(self.waiting.count),
            "timerOffsetBehind": str(max(0, end - reader.next_offset)),
            "timerDeliveredTotal": str(self.delivered),
            "timerCancelledTotal": str(reader.cancelled),
            "timerLostTotal": str(self.lost),
        }

    # ------------------------------------------------------------ thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = self._guarded_run()
            if pause <= 0:
                continue
            if self._awake.is_set():
                self._awake.clear()
                self._eager_until = monotonic() + EAGER_FOR_SECONDS
            if monotonic() < self._eager_until:
                # Avoids a wake-up for every message.
                self._stopping.wait(min(pause, EAGER_SECONDS))
            else:
                self._awake.wait(pause)

    def _guarded_run(self) -> float:
        try:
            return self.run_once()
        except sqlite3.OperationalError as error:
            # The disk may be full, for example: the rows read so far are still right.
            self._complain(_TABLE, f"{self.waiting.path} cannot be used, trying again: {error}")
            self.waiting.close()
            return RETRY_SECONDS
        except sqlite3.DatabaseError as error:
            # A power loss may cause this; the topic holds everything.
            self._log.warn(
                "timers: {path} is damaged and is rebuilt from {topic}: {error}",
                path=self.waiting.path,
                topic=TIMER_TOPIC,
                error=error,
            )
            return self._discard()
        except Exception as error:
            self._complain(_DELIVERY, f"cannot deliver, trying again: {type(error).__name__}: {error}")
            self.waiting.close()
            return RETRY_SECONDS

    def _discard(self) -> float:
        try:
            self.waiting.discard()
        except OSError as error:
            self._complain(_TABLE, f"{self.waiting.path} cannot be removed: {error}")
            return RETRY_SECONDS
        return LOOK_SECONDS

    def _complain(self, kind: str, cause: str) -> None:
        # It is tried again all the time.
        self._trouble.error(kind, "timers: {cause}", cause=cause)

    def run_once(self) -> float:
        """Read new records and deliver due messages. Return the seconds to wait, 0 if there is more to do.

        Raises sqlite3.Error.
        """
        reader, store = self._reader, self._broker.store
        assert reader is not None
        if not self.waiting.is_open:
            reader.open()
        # Read the end first: records dispatched meanwhile count next time.
        dispatched_to = store.max_physical_offset()
        dispatched_to -= store.dispatch_behind_bytes()
        if reader.read():
            return 0.0
        self.gate.forget_cancellations(dispatched_to)
        if dispatched_to < self._log_end or reader.next_offset <= reader.awaited:
            return EAGER_SECONDS
        self._log_end = 0
        # Read the clock first: if it makes no step until then, the table's times are by this clock.
        now_ms = self._broker.now_ms()
        if reader.follow_steps():
            return 0.0
        due_ms = self.waiting.next_due()
        if due_ms is not None and due_ms <= now_ms:
            return self._deliver(now_ms)
        pause = self._roll_some()
        if pause is not None:
            return pause
        self._rested = reader.next_offset, due_ms
        return LOOK_SECONDS if due_ms is None else min((due_ms - now_ms) / 1_000, LOOK_SECONDS)

    # ------------------------------------------------------------ delivery

    def _deliver(self, now_ms: int) -> float:
        rows = self.waiting.due(now_ms, self._group_limit())
        return self._hand_over(rows, lambda record, _: message_to_deliver(record, now_ms), "delivered")

    def _group_limit(self) -> int:
        """Return the maximum size of a group: its note, with offsets left from earlier groups, must fit in a record."""
        limit: int = self._settings.max_message_size // 16
        return max(1, min(GROUP_MESSAGES, limit))

    def _hand_over(self, rows: Sequence[Row], make: _Make, what: str) -> float:
        """Let the storage thread store messages built from some records; return the seconds to wait."""
        items: list[_Item] = []
        size = 0
        for row in rows:
            if items and size > GROUP_BYTES:
                break
            item, record_size = self._item(row, make, what)
            items.append(item)
            size += record_size
        done = threading.Event()
        pauses: list[float] = []

        def store() -> None:
            try:
                pauses.append(self._store(items))
            finally:
                done.set()

        self._broker.dispatcher.pool("send").call(store)
        done.wait()
        return pauses[0] if pauses else RETRY_SECONDS

    def _item(self, row: Row, make: _Make, what: str) -> tuple[_Item, int]:
        record = self._broker.store.look_message(row.physical_offset)
        cause: object = "its record is gone from the log"
        if record is not None:
            try:
                message = make(record, row.due_ms)
                if not self._has_topic(message, row.physical_offset, store_timestamp_of(record)):
                    return _Item(row.queue_offset, "", None), len(record)
                if message.topic != TIMER_TOPIC:
                    message.queue_id = self._broker.topics.shown_queue(message.topic, message.queue_id)
                return _Item(row.queue_offset, identity_in(record), message), len(record)
            except (StoreError, ValueError) as error:
                cause = error
        self._lose(row.queue_offset, f"the message at {row.physical_offset} is not {what}: {cause}")
        return _Item(row.queue_offset, "", None), 0

    def _has_topic(self, message: MessageInner, offset: int, stored_ms: int) -> bool:
        """Create the topic of a message if a kill has left it out of the table. False if it was deleted."""
        topic = message.topic
        if topic != TIMER_TOPIC:
            has_topic = make_topic_of(self._broker, topic, message.queue_id, offset, stored_ms)
        else:
            # The copy would be younger than the deletion.
            topic = (find_property(message.properties, props.REAL_TOPIC.encode()) or b"").decode("utf-8", "replace")
            has_topic = not is_topic_deleted(self._broker, topic, offset, stored_ms)
        if not has_topic:
            self._events.warn("deleted", "a timed message is not delivered: topic {topic} was deleted", topic=topic)
        return has_topic

    def _lose(self, queue_offset: int, text: str) -> None:
        if queue_offset not in self._undone:
            self.lost += 1
            self._log.error("timers: {text}", text=text)

    def _store(self, items: Sequence[_Item]) -> float:
        """Store messages and their note with one write; return the seconds to wait. Storage thread."""
        broker = self._broker
        before = set(self._undone)
        chosen = [
            item
            for item in items
            if item.queue_offset not in before and not self.gate.is_being_cancelled(item.identity)
        ]
        done = [*self._undone, *[item.queue_offset for item in chosen]]
        if not done:
            return EAGER_SECONDS
        messages = [item.message for item in chosen if item.message is not None]
        results = broker.store.put_messages([*messages, note_done(done, broker.store_host, broker.now_ms())])
        if messages:
            broker.broker_stats.count_sends(messages, results[:-1])
        noted = results[-1]
        outcomes = iter(results)
        undone: list[int] = []
        for item in chosen:
            if item.message is not None:
                result = next(outcomes)
                if result.status in _NEVER_STORED:
                    where = f"{item.message.topic}: {result.cause}"
                    self._lose(item.queue_offset, f"the message number {item.queue_offset} cannot be stored in {where}")
                elif result.status is not PutStatus.PUT_OK:
                    continue
                elif item.message.topic != TIMER_TOPIC:
                    self.delivered += 1
            undone.append(item.queue_offset)
        if noted.status is PutStatus.PUT_OK:
            self._undone = []
            self._trouble.clear(_TABLE, _DELIVERY)
            if self._reader is not None:
                self._reader.awaited = noted.queue_offset
            return EAGER_SECONDS / 5
        self._undone += undone
        self._complain(_DELIVERY, f"cannot deliver, trying again: {noted.cause}")
        return RETRY_SECONDS

    # ------------------------------------------------------------ long delays

    def _roll_some(self) -> float | None:
        """Store again messages whose log file might be deleted before their due time.

        Returns the seconds to wait; None if there were none.
        """
        now = self._clock()
        if self._next_roll is not None and now < self._next_roll:
            return None
        now_ms = self._broker.now_ms()
        window_ms = max(1, self._settings.file_reserved_time) * HALF_HOUR_MS
        rows = []
        for row in self.waiting.oldest(self._group_limit()):
            record = self._broker.store.look_message(row.physical_offset)
            if record is not None and store_timestamp_of(record) > now_ms - window_ms:
                break
            rows.append(row)
        if not rows:
            self._next_roll = now + ROLL_SECONDS
            return None
        return self._hand_over(rows, message_to_roll, "stored anew")
