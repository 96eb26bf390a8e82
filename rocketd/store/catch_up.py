"""Dispatches at the start what the log has more than queues and index, though the disk may have no room for it.

Answers to the loop in Apache's `DefaultMessageStore.start` that waits until dispatch has caught up. A full disk must not
keep the store from being opened and read: what cannot be entered then becomes visible when there is room.
"""

import threading
from collections.abc import Callable, Iterator

from twisted.logger import Logger

from rocketd.store.commit_log import CommitLog
from rocketd.store.deletions import Deletions
from rocketd.store.dispatch import Dispatcher, ReputMessageService
from rocketd.store.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.record_scanner import RecordScanner, ScanEnd
from rocketd.store.running_flags import RunningFlags

RETRY_SECONDS = 2.0

_log = Logger()


class CatchUp:
    """Dispatch of all that was in the log at the start.

    The first `attempt` belongs to the thread that starts the store, `run` to the dispatching thread. `begin` is the offset
    of the log that this has come to; `last` is as the Dispatcher's; `flags` are those of the attempt that is under way, None
    without.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        make_dispatcher: Callable[[RunningFlags, threading.Event], Dispatcher],
        scanner: RecordScanner,
        begin: int,
        deletions: Deletions,
    ) -> None:
        """`make_dispatcher` makes one that sets its own flags, and that stops waiting for the disk when the event is set."""
        self._commit_log = commit_log
        self._make_dispatcher = make_dispatcher
        self._scanner = scanner
        self._deletions = deletions
        self.begin = begin
        self.last = (-1, 0, 0)
        self.flags: RunningFlags | None = None

    def attempt(self) -> bool:
        """Dispatch from `begin` on; returns whether there was room for all, and only then moves `begin`."""
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
        """Attempt until there is room; False when the store is stopped before."""
        _log.error(
            "what the log has from {begin} on becomes visible when the disk has room for its entries", begin=self.begin
        )
        while not stopping.wait(RETRY_SECONDS):
            if self.attempt():
                _log.info("the disk has room: all messages are visible")
                return True
        return False

    def begin_timestamp(self) -> int:
        """Store time in ms of the first record from `begin` on, 0 where there is none."""
        return next((request.store_timestamp for request in self._requests()), 0)

    def queue_offsets(self) -> dict[tuple[str, int], int]:
        """The offsets behind the last message of queues that have messages from `begin` on."""
        return {
            (request.topic, request.queue_id): request.queue_offset + 1
            for request in self._requests()
            if not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
        }

    def _requests(self) -> Iterator[DispatchRequest]:
        """What the log has from `begin` on, but for deleted records."""
        offset = self.begin
        while (data := self._commit_log.data_from(offset)) is not None and len(data):
            scan = self._scanner.scan(data, 0, len(data), offset, check_crc=False)
            yield from self._deletions.left_of(scan.requests)
            if scan.end is ScanEnd.MORE:
                offset += scan.position
            else:
                offset = self._commit_log.roll(offset)
