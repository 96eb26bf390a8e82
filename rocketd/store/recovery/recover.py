"""Finds the end of the log at the start, and cuts the consume queues to it.

Counterpart: `CommitLog.recoverNormally` and `recoverAbnormally` (Apache). The amount of data read depends on how the
store was left, never on its size: after a known stop, only records that may be undispatched or incomplete. The first
bytes that are not a whole record end the log. They and everything after them are zeroed, so they never become valid.
But if whole records follow that a crash cannot explain, the log is damaged: the start fails and nothing is changed. See
docs/decisions/0010 and the package docstring.
"""

from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.base.errors import StoreDamagedError, StoreEndMissingError
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, MESSAGE_MAGIC
from rocketd.store.format.record import MAGIC_POSITION, store_timestamp_of
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from rocketd.store.index.service import IndexService
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.recovery.file_notes import Notes, QueueCut, RebuildPlan
from rocketd.store.recovery.missing_files import find_missing_index, find_missing_queues
from rocketd.store.recovery.queue_tails import QueueTails
from rocketd.store.state.checkpoint import RECOVERY_MARGIN_MS, DispatchProgress, StoreCheckpoint
from rocketd.store.state.last_stop import LastStop

RECOVERED_FILES = 3
"""Last files read after a clean stop, if the queues do not tell where records begin."""

RECOVERED_BYTES = 64 << 20
"""Last bytes of the log whose records are read after a clean stop, as a check."""

INDEXED_BYTES = 1 << 30
"""Most bytes of the log indexed again after a crash: the size of one of Apache's files."""


class RecoveredLog(NamedTuple):
    """Begin of the reading, end of the log, and whether there are other bytes after the end (`dirty`)."""

    begin: int
    end: int
    dirty: bool


class Recovery:
    """The recovery of a store. Belongs to the thread that begins it. The files of the store must be loaded before.

    `plan` and `find_end` only read. `apply` makes the changes.
    """

    _log = Logger()

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        scanner: RecordScanner,
        checkpoint: StoreCheckpoint,
        last_stop: LastStop,
        notes: Notes | None,
        *,
        check_crc: bool,
        index_safe: bool,
        lost_end_comes_again: bool = False,
    ) -> None:
        """Take the parts of the store and the facts about its last stop.

        - `notes` are the notes of the files, None if unknown. The attribute is also None if they belong to another log.
        - `index_safe`: after a crash, start no later than the end of the index on disk.
        - `lost_end_comes_again`: a log that ends before its known end is accepted, because the master sends the rest.
        """
        self._commit_log = commit_log
        self._queues = queues
        self._scanner = scanner
        self._checkpoint = checkpoint
        self._last_stop = last_stop
        self.notes = notes
        self._check_crc = check_crc
        self._rebuilt = False
        self._index_safe = index_safe
        self._lost_end_comes_again = lost_end_comes_again
        self._progress = self._known_progress()
        if last_stop is not LastStop.CLEAN and not index_safe and checkpoint.progress and self._progress is None:
            # They belong to another log.
            self.notes = None

    def plan(self, index: IndexService | None) -> tuple[RebuildPlan, list[str]]:
        """Return the parts of queues and index to rebuild, and the reasons in words. The index need not be loaded."""
        log_begin = self._commit_log.min_offset
        if log_begin < 0:
            return RebuildPlan(), []
        limit = self._queue_limit()
        missing, causes = find_missing_queues(self.notes, self._queues, log_begin, limit)
        index_cut = None
        if index is not None:
            index_cut, paths = find_missing_index(
                self.notes, index, log_begin, self._last_stop is LastStop.CRASHED, self._checkpoint
            )
            causes += paths
        known = {(cut.topic, cut.queue_id) for cut in missing}
        damaged = [cut for cut in self._find_damaged(limit) if (cut.topic, cut.queue_id) not in known]
        causes += [
            f"queue {cut.topic}-{cut.queue_id} does not agree with the log from entry {cut.offset // CONSUME_QUEUE_UNIT} on"
            for cut in damaged
        ]
        return RebuildPlan((*missing, *damaged), index_cut), causes

    def _find_damaged(self, limit: int | None) -> list[QueueCut]:
        progress = self._progress
        if self._last_stop is LastStop.CLEAN:
            progress = self._checkpoint.progress
            # Bytes left by Apache's broker after the end of a queue are not damage.
            comparable = self.notes is not None
        else:
            comparable = limit is not None
        if not comparable:
            return []
        last = -1
        if progress is not None:
            last = progress.durable_last if self._last_stop is LastStop.CRASHED else progress.dispatched_last
        tails = QueueTails(self._commit_log, self._queues, self._scanner, self.notes, self._last_stop, limit, last)
        return tails.find_damaged()

    def record_from(self, offset: int) -> int:
        """Return the offset itself if a record or a filler of the log begins there, otherwise the start of its file."""
        file = self._commit_log.queue.find(offset)
        if file is None:
            return max(self._commit_log.min_offset, 0)
        position = offset - file.file_from_offset
        written = self._commit_log.data_ranges(file, position)
        scan = self._scanner.scan(
            file.view, position, written[-1][1] if written else position, file.file_from_offset, False, 1
        )
        return file.file_from_offset if scan.end is ScanEnd.BROKEN else offset

    def find_end(self, plan: RebuildPlan) -> RecoveredLog:
        """Find the end of the log, reading also the part needed for the plan.

        Raises StoreDamagedError if this end would cost whole records, StoreEndMissingError if the log was longer.
        """
        files = self._commit_log.queue.files
        self._rebuilt = bool(plan)
        if not files:
            return RecoveredLog(0, 0, False)
        begin = self._begin(files)
        end, broken = self._walk(files, min(begin, self.record_from(plan.begin)) if plan else begin)
        if broken is not None:
            self._refuse_damage(files, broken, end)
            known = {self._queues.last_record(cuts={(cut.topic, cut.queue_id): cut.offset for cut in plan.queues})[0]}
            if self.notes is not None and self._checkpoint.progress is not None:
                # If an entry and its record do not agree, the record may be the damaged one.
                known.add(self._checkpoint.progress.dispatched_last)
            clean, killed = self._last_stop is LastStop.CLEAN, self._last_stop is LastStop.KILLED
            if (clean and max(known) >= end) or (killed and end in known):  # only whole records get entries
                if not self._lost_end_comes_again:
                    raise StoreDamagedError(broken.path, end, max(known))
                self._log.error(
                    "{path}: the log is damaged at {end}, and no whole record follows: this slave goes on from there, and "
                    "asks its master for the rest",
                    path=broken.path,
                    end=end,
                )
        self._refuse_lost_end(end)
        return RecoveredLog(begin, end, broken is not None)

    def _refuse_lost_end(self, end: int) -> None:
        """Raise StoreEndMissingError if the log was certainly longer."""
        known = self._known_end(end)
        if end < known and self._lost_end_comes_again:
            self._log.error(
                "the log ends at {end}, but it reached {known}: this slave goes on from there, and asks its master "
                "for the rest",
                end=end,
                known=known,
            )
        elif end < known:
            raise StoreEndMissingError(
                self._commit_log.queue.path_of(end - end % self._commit_log.file_size), end, known
            )

    def _known_end(self, end: int) -> int:
        """Return the offset up to which the log certainly went, 0 if unknown or if the checkpoint is of another log."""
        progress = self._checkpoint.progress
        record, record_end = self._queues.last_record()
        if record < end:
            # If the queues do not know it either, the checkpoint belongs to another log.
            return 0
        if progress is not None:
            return progress.end(self._last_stop)
        crashed = self._last_stop is LastStop.CRASHED
        if end <= self._commit_log.min_offset and not crashed:
            # Files without a single record: only a crash leaves entries before their records.
            return record_end
        # As after Apache's broker. The clock may have gone back a little after the last flush.
        flushed = self._checkpoint.physic_msg_timestamp - (RECOVERY_MARGIN_MS if crashed else 0)
        return record_end if self._last_timestamp(end) < flushed else 0

    def _last_timestamp(self, end: int) -> int:
        """Return the store time of the last record before an offset, 0 without one."""
        timestamp = 0
        offset = max(self._queues.last_record(end)[0], self._commit_log.min_offset)
        while offset < end and (data := self._commit_log.data_from(offset)) is not None:
            scan = self._scanner.scan(data, 0, min(len(data), end - offset), offset, check_crc=False)
            if scan.requests:
                timestamp = scan.requests[-1].store_timestamp
            elif scan.end is not ScanEnd.END_OF_FILE:
                break
            offset = self._commit_log.roll(offset) if scan.end is ScanEnd.END_OF_FILE else offset + scan.position
        return timestamp

    def apply(self, log_end: RecoveredLog, indexed_to: int) -> int:
        """Cut log and queues to the end of the log, and flush the rest. Return the offset where dispatch continues.

        `indexed_to` is the end of the index as a log offset.
        """
        begin, end, dirty = log_end
        log, queues = self._commit_log.queue, self._queues
        limit = self._queue_limit()
        if limit is None and self._last_stop is LastStop.CRASHED:
            # Everything after this offset is dispatched again; drop entries that may be torn.
            limit = begin
        if self._progress is None and self._last_stop is not LastStop.CLEAN and self._checkpoint.progress is not None:
            # The next start must not trust it either: it may find less in the queues.
            self._checkpoint.progress = None
            self._checkpoint.flush()
        queues.recover(self._last_stop is LastStop.CLEAN, limit)
        if not log.files:
            return 0
        self._log.info(
            "the log was read from {begin} and ends at {end} ({how} stop)",
            begin=begin,
            end=end,
            how=self._last_stop.name.lower(),
        )
        clean = self._last_stop is LastStop.CLEAN
        log.truncate(end, clear=dirty or not clean)
        log.flushed_where = end
        if not clean:
            # It was readable, but it may not have reached the disk.
            log.forget_flushed(begin if self._progress is None else min(begin, self._progress.flushed))
            log.flush(0)
            self._commit_log.sync_names()
            # Only now: it claims that the whole log is on disk.
            self._note_certain_progress(end)
        if queues.max_physic_offset > end:
            self._log.warn("consume queues reach beyond the end of the log at {end}: cut", end=end)
            queues.truncate_dirty(end)
        queues.correct_min_offset(self._commit_log.min_offset)
        if clean:
            progress = self._checkpoint.progress
            if self.notes is not None and progress is not None and progress.dispatched <= end:
                # Not the end of the existing queues: the last messages may be of a deleted topic.
                return max(progress.dispatched, self._commit_log.min_offset)
            return max(queues.max_physic_offset, self._commit_log.min_offset, 0)
        queues.forget_flushed(0 if self._progress is None else self._progress.durable)
        if self._last_stop is LastStop.CRASHED and indexed_to < begin:
            if indexed_to < begin - INDEXED_BYTES:
                self._log.warn(
                    "the index lacks the messages from {begin} to {end} of the log; "
                    "'rocketd store repair DIR --write --index' adds them",
                    begin=indexed_to,
                    end=begin - INDEXED_BYTES,
                )
            begin = min(begin, self._indexed_from(max(indexed_to, begin - INDEXED_BYTES)))
        return max(min(begin, end), self._commit_log.min_offset)

    def _indexed_from(self, offset: int) -> int:
        """Return the start of the record from which the index is rebuilt, at or after an offset of the log."""
        begin = self.record_from(offset)
        # It would not be found in queues that are rebuilt themselves.
        return begin if begin == offset or self._rebuilt else self._queues.record_from(offset)

    def _known_progress(self) -> DispatchProgress | None:
        """Return the checkpoint's progress if it belongs to this log."""
        progress = self._checkpoint.progress
        if self._last_stop is LastStop.CLEAN or self._index_safe or progress is None:
            return None
        if self._last_stop is LastStop.KILLED:
            last = progress.dispatched_last, progress.dispatched
        else:
            last = progress.durable_last, progress.durable
        if not self._is_end_of(*last):
            return None
        # A removed queue has to be rebuilt completely: without notes it is unknown which queue it is.
        return progress if self.notes is not None or self._queues.last_record(last[1]) == last else None

    def _note_certain_progress(self, end: int) -> None:
        """Give up the part of the known progress that a crash of the system made uncertain. Raises OSError.

        It is gone from the disk when this returns: later records may end where the lost ones ended.
        """
        if self._progress is not None and self._last_stop is LastStop.CRASHED:
            durable = self._progress.durable, self._progress.durable_last
            self._checkpoint.progress = DispatchProgress(end, *durable, *durable)
            self._checkpoint.flush()

    def _is_end_of(self, record: int, end: int) -> bool:
        """Return whether a whole record begins and ends at these offsets. 0 is the end without a record."""
        if record < 0:
            return end == 0
        view = self._commit_log.select(record, end - record)
        if view is None:
            return False
        scan = self._scanner.skip(view, 0, len(view), record, self._check_crc)
        return scan.end is ScanEnd.LIMIT and scan.position > 0

    def _next_record_at(self, offset: int) -> bool:
        """Return whether a whole record begins at an offset of the log."""
        file = self._commit_log.queue.find(offset)
        return file is not None and self._scanner.is_record(
            file.view, offset - file.file_from_offset, file.file_from_offset
        )

    def _queue_limit(self) -> int | None:
        """Return the log offset up to which entries are valid, None if unknown."""
        return None if self._progress is None else self._progress.end(self._last_stop)

    def _begin(self, files: list[LogFile]) -> int:
        """Return the offset of the first record to read."""
        if self._last_stop is LastStop.CLEAN:
            begin = self._queues.record_from(self._queues.last_record()[1] - RECOVERED_BYTES)
            if self._next_record_at(begin):
                return begin
            return files[max(0, len(files) - RECOVERED_FILES)].file_from_offset
        limit = self._queue_limit()
        if limit is not None:
            return max(limit, files[0].file_from_offset)
        return files[self._first_file(files)].file_from_offset

    def _walk(self, files: list[LogFile], begin: int) -> tuple[int, LogFile | None]:
        """Return the end of the log, and the file that ends there with other bytes after the end."""
        end = begin
        torn = self._last_stop is not LastStop.CLEAN
        for file in files:
            if file.file_from_offset + file.file_size <= begin:
                continue
            position = max(0, begin - file.file_from_offset)
            # Do not look at the hole at the end: a full memory file system has no space for the zeros of a hole.
            data = self._commit_log.data_ranges(file, position)
            limit = max(position, data[-1][1]) if data else position
            scan = self._scanner.skip(file.view, position, limit, file.file_from_offset, self._check_crc, torn)
            end = file.file_from_offset + scan.position
            if scan.end is not ScanEnd.END_OF_FILE and scan.position < file.file_size:
                return end, None if scan.position == limit and file is files[-1] else file
            end = file.file_from_offset + file.file_size
        return end, None

    def _refuse_damage(self, files: list[LogFile], broken: LogFile, end: int) -> None:
        """Raise StoreDamagedError if a whole record after the end must have been on disk all the time."""
        for file in files[files.index(broken) :]:
            after = end + 1 - file.file_from_offset if file is broken else 0
            position = self._next_record(file, after)
            if position is not None:
                offset = file.file_from_offset + position
                if offset < self._known_end(end) or self._was_on_disk(file, position, offset):
                    raise StoreDamagedError(broken.path, end, offset)
                return  # everything after it is newer

    def _next_record(self, file: LogFile, after: int) -> int | None:
        """Return the position of the first whole record in a file from a position on."""
        for begin, end in self._commit_log.data_ranges(file, after):
            # The first bytes of a record's size are zero, so the record may begin in the hole before these bytes.
            first = max(after, begin - MAGIC_POSITION)
            position = self._scanner.next_record(file.view, first, end, file.file_from_offset)
            if position is not None:
                return position
        return None

    def _was_on_disk(self, file: LogFile, position: int, offset: int) -> bool:
        """Return whether a crash cannot have lost the bytes before an existing record."""
        if self._last_stop is not LastStop.CRASHED:
            return True
        if self._progress is not None:
            return offset < self._progress.flushed
        # Some records of the last flushed millisecond may have come after the flush.
        return store_timestamp_of(file.view, position) < self._checkpoint.physic_msg_timestamp

    def _first_file(self, files: list[LogFile]) -> int:
        """Return the last file whose first record was stored before everything was certainly on disk.

        Return the first file if there is none.
        """
        timestamp = (
            self._checkpoint.min_timestamp_with_index() if self._index_safe else self._checkpoint.min_timestamp()
        )
        for number in range(len(files) - 1, 0, -1):
            ranges = self._commit_log.data_ranges(files[number], 0)
            if not ranges or ranges[0][0]:
                continue  # only a hole: a full memory file system has no space to read it
            view = files[number].view
            if int.from_bytes(view[4:8], "big", signed=True) == MESSAGE_MAGIC and (
                0 < store_timestamp_of(view) <= timestamp
            ):
                return number
        return 0
