"""Flushes the log to the disk and answers the senders that wait for it.

Counterpart: `FlushRealTimeService`, `GroupCommitService` and `FlushDiskWatcher` (Apache). A flush is an fdatasync of
the file's descriptor, during which other threads run. A flush of the mapping would block them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

from twisted.logger import Logger

from rocketd.common.event_loop.loop_lag import LagHistogram
from rocketd.common.process.cpu_affinity import UnboundThread
from rocketd.store.base.running_flags import FLUSH_ERROR, RunningFlags
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import PutStatus
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.state.checkpoint import StoreCheckpoint

FlushCallback = Callable[[PutStatus], None]

SLOW_FLUSH_SECONDS = 0.5
STOP_ATTEMPTS = 10

_log = Logger()


class _FlushRequest:
    """A sender waits for the disk. Both threads may call `answer`; only the first call counts."""

    __slots__ = ("_callback", "_guard", "answered", "deadline", "end_offset")

    def __init__(self, end_offset: int, deadline: float, callback: FlushCallback) -> None:
        self.end_offset = end_offset
        self.deadline = deadline
        self._callback = callback
        self._guard = threading.Lock()
        self.answered = False

    def answer(self, status: PutStatus) -> None:
        with self._guard:
            if self.answered:
                return
            self.answered = True
        try:
            self._callback(status)
        except Exception:
            _log.failure("a flush callback failed")


class FlushCommitLogService:
    """The flush thread of the log, and a watcher that answers in time if the disk does not.

    Any thread may call `when_flushed` and `wake`. Callbacks come from one of the two threads. Under SYNC_FLUSH, every
    request is flushed at once. Otherwise a flush is made every flushIntervalCommitLog, if at least
    flushCommitLogLeastPages are new or flushCommitLogThoroughInterval has passed. Settings other than the flush type
    are read each time.

    The first failed flush is the last: FLUSH_ERROR in `flags` refuses further appends, and senders are answered
    FLUSH_DISK_TIMEOUT until the store is restarted.
    """

    def __init__(
        self,
        queue: MappedFileQueue[LogFile],
        checkpoint: StoreCheckpoint,
        flags: RunningFlags,
        config: MessageStoreConfig,
        monotonic: Callable[[], float] = time.monotonic,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        """`stopwatch` returns the seconds that measure the flushes. The default is `monotonic`."""
        self._queue = queue
        self._checkpoint = checkpoint
        self._flags = flags
        self._config = config
        self._sync = config.flush_disk_type == "SYNC_FLUSH"
        self._monotonic = monotonic
        self._stopwatch = stopwatch or monotonic
        self._requests: SimpleQueue[_FlushRequest | None] = SimpleQueue()
        self._waiting: deque[_FlushRequest] = deque()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.last_flush_ms = 0.0
        self.flush_times = LagHistogram()
        """Durations of the flushes."""

    def start(self) -> None:
        """Start the threads."""
        self._threads = [UnboundThread(target=self._run, name="rocketd-store-flush", daemon=True)]
        if self._sync:
            self._threads.append(threading.Thread(target=self._watch, name="rocketd-store-flush-watch", daemon=True))
        for thread in self._threads:
            thread.start()

    def when_flushed(self, end_offset: int, callback: FlushCallback) -> None:
        """Call back with PUT_OK when the log is on disk up to an offset, or with FLUSH_DISK_TIMEOUT after
        syncFlushTimeout.
        """
        request = _FlushRequest(end_offset, self._monotonic() + self._config.sync_flush_timeout / 1000, callback)
        self._waiting.append(request)
        self._requests.put(request)

    def wake(self) -> None:
        """Request a flush without waiting for it."""
        self._requests.put(None)

    def stop(self) -> None:
        """Flush everything, answer all senders and end the threads."""
        self._stopping.set()
        self.wake()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _run(self) -> None:
        last_thorough = self._monotonic()
        while not self._stopping.is_set():
            try:
                asked = [self._requests.get(timeout=self._config.flush_interval_commit_log / 1000)]
                while self._requests.qsize():
                    asked.append(self._requests.get())
            except Empty:
                asked = []
            requests = [request for request in asked if request is not None]
            now = self._monotonic()
            thorough_interval = self._config.flush_commit_log_thorough_interval / 1000
            thorough = self._sync or bool(requests) or now >= last_thorough + thorough_interval
            if thorough:
                last_thorough = now
            self._flush(0 if thorough else self._config.flush_commit_log_least_pages)
            self._answer(requests)
        for _ in range(STOP_ATTEMPTS):
            if self._flush(0):
                break
        while self._requests.qsize():
            last = self._requests.get()
            if last is not None:
                self._answer([last])

    def _answer(self, requests: list[_FlushRequest]) -> None:
        if not requests:
            return
        if any(request.end_offset > self._queue.flushed_where for request in requests):
            # Appended while the first flush ran.
            self._flush(0)
        flushed = self._queue.flushed_where
        for request in requests:
            request.answer(PutStatus.PUT_OK if request.end_offset <= flushed else PutStatus.FLUSH_DISK_TIMEOUT)
        waiting = self._waiting
        while waiting and waiting[0].answered:
            waiting.popleft()

    def _flush(self, least_pages: int) -> bool:
        if self._flags.bits & FLUSH_ERROR:
            return False
        begin = self._stopwatch()
        try:
            done = self._queue.flush(least_pages)
        except OSError as error:
            # The kernel forgets pages it could not write, and would report success for the next flush.
            self._flags.set(FLUSH_ERROR, True)
            _log.error("cannot flush {directory}: {error}", directory=self._queue.directory, error=error)
            return False
        spent = self._stopwatch() - begin
        self.last_flush_ms = spent * 1000
        self.flush_times.add(spent)
        if spent > SLOW_FLUSH_SECONDS:
            _log.warn("the flush of {directory} took {ms:.0f} ms", directory=self._queue.directory, ms=spent * 1000)
        if self._queue.store_timestamp:
            self._checkpoint.physic_msg_timestamp = self._queue.store_timestamp
        return done

    def _watch(self) -> None:
        while not self._stopping.wait(min(0.25, self._config.sync_flush_timeout / 4000)):
            now = self._monotonic()
            for request in list(self._waiting):
                if now >= request.deadline:
                    request.answer(PutStatus.FLUSH_DISK_TIMEOUT)
