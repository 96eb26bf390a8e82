"""Delivers messages at their own times.

Answers to TimerMessageStore of Apache's 5.x. A thread of its own reads the timer topic into a table, sleeps until the first
message is due, and has the storage thread append what is due together with a note that it is done. Until that note is read
back nothing else is delivered; so the log alone says what has been delivered, after a crash as well, and on a slave that
becomes the master.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

from twisted.logger import Logger

from rocketd.broker.timer.gate import TimerGate
from rocketd.broker.timer.reader import TimerReader
from rocketd.broker.timer.records import identity_in, message_to_deliver, message_to_roll, note_done
from rocketd.broker.timer.table import Row, TimerTable
from rocketd.common.names import TIMER_TOPIC
from rocketd.store.errors import StoreError
from rocketd.store.message import MessageInner, PutStatus
from rocketd.store.record import store_timestamp_of

GROUP_MESSAGES = 512
GROUP_BYTES = 4 << 20
"""Most that is delivered by one write, so that sends get their turn."""

LOOK_SECONDS = 0.1
"""How long the thread sleeps at most: the system's clock may be set."""
EAGER_SECONDS = 0.005
"""How often the topic is looked at while messages come in, or while a note is awaited."""
EAGER_FOR_SECONDS = 0.2
RETRY_SECONDS = 1.0

ROLL_SECONDS = 60.0
"""How often the thread looks for messages that have to be stored anew."""
HALF_HOUR_MS = 1_800_000

_NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class _Item(NamedTuple):
    """A message to be stored, None when it cannot be, with the queue offset that is then done and its identity."""

    queue_offset: int
    identity: str
    message: MessageInner | None


class TimerMessageService:
    """``start`` and ``stop`` belong to the owner of the store, ``_store`` to the storage thread, ``wake`` and ``table`` to
    any, the rest to the timer thread. ``clock`` tells seconds that only go forward.
    """

    _log = Logger()

    def __init__(self, broker: Any, clock: Callable[[], float] = monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self._settings = broker.settings.store
        self.gate = TimerGate(broker, self.wake)
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
        self._told = ""
        self.delivered = 0
        """Messages delivered since the start. Any thread may read it."""
        self.lost = 0
        """Messages whose record was gone, or that no queue could take."""

    def start(self) -> None:
        """Begin to deliver, with the open store: on a master, and where it is wanted."""
        if self._settings.broker_role == "SLAVE" or not self._settings.timer_wheel_enable:
            return
        self.prepare()
        self._thread = threading.Thread(target=self._run, name="rocketd-timer", daemon=True)
        self._thread.start()

    def prepare(self) -> None:
        """Get ready for ``run_once``, with the open store."""
        self._reader = TimerReader(self._broker.store, self.waiting)
        # All that is in the log now has to be read before anything is delivered.
        self._log_end = self._broker.store.max_physical_offset()

    def stop(self) -> None:
        """End the thread and close the table. Blocks; the storage thread must still work."""
        self._stopping.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.waiting.close()

    def wake(self) -> None:
        """Say that a message is about to wait."""
        self._awake.set()

    def rests(self, end: int) -> bool:
        """Whether it has read the topic up to an offset, and nothing is due. Any thread."""
        rested = self._rested
        if rested is None or rested[0] < end:
            return False
        return rested[1] is None or rested[1] > int(self._broker.now_ms())

    @property
    def next_due_ms(self) -> int | None:
        """When the next message was due when it rested last; None where none waited. Any thread."""
        return None if self._rested is None else self._rested[1]

    def table(self) -> dict[str, str]:
        """Describe it for brokerStatus, with the names that 5.x has; nothing until the topic is used."""
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
                # Not to be woken by every message.
                self._stopping.wait(min(pause, EAGER_SECONDS))
            else:
                self._awake.wait(pause)

    def _guarded_run(self) -> float:
        try:
            return self.run_once()
        except sqlite3.OperationalError as error:
            # A full disk, for instance: what it has read is still right.
            self._complain(f"{self.waiting.path} cannot be used, trying again: {error}")
            self.waiting.close()
            return RETRY_SECONDS
        except sqlite3.DatabaseError as error:
            # A loss of power may do that, and nothing is lost by it.
            self._log.warn(
                "timers: {path} is damaged and is made anew from {topic}: {error}",
                path=self.waiting.path,
                topic=TIMER_TOPIC,
                error=error,
            )
            return self._discard()
        except Exception as error:
            self._complain(f"cannot deliver, trying again: {type(error).__name__}: {error}")
            self.waiting.close()
            return RETRY_SECONDS

    def _discard(self) -> float:
        try:
            self.waiting.discard()
        except OSError as error:
            self._complain(f"{self.waiting.path} cannot be removed: {error}")
            return RETRY_SECONDS
        return LOOK_SECONDS

    def _complain(self, cause: str) -> None:
        if cause != self._told:  # it is tried again all the time: once is enough
            self._told = cause
            self._log.error("timers: {cause}", cause=cause)

    def run_once(self) -> float:
        """Read what is new, deliver what is due; returns the seconds to wait, 0 when there is more to do.

        Raises sqlite3.Error.
        """
        reader, store = self._reader, self._broker.store
        assert reader is not None
        if not self.waiting.is_open:
            reader.open()
        # The end first: what is dispatched meanwhile counts the next time.
        dispatched_to = store.max_physical_offset()
        dispatched_to -= store.dispatch_behind_bytes()
        if reader.read():
            return 0.0
        self.gate.forget_cancellations(dispatched_to)
        if dispatched_to < self._log_end or reader.next_offset <= reader.awaited:
            return EAGER_SECONDS
        self._log_end = 0
        now_ms = self._broker.now_ms()
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
        return self._hand_over(rows, lambda record: message_to_deliver(record, now_ms), "delivered")

    def _group_limit(self) -> int:
        """Messages of one group: their note must have room in a record, with those of a group that was cut short."""
        limit: int = self._settings.max_message_size // 16
        return max(1, min(GROUP_MESSAGES, limit))

    def _hand_over(self, rows: Sequence[Row], make: Callable[[memoryview], MessageInner], what: str) -> float:
        """Have the storage thread store messages made of some records; returns the seconds to wait."""
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

    def _item(self, row: Row, make: Callable[[memoryview], MessageInner], what: str) -> tuple[_Item, int]:
        record = self._broker.store.look_message(row.physical_offset)
        cause: object = "its record is gone from the log"
        if record is not None:
            try:
                return _Item(row.queue_offset, identity_in(record), make(record)), len(record)
            except (StoreError, ValueError) as error:
                cause = error
        self._lose(row.queue_offset, f"the message at {row.physical_offset} is not {what}: {cause}")
        return _Item(row.queue_offset, "", None), 0

    def _lose(self, queue_offset: int, text: str) -> None:
        if queue_offset not in self._undone:
            self.lost += 1
            self._log.error("timers: {text}", text=text)

    def _store(self, items: Sequence[_Item]) -> float:
        """Store messages, and the note that they are done, by one write; returns the seconds to wait. Storage thread."""
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
            self._told = ""
            if self._reader is not None:
                self._reader.awaited = noted.queue_offset
            return EAGER_SECONDS / 5
        self._undone += undone
        self._complain(f"cannot deliver, trying again: {noted.cause}")
        return RETRY_SECONDS

    # ------------------------------------------------------------ long delays

    def _roll_some(self) -> float | None:
        """Store anew what lies so far back that its log file might be deleted before its time.

        Returns the seconds to wait, None when there was nothing.
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
