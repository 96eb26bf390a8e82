"""The steps between the load of a store's files and its first put.

The order is fixed: plan and find the end of the log, before any file is changed; cut and rebuild; dispatch what queues
and index lack; then take over the notes about files. Reasons: docs/decisions/0010 and 0011.
"""

from collections.abc import Callable
from dataclasses import dataclass

from twisted.logger import Logger

from rocketd.store.base.errors import StoreError
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import index_dir
from rocketd.store.base.running_flags import RunningFlags
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.compose import TopicQueue
from rocketd.store.format.record_scanner import RecordScanner
from rocketd.store.index.service import IndexService
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.queue.dispatch import RecordDispatcher, ReputMessageService
from rocketd.store.recovery.catch_up import LateDispatch
from rocketd.store.recovery.file_notes import FileNotes, Notes, RebuildPlan, notes_path, read_notes, write_notes
from rocketd.store.recovery.rebuild import Rebuild, merged
from rocketd.store.recovery.recover import Recovery
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.state.deletion_file import deletions_path, read_deletions, write_deletions
from rocketd.store.state.deletions import Deletions
from rocketd.store.state.last_stop import LastStop, mark_in_doubt
from rocketd.store.upkeep.log_begin import LogBegin
from rocketd.store.upkeep.maintenance import FlushConsumeQueueService

_log = Logger()


@dataclass(frozen=True)
class StoreOpening:
    """The parts that a start changes. All of it belongs to the thread that starts the store.

    `store_time_of(topic, queue_id, queue_offset)` returns the store time in ms of a message, -1 without it.
    """

    config: MessageStoreConfig
    root: str
    fs: IFileSystem
    flags: RunningFlags
    commit_log: CommitLog
    queues: ConsumeQueueTable
    index: IndexService | None
    checkpoint: StoreCheckpoint
    scanner: RecordScanner
    dispatcher: RecordDispatcher
    reput: ReputMessageService
    late: LateDispatch
    flush_queues: FlushConsumeQueueService
    log_begin: LogBegin
    file_notes: FileNotes
    store_time_of: Callable[[str, int, int], int]

    def recover(self, last_stop: LastStop) -> dict[tuple[str, int], TopicQueue]:
        """Recover the loaded files and dispatch the log. Return the next offset of each queue.

        Raises:

        - StoreDamagedError if whole records would be lost,
        - another StoreError or OSError if files cannot be read or written.
        """
        written = read_notes(self.fs, self.root)
        notes = written if self.checkpoint.files_noted else None
        recovery = Recovery(
            self.commit_log,
            self.queues,
            self.scanner,
            self.checkpoint,
            last_stop,
            notes,
            check_crc=self.config.check_crc_on_recover,
            index_safe=self.config.message_index_enable and self.config.message_index_safe,
            lost_end_comes_again=self.config.broker_role == "SLAVE",
        )
        notes = recovery.notes
        found, causes = recovery.plan(self.index)
        # A rebuild begun by an earlier start but not finished may look complete.
        plan = found if written is None else merged((found, written.rebuild))
        rebuilt_from = recovery.record_from(plan.begin) if plan else 0
        log_end = recovery.find_end(plan)
        if plan:
            known = Notes({}, ()) if notes is None else notes
            if notes is None and self.checkpoint.files_noted:
                # The next start must not take the plan's file for notes about all files.
                self.checkpoint.files_noted = False
                self.checkpoint.flush()
            write_notes(self.fs, self.root, known._replace(rebuild=plan))
        elif notes is None:
            self.fs.remove(notes_path(self.root))
            self.checkpoint.files_noted = False
        # Files are changed from here on. A crash in between must be followed by a thorough recovery.
        mark_in_doubt(self.fs, self.root)
        index_cut = None if plan.index_cut is None else plan.index_cut.name
        if self.index is not None and not self.index.load(last_stop, self.checkpoint, log_end.end, index_cut):
            raise StoreError(f"the index in {index_dir(self.root)} cannot be opened")
        self.log_begin.take_over()
        deletions = self._load_deletions(log_end.end)
        rebuild = Rebuild(plan, rebuilt_from, self.commit_log, self.queues, self.index, self.scanner, deletions)
        if plan:
            rebuild.cut_queues(causes)
        indexed_to = log_end.begin if self.index is None or index_cut is not None else self.index.indexed_to
        self.reput.reput_from_offset = recovery.apply(log_end, indexed_to)
        self._remove_deleted(deletions)
        rebuild.carry_out(self.reput.reput_from_offset)
        self.late.begin()
        if notes is not None and not self.late.pending:
            rebuild.keep_offsets(notes if last_stop is LastStop.CLEAN else notes._replace(ends={}))
        self.flush_queues.flush_all()
        if plan and self.index is not None:
            self.index.flush()
        # Entries that are not on disk could be lost, and no other record says so.
        done = self.flags.queue_writable and not self.queues.dirty
        self.file_notes.take_over(None if last_stop is LastStop.CRASHED else notes, RebuildPlan() if done else plan)
        if plan:
            self.file_notes.note()
        self.queues.before_removal = self.file_notes.note
        offsets = {key: queue.max_offset for key, queue in self.queues.all()}
        for key, offset in self.late.queue_offsets().items():
            offsets[key] = max(offset, offsets.get(key, 0))
        return {key: TopicQueue(key[0], offset) for key, offset in offsets.items()}

    def _load_deletions(self, log_end: int) -> Deletions:
        """Return the deletions relevant for a log with this end. Raises OSError."""
        noted = read_deletions(self.fs, self.root)
        if noted is None:
            _log.warn(
                "{path} is damaged: data rebuilt from the log may bring back messages of deleted topics; delete such "
                "topics again",
                path=deletions_path(self.root),
            )
            return Deletions()
        deletions = noted.within(self.commit_log.min_offset, log_end)
        if deletions != noted:
            write_deletions(self.fs, self.root, deletions)
        self.dispatcher.deletions = deletions
        return deletions

    def _remove_deleted(self, deletions: Deletions) -> None:
        """Remove the queues of deleted topics left by a kill. Raises OSError."""
        left = [
            key
            for key, queue in self.queues.all()
            if key[0] in deletions.topics
            and (last := queue.entry(queue.max_offset - 1)) is not None
            and deletions.include(key[0], last[0], self.store_time_of(*key, queue.max_offset - 1))
        ]
        if left:
            _log.info(
                "{queues}: removed, because their topic was deleted",
                queues=", ".join(f"{t}-{q}" for t, q in sorted(left)),
            )
            self.queues.remove(left)
