"""The maintenance thread, and its task to flush consume queues and write the checkpoint.

Counterpart: `FlushConsumeQueueService`, and the scheduled tasks of `DefaultMessageStore` (Apache).
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.logger import Logger

from rocketd.store.base.running_flags import RunningFlags
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.queue.dispatch import RecordDispatcher
from rocketd.store.state.checkpoint import DispatchProgress, StoreCheckpoint

RETRY_SECONDS = 10.0
"""Delay before a failed task is repeated."""

_log = Logger()


class PeriodicTask(Protocol):
    """A periodic task. Its steps are short, because the other tasks wait for them."""

    def run_once(self, now: float) -> float:
        """Do the work due at `now`, in seconds of a monotonic clock. Return the time of the next call."""


class MaintenanceService:
    """The maintenance thread. `start` and `stop` belong to the owner of the store."""

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
        """End the thread after its current step."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run_due(self, now: float) -> float:
        """Run one step of each task that is due. Return the time of the next one. Failures are logged."""
        for task, due in self._due.items():
            if due <= now:
                try:
                    self._due[task] = task.run_once(now)
                except Exception:
                    _log.failure("a maintenance task failed")
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
    """The task that flushes consume queues. Belongs to the maintenance thread, or to the thread that has stopped it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        queues: ConsumeQueueTable,
        dispatcher: RecordDispatcher,
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
        """Flush the queues with enough new pages, and from time to time all of them."""
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
        """Flush all consume queues, then update the checkpoint."""
        last = self._dispatcher.last
        timestamp = last[2]
        if self._flush(0):
            self._flushed_last = last
            self._note(last)
            if timestamp and self._flags.queue_writable:
                self._checkpoint.logics_msg_timestamp = timestamp
            self._write(self._checkpoint.flush)

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            _log.error("cannot write {path}: {error}", path=self._checkpoint.path, error=error)

    def _note(self, last: tuple[int, int, int]) -> bool:
        """Update the checkpoint's progress up to this record. Return whether it changed."""
        before = self._checkpoint.progress
        if last[0] < 0 or not self._flags.queue_writable:
            return False
        flushed = self._log.flushed_where
        durable = (before.durable_last, before.durable) if before is not None else (-1, 0)
        if durable[1] < self._flushed_last[1] <= flushed:
            # Queues first, then the log, so a durable entry never points to a record that a crash can lose.
            durable = self._flushed_last[:2]
        progress = DispatchProgress(flushed, durable[1], durable[0], last[1], last[0])
        self._checkpoint.progress = progress
        return progress != before

    def _flush(self, least_pages: int) -> bool:
        """Flush the written queues. Return whether all succeeded."""
        good = True
        for queue in list(self._queues.dirty):
            # Removed first: a concurrent put adds the queue again.
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
