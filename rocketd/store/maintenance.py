"""What has to be done every second or so: flush consume queues, write the checkpoint, watch the disk.

Answers to Apache's `FlushConsumeQueueService` and the disk check of its `CleanCommitLogService`.
"""

import threading
import time
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.store.checkpoint import StoreCheckpoint
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.dispatch import Dispatcher
from rocketd.store.filesystem import IFileSystem
from rocketd.store.running_flags import DISK_FULL, RunningFlags
from rocketd.store.settings import MessageStoreConfig

DISK_CHECK_SECONDS = 10.0

_log = Logger()


class DiskWatch:
    """Measures how full the disk of the log is, and refuses writes when it is too full. Belongs to one thread at a
    time.
    """

    def __init__(self, fs: IFileSystem, path: str, limit: float, flags: RunningFlags) -> None:
        """`limit` is the used part, 0.0 to 1.0, above which nothing is stored."""
        self._fs = fs
        self._path = path
        self.limit = limit
        self._flags = flags
        self.ratio = 0.0

    def check(self) -> None:
        """Measure now."""
        try:
            self.ratio = self._fs.disk_usage(self._path).ratio
        except OSError as error:
            _log.error("cannot measure the disk of {path}: {error}", path=self._path, error=error)
            return
        full = self.ratio > self.limit
        if self._flags.set(DISK_FULL, full):
            if full:
                _log.error(
                    "the disk of {path} is {ratio:.1%} full, above the limit of {limit:.0%}: messages are refused",
                    path=self._path,
                    ratio=self.ratio,
                    limit=self.limit,
                )
            else:
                _log.info(
                    "the disk of {path} is {ratio:.1%} full: messages are taken", path=self._path, ratio=self.ratio
                )


class FlushConsumeQueueService:
    """The maintenance thread. `flush_all` belongs to it, or to the thread that has stopped it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        queues: ConsumeQueueTable,
        dispatcher: Dispatcher,
        checkpoint: StoreCheckpoint,
        disk_watch: DiskWatch,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._queues = queues
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._disk_watch = disk_watch
        self._monotonic = monotonic
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="rocketd-store-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def flush_all(self) -> None:
        """Put all consume queues on the disk, then say so in the checkpoint."""
        timestamp = self._dispatcher.store_timestamp
        if self._flush(0):
            if timestamp:
                self._checkpoint.logics_msg_timestamp = timestamp
            try:
                self._checkpoint.flush()
            except OSError as error:
                _log.error("cannot write {path}: {error}", path=self._checkpoint.path, error=error)

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

    def _run(self) -> None:
        now = self._monotonic()
        next_thorough = now + self._config.flush_consume_queue_thorough_interval / 1000
        next_disk_check = now + DISK_CHECK_SECONDS
        while not self._stopping.wait(self._config.flush_interval_consume_queue / 1000):
            try:
                now = self._monotonic()
                if now >= next_disk_check:
                    next_disk_check = now + DISK_CHECK_SECONDS
                    self._disk_watch.check()
                if now >= next_thorough:
                    next_thorough = now + self._config.flush_consume_queue_thorough_interval / 1000
                    self.flush_all()
                else:
                    self._flush(self._config.flush_consume_queue_least_pages)
            except Exception:
                _log.failure("maintenance failed")
