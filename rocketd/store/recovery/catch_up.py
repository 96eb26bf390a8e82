"""Dispatches the part of the log missing in queues and index at the start, even if the disk is full.

Counterpart: the loop in `DefaultMessageStore.start` that waits for dispatch (Apache). A full disk must not prevent a
store from being opened and read: the remaining messages become visible when there is space.
"""

import threading
from collections.abc import Callable, Iterator

from twisted.logger import Logger

from rocketd.store.base.running_flags import RunningFlags
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.queue.consume_queue import MAX_OFFSET
from rocketd.store.queue.dispatch import RecordDispatcher, ReputMessageService
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.state.deletions import Deletions

RETRY_SECONDS = 2.0

_log = Logger()


class CatchUp:
    """Dispatch of everything in the log at the start.

    The first `attempt` belongs to the thread that starts the store, `run` to the dispatching thread. `begin` is the
    offset of the log reached so far. `last` is as in Dispatcher. `flags` are those of the running attempt, None without
    one.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        make_dispatcher: Callable[[RunningFlags, threading.Event], RecordDispatcher],
        scanner: RecordScanner,
        begin: int,
        deletions: Deletions,
    ) -> None:
        """`make_dispatcher` returns a dispatcher with the given flags. It stops waiting for the disk when the event is
        set.
        """
        self._commit_log = commit_log
        self._make_dispatcher = make_dispatcher
        self._scanner = scanner
        self._deletions = deletions
        self.begin = begin
        self.last = (-1, 0, 0)
        self.flags: RunningFlags | None = None

    def attempt(self) -> bool:
        """Dispatch from `begin` on. Return whether there was space for everything; only then `begin` moves."""
        flags = self.flags = RunningFlags()
        at_once = threading.Event()
        at_once.set()
        dispatcher = self._make_dispatcher(flags, at_once)
        reput = ReputMessageService(self._commit_log, dispatcher, self._scanner)
        reput.reput_from_offset = self.begin
        try:
            reput.catch_up()
        finally:
            self.flags = None
        if not flags.queue_writable:
            return False
        self.begin = reput.reput_from_offset
        self.last = dispatcher.last
        return True

    def run(self, stopping: threading.Event) -> bool:
        """Attempt until there is space. Return False if the store is stopped before."""
        _log.error(
            "the disk is full: messages of the log from {begin} on become visible when there is space for their entries",
            begin=self.begin,
        )
        while not stopping.wait(RETRY_SECONDS):
            if self.attempt():
                _log.info("the disk has space again: all messages are visible")
                return True
        return False

    def begin_timestamp(self) -> int:
        """Return the store time in ms of the first record from `begin` on, 0 without one."""
        return next((request.store_timestamp for request in self._requests()), 0)

    def queue_offsets(self) -> dict[tuple[str, int], int]:
        """Return the offsets after the last message, for queues with messages from `begin` on."""
        return {
            (request.topic, request.queue_id): request.queue_offset + 1
            for request in self._requests()
            if not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
        }

    def _requests(self) -> Iterator[DispatchRequest]:
        """Yield the records of the log from `begin` on, except deleted ones."""
        offset = self.begin
        while (data := self._commit_log.data_from(offset)) is not None and len(data):
            scan = self._scanner.scan(data, 0, len(data), offset, check_crc=False)
            yield from self._deletions.left_of(scan.requests)
            if scan.end is ScanEnd.MORE:
                offset += scan.position
            else:
                offset = self._commit_log.roll(offset)


class LateDispatch:
    """Dispatch of the log at the start: at once, or later if the disk is full then.

    `begin` belongs to the thread that starts the store, `run` to the dispatching thread. Any thread may read the rest.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        dispatcher: RecordDispatcher,
        reput: ReputMessageService,
        scanner: RecordScanner,
        checkpoint: StoreCheckpoint,
    ) -> None:
        """`dispatcher` and `reput` are those of later puts."""
        self._commit_log = commit_log
        self._dispatcher = dispatcher
        self._reput = reput
        self._scanner = scanner
        self._checkpoint = checkpoint
        self._rest: CatchUp | None = None

    @property
    def pending(self) -> bool:
        """Whether a part of the log waits for space on the disk."""
        return self._rest is not None

    @property
    def dispatched_to(self) -> int:
        """Offset of the log up to which everything is in queues and index."""
        rest = self._rest
        return self._reput.reput_from_offset if rest is None else rest.begin

    @property
    def flags(self) -> RunningFlags | None:
        """Flags of the running attempt, None without one."""
        rest = self._rest
        return None if rest is None else rest.flags

    def queue_offsets(self) -> dict[tuple[str, int], int]:
        """Return the offsets after the last message, for queues with messages that wait."""
        return {} if self._rest is None else self._rest.queue_offsets()

    def begin(self) -> None:
        """Dispatch the log from the dispatching service's offset on, if there is space for all of it."""
        rest = self._rest = CatchUp(
            self._commit_log,
            self._dispatcher.twin,
            self._scanner,
            self._reput.reput_from_offset,
            self._dispatcher.deletions,
        )
        if rest.attempt():
            self._done(rest)
        else:
            # Until all records are entered, the next start must go by time: the disk may lack entries it was known to
            # have.
            self._checkpoint.set_back_to(rest.begin_timestamp())
            # For puts from now on. They are dispatched after this.
            self._reput.reput_from_offset = self._commit_log.max_offset

    def run(self, stopping: threading.Event) -> None:
        """Dispatch the waiting part as soon as there is space. Return early if the event is set."""
        rest = self._rest
        if rest is None:
            return
        if rest.run(stopping):
            self._done(rest)
        else:
            # Later records must not be entered before it.
            self._reput.reput_from_offset = MAX_OFFSET

    def _done(self, rest: CatchUp) -> None:
        self._reput.reput_from_offset = max(rest.begin, self._reput.reput_from_offset)
        if rest.last[0] >= 0:
            self._dispatcher.last = rest.last
        self._rest = None
