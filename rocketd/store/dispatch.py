"""Makes appended messages visible: consume queues, index, waiting readers.

Answers to Apache's `ReputMessageService` and its dispatchers. In the steady state the storage thread hands over
what it has just written, so that nothing is parsed again; after a start, and when the hand-over queue is full, the
log itself is read. Both ways end in the same `Dispatcher`, and so does recovery.
"""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from twisted.logger import Logger

from rocketd.common.names import is_storable
from rocketd.store.append import AppendedGroup
from rocketd.store.commit_log import CommitLog
from rocketd.store.consume_queue import ConsumeQueue
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.deletions import Deletions
from rocketd.store.index_service import IndexService
from rocketd.store.message import SYS_FLAG_TRANSACTION_PREPARED, Arrival, BitmapMaker, DispatchRequest
from rocketd.store.record_scanner import RecordScanner, ScanEnd
from rocketd.store.running_flags import WRITE_LOGICS_QUEUE_ERROR, RunningFlags

ArrivalListener = Callable[[Sequence[Arrival]], None]
FurtherQueues = Callable[[Sequence[DispatchRequest]], list[DispatchRequest]]

MAX_ATTEMPTS = 30
RETRY_SECONDS = 1.0

MAX_WAITING_GROUPS = 2048
"""Groups that may wait in memory; those of a dispatcher further behind are read from the log when it gets there."""

MERGED_REQUESTS = 512
"""Waiting groups are dispatched together up to about this many messages."""

STOP_SECONDS = 5.0

_log = Logger()


class Dispatcher:
    """Enters groups of records into the consume queues and the index. Belongs to the dispatching thread.

    `last` tells of the last record entered where it begins and ends in the log, and its store time in ms.
    """

    def __init__(
        self, queues: ConsumeQueueTable, index: IndexService | None, flags: RunningFlags, stopping: threading.Event
    ) -> None:
        self._queues = queues
        self.index = index
        self._flags = flags
        self._stopping = stopping
        self.last = (-1, 0, 0)
        self.deletions = Deletions()
        """Records that get no entries in queues any more."""
        self.make_bitmaps: BitmapMaker | None = None
        """Called with records before they get their entries."""
        self.further: FurtherQueues | None = None
        """Called with records; returns what further queues get of them."""
        self.others: tuple[Callable[[Sequence[DispatchRequest]], None], ...] = ()
        """Called with records that have their entries."""

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Enter records in the order of the log; those that are entered already are passed over."""
        if self.make_bitmaps is not None:
            try:
                self.make_bitmaps(requests)
            except Exception:
                # Nothing is lost: filters then look at the messages themselves.
                _log.failure("no bitmaps for the messages from offset {offset}", offset=requests[0].physical_offset)
        groups: dict[tuple[str, int], list[DispatchRequest]] = {}
        for request in self.deletions.left_of(requests):
            if not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
                key = (request.topic, request.queue_id)
                group = groups.get(key)
                if group is None:
                    groups[key] = [request]
                else:
                    group.append(request)
        if self.further is not None:
            for request in self.further(requests):
                groups.setdefault((request.topic, request.queue_id), []).append(request)
        queues = self._queues
        for key, group in groups.items():
            queue = queues.queues.get(key)
            if queue is None:
                if not is_storable(key[0]):
                    _log.error(
                        "the messages to {topic!r} from offset {offset} on have no queue: it cannot be a directory",
                        topic=key[0],
                        offset=group[0].physical_offset,
                    )
                    continue
                queue = queues.find_or_create(*key)
            self._put(queue, group)
            queues.dirty.add(queue)
        if self.index is not None:
            try:
                self.index.put(requests)
            except Exception:
                _log.failure("cannot index the messages from offset {offset}", offset=requests[0].physical_offset)
        for dispatch in self.others:
            try:
                dispatch(requests)
            except Exception:
                _log.failure("a further dispatcher failed from offset {offset}", offset=requests[0].physical_offset)
        last = requests[-1]
        self.last = (last.physical_offset, last.physical_offset + last.size, last.store_timestamp)

    def _put(self, queue: ConsumeQueue, requests: list[DispatchRequest]) -> None:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if not self._flags.queue_writable:
                break
            try:
                queue.put(requests)
                return
            except OSError as error:
                _log.error(
                    "cannot write queue {topic}-{queue}, attempt {attempt}: {error}",
                    topic=queue.topic,
                    queue=queue.queue_id,
                    attempt=attempt,
                    error=error,
                )
            except Exception:
                # Not the disk's fault: another try would not help, and what is behind must not wait.
                _log.failure(
                    "queue {topic}-{queue} lacks the messages from {offset} on",
                    topic=queue.topic,
                    queue=queue.queue_id,
                    offset=requests[0].physical_offset,
                )
                return
            if self._stopping.wait(RETRY_SECONDS):
                break
        self._flags.set(WRITE_LOGICS_QUEUE_ERROR, True)


class ReputMessageService:
    """The dispatching thread.

    `submit`, `hold`, `release` and `call` belong to the storage thread, `catch_up` and `start` to the one that starts
    the store, `behind` may be used by any. `reput_from_offset` is how far the log has been dispatched. Whoever
    dispatches has the turn: the storage thread takes it when it has nothing else to do, since waking this thread for a
    lone message costs more than its dispatch.
    """

    def __init__(self, commit_log: CommitLog, dispatcher: Dispatcher, scanner: RecordScanner) -> None:
        self._commit_log = commit_log
        self._dispatcher = dispatcher
        self._scanner = scanner
        self._listeners: tuple[ArrivalListener, ...] = ()
        self._queue: SimpleQueue[AppendedGroup | Callable[[], None] | None] = SimpleQueue()
        self._dropped = False
        self._held: list[AppendedGroup] = []
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._calls_wanted = self._calls_done = 0
        self.reput_from_offset = 0

    def add_listener(self, listener: ArrivalListener) -> None:
        """Have a function called with every dispatched group, from the dispatching thread."""
        self._listeners = (*self._listeners, listener)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="rocketd-store-reput", daemon=True)
        self._thread.start()

    def submit(self, group: AppendedGroup) -> None:
        """Hand a group over. Never waits: what finds no room is read from the log later."""
        if self._queue.qsize() < MAX_WAITING_GROUPS:
            self._queue.put(group)
        else:
            self._dropped = True

    def hold(self, group: AppendedGroup) -> None:
        """Take a group over, to be dispatched at the next `release`."""
        self._held.append(group)

    def release(self, idle: bool) -> None:
        """Dispatch what is held: here when the caller is idle and the dispatching thread too, else there."""
        held = self._held
        if not held:
            return
        # A call that has left the queue and has not got the turn yet comes first, too.
        quiet = idle and not self._queue.qsize() and self._calls_wanted == self._calls_done
        if quiet and self._turn.acquire(blocking=False):
            try:
                for group in held:
                    self._handle(group)
            except Exception:
                _log.failure("dispatch failed at offset {offset}", offset=self.reput_from_offset)
            finally:
                self._turn.release()
        else:
            for group in held:
                self.submit(group)
        held.clear()

    def call(self, function: Callable[[], None]) -> None:
        """Have a function called in the dispatching thread, behind all that was appended before."""
        end = self._commit_log.max_offset
        for group in self._held:
            self.submit(group)
        self._held.clear()

        def call() -> None:
            try:
                self._dispatch_log(end)  # what found no room in the queue
                function()
            finally:
                self._calls_done += 1

        self._calls_wanted += 1
        self._queue.put(call)

    def behind(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._commit_log.max_offset - self.reput_from_offset)

    def catch_up(self) -> None:
        """Dispatch from the log all that is in it."""
        self._dispatch_log(self._commit_log.max_offset)

    def stop(self) -> None:
        """Dispatch what was handed over, for at most 5 s, and end the thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                _log.error("dispatch is {behind} bytes behind at the stop", behind=self.behind())
            self._thread = None

    def _run(self) -> None:
        queue = self._queue
        while True:
            item = queue.get()
            self._turn.acquire()
            try:
                if isinstance(item, AppendedGroup):
                    requests = item.requests
                    # Cheaper together: each queue's entries and each index file's are then stored once.
                    while len(requests) < MERGED_REQUESTS and queue.qsize():
                        following = queue.get()
                        if isinstance(following, AppendedGroup) and following.start_offset == item.end_offset:
                            requests = [*requests, *following.requests]
                            item = AppendedGroup(item.start_offset, following.end_offset, requests)
                            continue
                        self._handle(item)
                        item = following
                        break
                if isinstance(item, AppendedGroup):
                    self._handle(item)
                elif item is not None:
                    item()
                if self._dropped and not queue.qsize():
                    self._dropped = False
                    self._dispatch_log(self._commit_log.max_offset)
            except Exception:
                _log.failure("dispatch failed at offset {offset}", offset=self.reput_from_offset)
            finally:
                self._turn.release()
            if item is None:
                return

    def _handle(self, group: AppendedGroup) -> None:
        if group.start_offset > self.reput_from_offset:
            self._dispatch_log(group.start_offset)
        requests = group.requests
        if group.start_offset < self.reput_from_offset:
            requests = [request for request in requests if request.physical_offset >= self.reput_from_offset]
        if requests:
            self._dispatch(requests)
        self.reput_from_offset = max(self.reput_from_offset, group.end_offset)

    def _dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        self._dispatcher.dispatch(requests)
        if self._listeners:
            if self._dispatcher.further is not None:
                requests = [*requests, *self._dispatcher.further(requests)]
            arrivals: list[Arrival] = [
                (r.topic, r.queue_id, r.queue_offset + 1, r.tags_code, r.store_timestamp, r.properties, r.bitmap)
                for r in requests
                if not r.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
            ]
            for listener in self._listeners:
                try:
                    listener(arrivals)
                except Exception:
                    _log.failure("an arrival listener failed")

    def _dispatch_log(self, until: int) -> None:
        """Dispatch from the log's own bytes up to an offset, which is the end of a record."""
        log = self._commit_log
        if self.reput_from_offset < log.min_offset:
            _log.warn(
                "dispatch begins at {begin}: the log before it has expired, up from {offset}",
                begin=log.min_offset,
                offset=self.reput_from_offset,
            )
            self.reput_from_offset = log.min_offset
        while self.reput_from_offset < until:
            data = log.data_from(self.reput_from_offset)
            if data is None:
                return
            base = self.reput_from_offset
            scan = self._scanner.scan(data, 0, min(len(data), until - base), base, check_crc=False)
            if scan.requests:
                self._dispatch(scan.requests)
            self.reput_from_offset = base + scan.position
            if scan.end is ScanEnd.END_OF_FILE or not len(data):
                self.reput_from_offset = log.roll(base)
            elif scan.end is ScanEnd.BROKEN:
                _log.error("the log is broken at {offset}; dispatch goes on at {until}", offset=base, until=until)
                self.reput_from_offset = min(until, log.roll(base))
