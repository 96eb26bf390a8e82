"""Makes appended messages visible: consume queues, index, waiting readers.

Counterpart: `ReputMessageService` and its dispatchers (Apache). Normally the storage thread passes on the records it
has just written, without parsing. After a start, and if the hand-off queue is full, the log itself is read. Both ways
end in the same `RecordDispatcher`, and so does recovery.
"""

import errno
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from twisted.logger import Logger

from rocketd.common.names import is_storable
from rocketd.store.base.running_flags import WRITE_INDEX_FILE_ERROR, WRITE_LOGICS_QUEUE_ERROR, RunningFlags
from rocketd.store.format.message import Arrival, BitmapMaker, DispatchRequest
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from rocketd.store.index.service import IndexService
from rocketd.store.log.append import AppendedGroup
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.queue.request_groups import arrivals_of, is_any_awaited, requests_by_queue
from rocketd.store.state.deletions import Deletions

ArrivalListener = Callable[[Sequence[Arrival]], None]
FurtherQueues = Callable[[Sequence[DispatchRequest]], list[DispatchRequest]]

MAX_ATTEMPTS = 30
"""Attempts to enter records until messages are refused. On a full disk, the attempts go on."""
RETRY_SECONDS = 1.0
LOG_ATTEMPTS = 60
"""Each attempt is logged up to MAX_ATTEMPTS, then every one of so many."""

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))

MAX_WAITING_GROUPS = 2048
"""Groups that may wait in memory. If dispatch falls further behind, it reads the log."""

HOLD_SECONDS = 0.002
"""How long held messages may wait for others to be dispatched with them, if no reader waits for them."""

HELD_REQUESTS = 256
"""Held messages are dispatched if there are this many."""

MERGED_REQUESTS = 512
"""Waiting groups are dispatched together up to about this many messages."""

STOP_SECONDS = 5.0
_STUCK_SECONDS = 0.1

DispatchBlockers = Callable[[bool], str]
"""Return the names of calls into third-party code that block a dispatching thread, "" without any.

With True, only calls abandoned by the stop are named.
"""

_log = Logger()


def _always(_topic: str, _queue_id: int) -> bool:
    return True


def _merged(groups: Sequence[AppendedGroup]) -> AppendedGroup:
    """Join groups that follow each other in the log."""
    requests = [request for group in groups for request in group.requests]
    return AppendedGroup(groups[0].start_offset, groups[-1].end_offset, requests)


def no_blockers(_: bool) -> str:
    """Return "": a store without extensions has no blocking calls."""
    return ""


class WouldWaitError(Exception):
    """Records could not be entered, and the thread must not wait for another attempt."""


class DispatchAbandonedError(Exception):
    """The stop of the store has not waited for the dispatching thread, so the thread must not change files any more."""


class RecordDispatcher:
    """Enters groups of records into the consume queues and the index. Belongs to the dispatching thread.

    `last` has the start and end of the last record entered, and its store time in ms. Any thread may call `abandon`.

    If the disk refuses, another attempt is made every second, and messages are refused after 30 of them. If the disk is
    full, they are accepted again when there is space. After other errors, they are refused until the next start.
    """

    def __init__(
        self, queues: ConsumeQueueTable, index: IndexService | None, flags: RunningFlags, stopping: threading.Event
    ) -> None:
        self._queues = queues
        self.index = index
        self._flags = flags
        self._stopping = stopping
        self._abandoned = threading.Event()
        self.last = (-1, 0, 0)
        self.deletions = Deletions()
        """Records that get no more entries in queues."""
        self.make_bitmaps: BitmapMaker | None = None
        """Called with records before they get their entries."""
        self.further: FurtherQueues | None = None
        """Called with records. Returns the requests for their further queues."""
        self.others: tuple[Callable[[Sequence[DispatchRequest]], None], ...] = ()
        """Called with records that have their entries."""
        self.may_wait = True
        """Whether `dispatch` may wait for another attempt. Otherwise it raises WouldWaitError."""
        self.is_waiting = False
        """Whether the last attempt failed. Any thread may read it."""

    def twin(self, flags: RunningFlags, stopping: threading.Event) -> "RecordDispatcher":
        """Return a dispatcher for the same queues and index, with other flags and another event for the stop."""
        twin = RecordDispatcher(self._queues, self.index, flags, stopping)
        twin.deletions = self.deletions
        twin.make_bitmaps = self.make_bitmaps
        twin.further = self.further
        twin._abandoned = self._abandoned
        return twin

    def abandon(self) -> None:
        """Make this dispatcher and its twins enter nothing more."""
        self._abandoned.set()

    def refuse_if_abandoned(self) -> None:
        """Raise DispatchAbandonedError after `abandon`."""
        if self._abandoned.is_set():
            raise DispatchAbandonedError

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Enter records in log order. Records already entered are skipped.

        Raises DispatchAbandonedError, with nothing entered, after `abandon`, and WouldWaitError, see `may_wait`.
        """
        if self.make_bitmaps is not None:
            try:
                self.make_bitmaps(requests)
            except Exception:
                # Nothing is lost: filters then look at the messages themselves.
                _log.failure(
                    "cannot compute filter bitmaps for the messages from offset {offset}",
                    offset=requests[0].physical_offset,
                )
        # Only now: the bitmaps are made by extensions, which may take long.
        self.refuse_if_abandoned()
        groups = requests_by_queue(self.deletions.left_of(requests))
        if self.further is not None:
            for request in self.further(requests):
                groups.setdefault((request.topic, request.queue_id), []).append(request)
        queues = self._queues
        for key, group in groups.items():
            queue = queues.queues.get(key)
            if queue is None:
                if not is_storable(key[0]):
                    _log.error(
                        "the messages to {topic!r} from offset {offset} on get no queue: the topic is not a valid name",
                        topic=key[0],
                        offset=group[0].physical_offset,
                    )
                    continue
                queue = queues.find_or_create(*key)
            self._put(queue, group)
            queues.dirty.add(queue)
        if self.index is not None:
            try:
                self._put_index(self.index, requests)
            except WouldWaitError:
                raise
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
        attempts = _Attempts(self, WRITE_LOGICS_QUEUE_ERROR)
        while self._flags.queue_writable or attempts.has_flagged:
            try:
                queue.put(requests)
            except OSError as error:
                if attempts.is_logged:
                    _log.error(
                        "cannot write queue {topic}-{queue}, attempt {attempt}: {error}",
                        topic=queue.topic,
                        queue=queue.queue_id,
                        attempt=attempts.failed + 1,
                        error=error,
                    )
                if not attempts.again(error):
                    break
            except Exception:
                # Not a disk error: another try would not help, and later records must not wait.
                _log.failure(
                    "queue {topic}-{queue} lacks the messages from {offset} on",
                    topic=queue.topic,
                    queue=queue.queue_id,
                    offset=requests[0].physical_offset,
                )
                attempts.over()
                return
            else:
                attempts.over()
                return
        self._flags.set(WRITE_LOGICS_QUEUE_ERROR, True)

    def _put_index(self, index: IndexService, requests: Sequence[DispatchRequest]) -> None:
        attempts = _Attempts(self, WRITE_INDEX_FILE_ERROR)

        def again(error: OSError) -> bool:
            if attempts.is_logged:
                _log.error(
                    "cannot write the index, attempt {attempt}: {error}", attempt=attempts.failed + 1, error=error
                )
            return (self._flags.queue_writable or attempts.has_flagged) and attempts.again(error)

        if index.put(requests, again):
            attempts.over()

    def _wait(self) -> bool:
        """Wait before another attempt. Return False if the store stops."""
        self.is_waiting = True
        if not self.may_wait:
            raise WouldWaitError
        return not self._stopping.wait(RETRY_SECONDS)


class _Attempts:
    """Attempts to enter some records. `failed` is their number."""

    def __init__(self, dispatcher: RecordDispatcher, flag: int) -> None:
        """`flag` is set after MAX_ATTEMPTS."""
        self._dispatcher = dispatcher
        self._flag = flag
        self.failed = 0
        self.has_flagged = False

    @property
    def is_logged(self) -> bool:
        """Whether the next failure is logged."""
        return self.failed < MAX_ATTEMPTS or self.failed % LOG_ATTEMPTS == 0

    def again(self, error: OSError) -> bool:
        """Wait after a failed attempt. Return whether to make another one."""
        self.failed += 1
        if self.failed >= MAX_ATTEMPTS:
            if error.errno not in NO_ROOM:
                return False
            self.has_flagged = True
            self._dispatcher._flags.set(self._flag, True)
        return self._dispatcher._wait()

    def over(self) -> None:
        """Accept messages again after a success."""
        self._dispatcher.is_waiting = False
        if self.has_flagged:
            self._dispatcher._flags.set(self._flag, False)
            _log.info("the disk has room again, after {count} attempts", count=self.failed)


class ReputMessageService:
    """The dispatching thread.

    - `submit`, `hold`, `release` and `call` belong to the storage thread.
    - `catch_up` and `start` belong to the thread that starts the store.
    - `behind` may be called by any thread.

    `reput_from_offset` is the offset up to which the log has been dispatched. A thread must hold the lock to dispatch.
    The storage thread takes it if it is free, because waking this thread costs more than the dispatch of some messages.
    Messages of several puts share a dispatch unless a reader waits for one of them (`hold`, `release`).
    """

    def __init__(self, commit_log: CommitLog, dispatcher: RecordDispatcher, scanner: RecordScanner) -> None:
        self._commit_log = commit_log
        self._dispatcher = dispatcher
        self._scanner = scanner
        self._listeners: tuple[ArrivalListener, ...] = ()
        self._queue: SimpleQueue[AppendedGroup | Callable[[], None] | None] = SimpleQueue()
        self._dropped = False
        self._held: list[AppendedGroup] = []
        self._held_requests = 0
        self._held_since = 0.0
        self._is_due = False
        self.is_awaited: Callable[[str, int], bool] = _always
        """Returns whether a reader waits for the next message of a queue, given its topic and queue id."""
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._calls_wanted = self._calls_done = 0
        self.reput_from_offset = 0

    def add_listener(self, listener: ArrivalListener) -> None:
        """Call a function with every dispatched group, on the dispatching thread."""
        self._listeners = (*self._listeners, listener)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="rocketd-store-reput", daemon=True)
        self._thread.start()

    def submit(self, group: AppendedGroup) -> None:
        """Hand a group over. Never waits: a group without space in the queue is read from the log later."""
        if self._queue.qsize() < MAX_WAITING_GROUPS:
            self._queue.put(group)
        else:
            self._dropped = True

    def hold(self, group: AppendedGroup) -> None:
        """Take a group over and dispatch it at one of the next calls of `release`."""
        if not self._held:
            self._held_since = time.monotonic()
        self._held.append(group)
        self._held_requests += len(group.requests)
        if not self._is_due:
            self._is_due = is_any_awaited(group.requests, self.is_awaited)

    def release(self, idle: bool) -> bool:
        """Dispatch the held groups if the caller is idle, or a reader waits for them, or they are many or old.

        This happens here if the dispatching thread is idle, otherwise there. Return whether they stay held.
        """
        held = self._held
        if not held:
            return False
        is_due = idle or self._is_due or self._held_requests >= HELD_REQUESTS
        if not is_due and time.monotonic() - self._held_since < HOLD_SECONDS:
            return True
        # A call taken from the queue that does not hold the lock yet goes first.
        quiet = not self._has_guests and not self._queue.qsize() and self._calls_wanted == self._calls_done
        if quiet and self._turn.acquire(blocking=False):
            self._dispatcher.may_wait = False
            try:
                self._handle(held[0] if len(held) == 1 else _merged(held))
            except WouldWaitError:
                # Here it would hold up all senders.
                for group in held:
                    self.submit(group)
            except Exception:
                _log.failure("dispatch failed at offset {offset}", offset=self.reput_from_offset)
            finally:
                self._dispatcher.may_wait = True
                self._turn.release()
        else:
            for group in held:
                self.submit(group)
        self._forget_held()
        return False

    @property
    def _has_guests(self) -> bool:
        """Whether third-party code is called with dispatched messages. It must not hold up the storage thread."""
        return bool(self._dispatcher.others) or len(self._listeners) > 1

    def _forget_held(self) -> None:
        self._held.clear()
        self._held_requests = 0
        self._is_due = False

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the dispatching thread, after everything appended before."""
        end = self._commit_log.max_offset
        for group in self._held:
            self.submit(group)
        self._forget_held()

        def call() -> None:
            try:
                self._dispatch_log(end)  # groups that found no space in the queue
                function()
            finally:
                self._calls_done += 1

        self._calls_wanted += 1
        self._queue.put(call)

    def behind(self) -> int:
        """Return the number of bytes of the log not dispatched yet."""
        return max(0, self._commit_log.max_offset - self.reput_from_offset)

    def catch_up(self) -> None:
        """Dispatch the rest of the log."""
        self._dispatch_log(self._commit_log.max_offset)

    def stop(self, blockers: DispatchBlockers = no_blockers) -> None:
        """Dispatch the groups handed over, for at most 5 s, and end the thread. A thread that lives on enters nothing more.

        Do not wait while the thread hangs in calls that ``blockers`` reports as abandoned.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._queue.put(None)
        deadline = time.monotonic() + STOP_SECONDS
        while thread.is_alive() and time.monotonic() < deadline and not blockers(True):
            thread.join(_STUCK_SECONDS)
        if thread.is_alive():
            # Its files may belong to the next start as soon as this returns.
            self._dispatcher.abandon()
            names = blockers(False)
            _log.error(
                "dispatch is {behind} bytes behind at the stop{waits}",
                behind=self.behind(),
                waits=f"; it waits for {names}" if names else "",
            )

    def _run(self) -> None:
        queue = self._queue
        while True:
            item = queue.get()
            self._turn.acquire()
            try:
                self._dispatcher.refuse_if_abandoned()
                if isinstance(item, AppendedGroup):
                    requests = item.requests
                    # Cheaper together: entries of each queue and of each index file are then stored once.
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
            except DispatchAbandonedError:
                return
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
            if len(self._listeners) == 1 and not is_any_awaited(requests, self.is_awaited):
                return  # the only listener is that of the readers
            arrivals = arrivals_of(requests)
            for listener in self._listeners:
                try:
                    listener(arrivals)
                except Exception:
                    _log.failure("an arrival listener failed")

    def _dispatch_log(self, until: int) -> None:
        """Dispatch by reading the log up to an offset, the end of a record."""
        log = self._commit_log
        if self.reput_from_offset < log.min_offset:
            _log.warn(
                "dispatch begins at {begin}: the log from {offset} up to there has expired",
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
