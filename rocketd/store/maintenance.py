"""What has to be done every second or so, in one thread: flush consume queues and write the checkpoint, and more.

Answers to Apache's `FlushConsumeQueueService` and to the scheduled tasks of its `DefaultMessageStore`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.logger import Logger

from rocketd.store.checkpoint import Progress, StoreCheckpoint
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.dispatch import Dispatcher
from rocketd.store.mapped_file import LogFile
from rocketd.store.mapped_file_queue import MappedFileQueue
from rocketd.store.running_flags import RunningFlags
from rocketd.store.settings import MessageStoreConfig

RETRY_SECONDS = 10.0
"""When a task that failed is done again."""

_log = Logger()


class PeriodicTask(Protocol):
    """Something to be done again and again, in steps that are short enough for the other tasks to wait for."""

    def run_once(self, now: float) -> float:
        """Do what is due at `now`, seconds of a clock that never goes back; returns when to call again."""


class MaintenanceService:
    """The maintenance thread. `start` and `stop` belong to the thread that owns the store."""

    def __init__(self, tasks: Sequence[PeriodicTask], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Each task is called for the first time when the thread starts."""
        self._due = dict.fromkeys(tasks, 0.0)
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="rocketd-store-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, behind the step that is under way."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run_due(self, now: float) -> float:
        """Do one step of each task that is due; returns when the next one is. A task that fails is a line in the
        log.
        """
        for task, due in self._due.items():
            if due <= now:
                try:
                    self._due[task] = task.run_once(now)
                except Exception:
                    _log.failure("maintenance failed")
                    self._due[task] = now + RETRY_SECONDS
        return min(self._due.values())

    def _run(self) -> None:
        now = self._monotonic()
        self._due = dict.fromkeys(self._due, now)
        while not self._stopping.is_set():
            due = self.run_due(now)
            now = self._monotonic()
            self._stopping.wait(max(0.0, due - now))
            now = self._monotonic()


class FlushConsumeQueueService:
    """The task that puts consume queues on the disk. All of it belongs to the maintenance thread, or to the one that
    has stopped it.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        queues: ConsumeQueueTable,
        dispatcher: Dispatcher,
        checkpoint: StoreCheckpoint,
        log: MappedFileQueue[LogFile],
        flags: RunningFlags,
    ) -> None:
        self._log = log
        self._flags = flags
        self._flushed_last = (-1, 0, 0)
        self._config = config
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._next_thorough: float | None = None

    def run_once(self, now: float) -> float:
        """Flush the queues with enough new pages, from time to time all of them."""
        thorough_interval = self._config.flush_consume_queue_thorough_interval / 1000
        if self._next_thorough is None:
            # The start has just flushed everything.
            self._next_thorough = now + thorough_interval
        elif now >= self._next_thorough:
            self._next_thorough = now + thorough_interval
            self.flush_all()
        else:
            self._flush(self._config.flush_consume_queue_least_pages)
            if self._note(self._dispatcher.last):
                self._write(self._checkpoint.note_progress)
        return now + self._config.flush_interval_consume_queue / 1000

    def flush_all(self) -> None:
        """Put all consume queues on the disk, then say so in the checkpoint."""
        last = self._dispatcher.last
        timestamp = last[2]
        if self._flush(0):
            self._flushed_last = last
            self._note(last)
            if timestamp:
                self._checkpoint.logics_msg_timestamp = timestamp
            self._write(self._checkpoint.flush)

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            _log.error("cannot write {path}: {error}", path=self._checkpoint.path, error=error)

    def _note(self, last: tuple[int, int, int]) -> bool:
        """Tell the checkpoint how far dispatch has come, up to this record; returns whether that is news."""
        before = self._checkpoint.progress
        if last[0] < 0 or not self._flags.queue_writable:
            return False
        flushed = self._log.flushed_where
        durable = (before.durable_last, before.durable) if before is not None else (-1, 0)
        if durable[1] < self._flushed_last[1] <= flushed:
            # Queues first, then the log, so that no entry leads to a record that a crash can lose.
            durable = self._flushed_last[:2]
        progress = Progress(flushed, durable[1], durable[0], last[1], last[0])
        self._checkpoint.progress = progress
        return progress != before

    def _flush(self, least_pages: int) -> bool:
        """Flush the queues that were written; returns whether none failed."""
        good = True
        for queue in list(self._queues.dirty):
            # Taken out first: what is put meanwhile brings the queue in again.
            self._queues.dirty.discard(queue)
            try:
                if queue.flush(least_pages):
                    continue
            except FileNotFoundError:
                # Its topic was deleted meanwhile.
                continue
            except OSError as error:
                good = False
                _log.error("cannot flush {directory}: {error}", directory=queue.files.directory, error=error)
            self._queues.dirty.add(queue)
        return good
