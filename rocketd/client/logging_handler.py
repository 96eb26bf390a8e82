"""A handler of the standard ``logging`` that sends records to a topic.

Counterpart: logappender (Apache). A logging thread only hands records over. Records not sent in time are dropped, counted
and reported.
"""

import atexit
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic
from typing import Final

from rocketd.client.errors import IllegalMessageError, IllegalOptionError, RocketMQError
from rocketd.client.faces.push import Cluster
from rocketd.client.messages.message import Message
from rocketd.client.runtime.fork import forks
from rocketd.client.settings.config import Duration, milliseconds
from rocketd.client.sync import Producer

OWN_TREE: Final = "rocketd"
"""Logger whose records, with those of its children, are never sent: sending them would cause more of them."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two tries of the same records: doubled from the first to the longest."""

_log = logging.getLogger(__name__)

Tags = str | Callable[[logging.LogRecord], str | None] | None
Keys = Sequence[str] | Callable[[logging.LogRecord], Sequence[str]]


class RocketMQHandler(logging.Handler):
    """Sends each formatted record as a message with the properties ``logger`` and ``level``. Any thread may use it.

    ``tags`` and ``keys`` are those of all messages, or functions of a record. Up to ``capacity`` records wait. They are
    sent in batches of ``batch`` at most, no later than ``interval`` after the first. While the cluster takes nothing
    they are tried again, and further ones are dropped. ``dropped`` counts them, and a record reports them when the
    cluster takes messages again. A record may be sent twice if a connection is lost. ``flush`` and ``close`` wait
    ``timeout`` at most. Records left at ``close`` are dropped. ``close`` is called at exit automatically.

    The first record starts a thread and a producer of ``group``. A forked child starts a new one. A child ending by
    ``os._exit``, as those of multiprocessing do, must call ``logging.shutdown`` before.

    Raises:

    - IllegalTopicError: the topic name is invalid.
    - IllegalGroupError: the group name is invalid.
    - IllegalOptionError: another option is invalid.
    """

    def __init__(
        self,
        topic: str,
        group: str = "rocketd_logging",
        cluster: Cluster = None,
        *,
        level: int | str = logging.NOTSET,
        tags: Tags = None,
        keys: Keys = (),
        capacity: int = 10_000,
        batch: int = 100,
        interval: Duration = 0.2,
        timeout: Duration = 5.0,
    ) -> None:
        super().__init__(level)
        Message(topic, b"\n").check()
        for option, value in (("capacity", capacity), ("batch", batch)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise IllegalOptionError(f"{option}={value!r}: accepted is a whole number from 1 on")
        Producer(group, cluster)  # never opened: it checks the options
        self.topic = topic
        self._tags = tags
        self._keys = keys
        self._limits = _Limits(
            capacity,
            batch,
            milliseconds("interval", interval, zero=True) / 1000,
            milliseconds("timeout", timeout) / 1000,
        )
        self._make_producer = lambda: Producer[bytes](group, cluster)
        self._forks = forks()
        self._shipping = _Shipping(self)

    def filter(self, record: logging.LogRecord) -> "bool | logging.LogRecord":  # type: ignore[override]
        """Reject rocketd's records before a lock is taken, because a flush may wait for this lock."""
        if record.name == OWN_TREE or record.name.startswith(OWN_TREE + "."):
            return False
        return super().filter(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a record over. It is dropped if ``capacity`` records wait, or after ``close``."""
        try:
            message = self.message_of(record)
            message.check()
        except Exception:
            self.handleError(record)
            return
        self._of_this_process().put(message)

    def message_of(self, record: logging.LogRecord) -> Message:
        """Return the message for a record."""
        return Message(
            self.topic,
            # A message must have a body.
            self.format(record).encode("utf-8", "backslashreplace") or b"\n",
            tags=self._tags(record) if callable(self._tags) else self._tags,
            keys=self._keys(record) if callable(self._keys) else self._keys,
            properties={"logger": record.name, "level": record.levelname},
        )

    def flush(self) -> None:
        """Return when all records handed over are sent, or after ``timeout``."""
        self._of_this_process().flush()

    def close(self) -> None:
        """Send the waiting records, for ``timeout`` at most, and end. Further records are dropped."""
        self._of_this_process().close()
        atexit.unregister(self.close)
        super().close()

    @property
    def dropped(self) -> int:
        """Records of this process that were not sent, and will not be."""
        return self._of_this_process().dropped

    def _of_this_process(self) -> "_Shipping":
        self.acquire()
        try:
            if self._forks != forks():
                # The parent sends the records waiting there, and counts its drops.
                self._forks = forks()
                self._shipping = _Shipping(self)
            return self._shipping
        finally:
            self.release()


@dataclass(frozen=True, slots=True)
class _Limits:
    """Waiting records and records per batch, at most, and times in seconds."""

    capacity: int
    batch: int
    interval: float
    timeout: float


class _Shipping:
    """The waiting records, and the thread to send them.

    Any thread may call ``put``, ``flush`` and ``close``, and nothing else.
    """

    def __init__(self, handler: RocketMQHandler) -> None:
        self._handler = handler
        self._limits = handler._limits
        self._changed = Condition()
        self._waiting: deque[Message] = deque()
        self._under_way = 0
        self._flushing = 0
        self._deadline: float | None = None
        self._thread: Thread | None = None
        self._producer: Producer[bytes] | None = None
        self._failing = False
        self._told = 0
        self.dropped = 0

    # ------------------------------------------------------------ any thread

    def put(self, message: Message) -> None:
        """Take a message, or drop it if the queue is full or closed."""
        with self._changed:
            if len(self._waiting) + self._under_way >= self._limits.capacity or self._deadline is not None:
                self.dropped += 1
                return
            self._waiting.append(message)
            if self._thread is None:
                self._begin()
            if len(self._waiting) in (1, self._limits.batch):
                self._changed.notify_all()

    def _begin(self) -> None:
        self._thread = Thread(target=self._run, name=f"rocketd-logging-{self._handler.topic}", daemon=True)
        # Runs before the end of the clients, which was registered before; logging.shutdown would run after it.
        atexit.register(self._handler.close)
        self._thread.start()

    def flush(self) -> None:
        """Wait until no record waits, but not longer than the limit."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._under_way, self._limits.timeout)
            self._flushing -= 1

    def close(self) -> None:
        """Let the thread end, and drop the rest."""
        with self._changed:
            if self._deadline is not None:
                return
            self._deadline = monotonic() + self._limits.timeout
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._limits.timeout)
        with self._changed:
            self.dropped += len(self._waiting) + self._under_way
            self._waiting.clear()

    # ------------------------------------------------------------ background thread

    def _run(self) -> None:
        while batch := self._next_batch():
            if not self._send_until_taken(batch):
                break
            with self._changed:
                self._under_way = 0
                self._changed.notify_all()
            self._tell_of_drops()
        if self._producer is not None:
            self._producer.close()

    def _next_batch(self) -> list[Message]:
        """Wait for messages, and a little for more of them. Return an empty list at the end."""
        limits = self._limits
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._deadline is not None)
            self._changed.wait_for(
                lambda: len(self._waiting) >= limits.batch or self._flushing or self._deadline is not None,
                limits.interval,
            )
            batch = [self._waiting.popleft() for _ in range(min(limits.batch, len(self._waiting)))]
            self._under_way = len(batch)
            return batch

    def _send_until_taken(self, batch: Sequence[Message]) -> bool:
        """Send repeatedly until it succeeds. Return False if the end came first."""
        pause = FIRST_PAUSE
        while True:
            try:
                self._send(batch)
                self._failing = False
                return True
            except RocketMQError as error:
                _log.log(logging.DEBUG if self._failing else logging.WARNING, "records are not sent yet: %s", error)
                self._failing = True
            with self._changed:
                if self._changed.wait_for(lambda: self._deadline is not None and monotonic() >= self._deadline, pause):
                    return False
            pause = min(2 * pause, LONGEST_PAUSE)

    def _send(self, batch: Sequence[Message]) -> None:
        if self._producer is None:
            self._producer = self._handler._make_producer().open()
        timeout = None if self._deadline is None else max(0.1, self._deadline - monotonic())
        try:
            self._producer.send_batch(batch, timeout=timeout)
        except IllegalMessageError:
            self._send_each(batch, timeout)

    def _send_each(self, batch: Iterable[Message], timeout: float | None) -> None:
        """Send the messages of a rejected batch one by one. Invalid ones are dropped."""
        assert self._producer is not None
        for message in batch:
            try:
                self._producer.send(message, timeout=timeout)
            except IllegalMessageError as error:
                with self._changed:
                    self.dropped += 1
                _log.warning("a log record that cannot be a message is dropped: %s", error)

    def _tell_of_drops(self) -> None:
        """Report the number of dropped records, once half of the capacity is free again."""
        with self._changed:
            count = self.dropped - self._told
            if not count or len(self._waiting) > self._limits.capacity // 2:
                return
            self._told = self.dropped
        text = "%d log records were dropped: topic %s did not accept them, or not fast enough"
        _log.warning(text, count, self._handler.topic)
        values = (count, self._handler.topic)
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, values, None)
        with self._changed:
            self._waiting.append(self._handler.message_of(record))
