"""Finds the end of the log at the start, and brings the consume queues and the index to it.

Answers to Apache's `CommitLog.recoverNormally` and `recoverAbnormally`. What is not a whole record ends the log: it
and all behind it is made zero, so that it can never count again.
"""

from twisted.logger import Logger

from rocketd.store.checkpoint import StoreCheckpoint
from rocketd.store.commit_log import CommitLog
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.dispatch import Dispatcher
from rocketd.store.layout import MESSAGE_MAGIC
from rocketd.store.mapped_file import LogFile
from rocketd.store.record import store_timestamp_of
from rocketd.store.record_scanner import RecordScanner, ScanEnd

RECOVERED_FILES = 3
"""After a clean stop, this many last files are read."""


class Recovery:
    """One recovery of one store; belongs to the thread that starts it. The files must be loaded."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        dispatcher: Dispatcher,
        scanner: RecordScanner,
        checkpoint: StoreCheckpoint,
        *,
        check_crc: bool,
        index_safe: bool,
    ) -> None:
        """`index_safe`: after a crash, start no later than where the index was on the disk."""
        self._log = Logger()
        self._commit_log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._scanner = scanner
        self._checkpoint = checkpoint
        self._check_crc = check_crc
        self._index_safe = index_safe

    def recover(self, abnormal: bool) -> int:
        """Recover after a clean (`abnormal` false) or any other stop; returns where the log ends.

        After a clean stop the last three files are checked. After a crash all files are walked from the last that
        begins before the checkpoint, and every record is dispatched again, since its entries may have been lost.
        """
        self._queues.recover(abnormal)
        files = self._commit_log.queue.files
        if not files:
            if self._queues.queues:
                self._log.warn("there is no commit log: the consume queues are removed")
                self._queues.destroy()
            return 0
        first = self._first_file(files) if abnormal else max(0, len(files) - RECOVERED_FILES)
        end, broken = self._walk(files, first, abnormal)
        self._log.info(
            "the log was read from {begin} and ends at {end} ({how} stop)",
            begin=files[first].file_from_offset,
            end=end,
            how="unclean" if abnormal else "clean",
        )
        self._commit_log.queue.truncate(end, clear=abnormal or broken)
        self._commit_log.queue.flushed_where = end
        if self._queues.max_physic_offset > end:
            self._log.warn("consume queues reach beyond the end of the log at {end}: cut", end=end)
            self._queues.truncate_dirty(end)
        self._queues.correct_min_offset(self._commit_log.min_offset)
        return end

    def _walk(self, files: list[LogFile], first: int, dispatch: bool) -> tuple[int, bool]:
        """Where the log ends, and whether something lies there that is not nothing."""
        end = files[first].file_from_offset
        for file in files[first:]:
            view = file.view
            position = 0
            while True:
                if dispatch:
                    scan = self._scanner.scan(view, position, file.file_size, file.file_from_offset, self._check_crc)
                    if scan.requests:
                        self._dispatcher.dispatch(scan.requests)
                else:
                    scan = self._scanner.skip(view, position, file.file_size, file.file_from_offset, self._check_crc)
                position = scan.position
                if scan.end is not ScanEnd.MORE:
                    break
            end = file.file_from_offset + position
            if scan.end is ScanEnd.BROKEN:
                return end, any(view[position : position + 8])
            end = file.file_from_offset + file.file_size
        return end, False

    def _first_file(self, files: list[LogFile]) -> int:
        """The last file whose first record was stored before everything was surely on the disk, the first file if
        none was.
        """
        timestamp = (
            self._checkpoint.min_timestamp_with_index() if self._index_safe else self._checkpoint.min_timestamp()
        )
        for number in range(len(files) - 1, 0, -1):
            view = files[number].view
            if int.from_bytes(view[4:8], "big", signed=True) == MESSAGE_MAGIC and (
                0 < store_timestamp_of(view) <= timestamp
            ):
                return number
        return 0
