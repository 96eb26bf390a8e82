"""Finds the end of the log at the start, and brings the consume queues to it.

Answers to Apache's `CommitLog.recoverNormally` and `recoverAbnormally`. What is read depends on how the store was left,
never on its size: after a stop that is ours to know of, the records that may not be dispatched or not be whole. What is
not a whole record ends the log, and it and all behind it is made zero, so that it can never count again. But where whole
records follow that a crash cannot have left there, the log is damaged: nothing is changed then, and the start ends.
"""

from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.checkpoint import RECOVERY_MARGIN_MS, Progress, StoreCheckpoint
from rocketd.store.commit_log import CommitLog
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.errors import StoreDamagedError, StoreEndMissingError
from rocketd.store.file_notes import Notes, QueueCut, RebuildPlan
from rocketd.store.index_service import IndexService
from rocketd.store.last_stop import LastStop
from rocketd.store.layout import CONSUME_QUEUE_UNIT, MESSAGE_MAGIC
from rocketd.store.mapped_file import LogFile
from rocketd.store.missing_files import find_missing_index, find_missing_queues
from rocketd.store.queue_tails import QueueTails
from rocketd.store.record import store_timestamp_of
from rocketd.store.record_scanner import RecordScanner, ScanEnd

RECOVERED_FILES = 3
"""After a clean stop, this many last files are read where no queue tells where records begin."""

RECOVERED_BYTES = 64 << 20
"""After a clean stop, the records in the last so many bytes of the log are read, to see that it is what was left."""

INDEXED_BYTES = 1 << 30
"""After a crash, the index is made again for at most so many bytes of the log, the size of one of Apache's files."""

_MAGIC = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)
_MAGIC_POSITION = 4


class LogEnd(NamedTuple):
    """Where the log ends, what is to be dispatched from where, and whether something lies behind the end."""

    begin: int
    end: int
    dirty: bool


class Recovery:
    """One recovery of one store; belongs to the thread that starts it. The files must be loaded.

    `plan` and `find_end` change nothing; `apply` then does.
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
        """`notes` are what is known of the files, None where that is nothing; the attribute is None as well where they are
        of another log. `index_safe`: after a crash, start no later than where the index was on the disk.
        `lost_end_comes_again`: a log that ends before its known end is no error, as its master sends the rest.
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
            # They are of another log.
            self.notes = None

    def plan(self, index: IndexService | None) -> tuple[RebuildPlan, list[str]]:
        """Say what of queues and index is to be made again, and in words why. The index need not be loaded."""
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
            # What Apache's broker has left behind the end of a queue is no damage.
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
        """The offset itself where a record or a filler of the log begins there, else where its file begins."""
        file = self._commit_log.queue.find(offset)
        if file is None:
            return max(self._commit_log.min_offset, 0)
        position = offset - file.file_from_offset
        written = self._commit_log.data_ranges(file, position)
        scan = self._scanner.scan(
            file.view, position, written[-1][1] if written else position, file.file_from_offset, False, 1
        )
        return file.file_from_offset if scan.end is ScanEnd.BROKEN else offset

    def find_end(self, plan: RebuildPlan) -> LogEnd:
        """Find where the log ends; what is needed for the plan is read as well. Raises StoreDamagedError when the end
        would cost whole records.
        """
        files = self._commit_log.queue.files
        self._rebuilt = bool(plan)
        if not files:
            return LogEnd(0, 0, False)
        begin = self._begin(files)
        end, broken = self._walk(files, min(begin, self.record_from(plan.begin)) if plan else begin)
        if broken is not None:
            self._refuse_damage(files, broken, end)
            known = {self._queues.last_record(cuts={(cut.topic, cut.queue_id): cut.offset for cut in plan.queues})[0]}
            if self.notes is not None and self._checkpoint.progress is not None:
                # Where an entry and its record do not agree, it may be the record that is damaged.
                known.add(self._checkpoint.progress.dispatched_last)
            clean, killed = self._last_stop is LastStop.CLEAN, self._last_stop is LastStop.KILLED
            if (clean and max(known) >= end) or (killed and end in known):  # an entry is made for what is whole
                if not self._lost_end_comes_again:
                    raise StoreDamagedError(broken.path, end, max(known))
                self._log.error(
                    "{path}: the log is damaged at {end}, and nothing whole follows: this slave goes on from there, and "
                    "asks its master for the rest",
                    path=broken.path,
                    end=end,
                )
        self._refuse_lost_end(end)
        return LogEnd(begin, end, broken is not None)

    def _refuse_lost_end(self, end: int) -> None:
        """Raise StoreEndMissingError when the log was longer for sure."""
        known = self._known_end(end)
        if end < known and self._lost_end_comes_again:
            self._log.error(
                "the log ends at {end}, though it went on to {known}: this slave goes on from there, and asks its master "
                "for the rest",
                end=end,
                known=known,
            )
        elif end < known:
            raise StoreEndMissingError(
                self._commit_log.queue.path_of(end - end % self._commit_log.file_size), end, known
            )

    def _known_end(self, end: int) -> int:
        """Up to where the log went for sure; 0 where nobody knows, or nobody but a checkpoint of another log."""
        progress = self._checkpoint.progress
        record, record_end = self._queues.last_record()
        if record < end:
            # Where queues know nothing of it either, this is another log than the one that the checkpoint is of.
            return 0
        if progress is not None:
            return progress.end(self._last_stop)
        crashed = self._last_stop is LastStop.CRASHED
        if end <= self._commit_log.min_offset and not crashed:
            # Files without a single record: nobody but a crash leaves entries before their records.
            return record_end
        # As after Apache's broker. The clock may have gone back a little behind the last flush.
        flushed = self._checkpoint.physic_msg_timestamp - (RECOVERY_MARGIN_MS if crashed else 0)
        return record_end if self._last_timestamp(end) < flushed else 0

    def _last_timestamp(self, end: int) -> int:
        """Store time of the last record before an offset, 0 without."""
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

    def apply(self, log_end: LogEnd, indexed_to: int) -> int:
        """Cut log and queues there, and have what is kept on the disk; returns where dispatch goes on.

        `indexed_to` is the offset of the log up to which there is an index.
        """
        begin, end, dirty = log_end
        log, queues = self._commit_log.queue, self._queues
        limit = self._queue_limit()
        if limit is None and self._last_stop is LastStop.CRASHED:
            # From there on all is dispatched again; an entry of which a part was lost must not be in its place.
            limit = begin
        if self._progress is None and self._last_stop is not LastStop.CLEAN and self._checkpoint.progress is not None:
            # What is not believed now, the next start must not believe: it may find less in the queues.
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
        if not clean:
            self._checkpoint.progress = self._certain_progress(end)
        log.truncate(end, clear=dirty or not clean)
        log.flushed_where = end
        if not clean:
            # It was readable, but nobody knows whether it has reached the disk.
            log.forget_flushed(begin if self._progress is None else min(begin, self._progress.flushed))
            log.flush(0)
            self._commit_log.sync_names()
        if queues.max_physic_offset > end:
            self._log.warn("consume queues reach beyond the end of the log at {end}: cut", end=end)
            queues.truncate_dirty(end)
        queues.correct_min_offset(self._commit_log.min_offset)
        if clean:
            progress = self._checkpoint.progress
            if self.notes is not None and progress is not None and progress.dispatched <= end:
                # Not where the queues that are there end: the last messages may be of a topic that was deleted.
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
        """Where a record begins from which the index is made again, if from an offset of the log on."""
        begin = self.record_from(offset)
        # In queues that are made again themselves, it would not be found.
        return begin if begin == offset or self._rebuilt else self._queues.record_from(offset)

    def _known_progress(self) -> Progress | None:
        """What the checkpoint says of the log, if the log is still the one of which it says that."""
        progress = self._checkpoint.progress
        if self._last_stop is LastStop.CLEAN or self._index_safe or progress is None:
            return None
        if self._last_stop is LastStop.KILLED:
            last = progress.dispatched_last, progress.dispatched
        else:
            last = progress.durable_last, progress.durable
        if not self._is_end_of(*last):
            return None
        # A queue that somebody has removed is to be built again, all of it: without notes nobody knows which.
        return progress if self.notes is not None or self._queues.last_record(last[1]) == last else None

    def _certain_progress(self, end: int) -> Progress | None:
        """What of the known progress is still true; what was dispatched behind it will be told anew."""
        if self._progress is None or self._last_stop is LastStop.KILLED:
            return self._progress
        durable = self._progress.durable, self._progress.durable_last
        return Progress(end, *durable, *durable)

    def _is_end_of(self, record: int, end: int) -> bool:
        """Whether a whole record begins and ends at these offsets; 0 is the end of none."""
        if record < 0:
            return end == 0
        view = self._commit_log.select(record, end - record)
        if view is None:
            return False
        scan = self._scanner.skip(view, 0, len(view), record, self._check_crc)
        return scan.end is ScanEnd.LIMIT and scan.position > 0

    def _next_record_at(self, offset: int) -> bool:
        """Whether a whole record begins at an offset of the log."""
        file = self._commit_log.queue.find(offset)
        return file is not None and self._scanner.is_record(
            file.view, offset - file.file_from_offset, file.file_from_offset
        )

    def _queue_limit(self) -> int | None:
        """Offset of the log up to which the entries of its records are good; None where that is not known."""
        return None if self._progress is None else self._progress.end(self._last_stop)

    def _begin(self, files: list[LogFile]) -> int:
        """Offset of the first record to look at."""
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
        """Where the log ends, and the file that ends there although something lies in it that is not nothing."""
        end = begin
        torn = self._last_stop is not LastStop.CLEAN
        for file in files:
            if file.file_from_offset + file.file_size <= begin:
                continue
            position = max(0, begin - file.file_from_offset)
            # The hole at the end is not looked at: a full memory file system has no room even for the zeros of a hole.
            data = self._commit_log.data_ranges(file, position)
            limit = max(position, data[-1][1]) if data else position
            scan = self._scanner.skip(file.view, position, limit, file.file_from_offset, self._check_crc, torn)
            end = file.file_from_offset + scan.position
            if scan.end is not ScanEnd.END_OF_FILE and scan.position < file.file_size:
                return end, None if scan.position == limit and file is files[-1] else file
            end = file.file_from_offset + file.file_size
        return end, None

    def _refuse_damage(self, files: list[LogFile], broken: LogFile, end: int) -> None:
        """Raise StoreDamagedError when a whole record lies behind the end that must have been there all the time."""
        for file in files[files.index(broken) :]:
            after = end + 1 - file.file_from_offset if file is broken else 0
            position = self._next_record(file, after)
            if position is not None:
                offset = file.file_from_offset + position
                if offset < self._known_end(end) or self._was_on_disk(file, position, offset):
                    raise StoreDamagedError(broken.path, end, offset)
                return  # all behind it is younger

    def _next_record(self, file: LogFile, after: int) -> int | None:
        """Position of the first whole record in a file from a position on."""
        for begin, end in self._commit_log.data_ranges(file, after):
            while (magic_at := file.find(_MAGIC, begin, end)) >= 0:
                position = magic_at - _MAGIC_POSITION
                if position >= after and self._scanner.is_record(file.view, position, file.file_from_offset):
                    return position
                begin = magic_at + 1
        return None

    def _was_on_disk(self, file: LogFile, position: int, offset: int) -> bool:
        """Whether no crash can have lost what lies before a record that is there."""
        if self._last_stop is not LastStop.CRASHED:
            return True
        if self._progress is not None:
            return offset < self._progress.flushed
        # Of the millisecond that was flushed last, some records may have come behind the flush.
        return store_timestamp_of(file.view, position) < self._checkpoint.physic_msg_timestamp

    def _first_file(self, files: list[LogFile]) -> int:
        """The last file whose first record was stored before everything was surely on the disk, the first file if
        none was.
        """
        timestamp = (
            self._checkpoint.min_timestamp_with_index() if self._index_safe else self._checkpoint.min_timestamp()
        )
        for number in range(len(files) - 1, 0, -1):
            ranges = self._commit_log.data_ranges(files[number], 0)
            if not ranges or ranges[0][0]:
                continue  # nothing but a hole, which a full memory file system has no room to read
            view = files[number].view
            if int.from_bytes(view[4:8], "big", signed=True) == MESSAGE_MAGIC and (
                0 < store_timestamp_of(view) <= timestamp
            ):
                return number
        return 0
