"""The store as the broker sees it: start, append, read, stop.

Answers to Apache's `DefaultMessageStore`. It puts the parts together and owns their order at start and stop;
reading is inherited from `MessageReader`.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketd.store.append import AppendedGroup, GroupAppender
from rocketd.store.catch_up import CatchUp
from rocketd.store.checkpoint import StoreCheckpoint
from rocketd.store.clean import StoreCleaner
from rocketd.store.commit_log import CommitLog
from rocketd.store.compose import TopicQueue
from rocketd.store.consume_queue import MAX_OFFSET, ConsumeQueue
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.deletion_file import deletions_path, read_deletions, write_deletions
from rocketd.store.deletions import Deletion, Deletions
from rocketd.store.disk_watch import DiskWatch
from rocketd.store.dispatch import ArrivalListener, Dispatcher, ReputMessageService
from rocketd.store.entry_finder import EntryFinder
from rocketd.store.errors import StoreError, StoreStateError
from rocketd.store.file_notes import FileNotes, NotedTask, Notes, RebuildPlan, notes_path, read_notes, write_notes
from rocketd.store.filesystem import IFileSystem, RealFileSystem, make_durable_dir
from rocketd.store.flush import FlushCallback, FlushCommitLogService
from rocketd.store.index_service import IndexService
from rocketd.store.interfaces import IMessageStore
from rocketd.store.last_stop import LastStop, mark_in_doubt, mark_open, read_last_stop
from rocketd.store.layout import (
    LOCK_CONTENT,
    abort_path,
    checkpoint_path,
    consume_queue_dir,
    consume_queue_ext_dir,
    index_dir,
    lock_path,
)
from rocketd.store.log_paths import log_paths
from rocketd.store.lost_log import refuse_lost_directory, refuse_lost_log
from rocketd.store.maintenance import FlushConsumeQueueService, MaintenanceService
from rocketd.store.mapped_file import PAGE_SIZE
from rocketd.store.message import BitmapMaker, DispatchRequest, MessageInner, PutResult, PutStatus
from rocketd.store.multi_dispatch import MultiDispatch
from rocketd.store.reader import MessageReader
from rocketd.store.rebuild import Rebuild, merged
from rocketd.store.record_scanner import DelayTimeOf, RecordScanner
from rocketd.store.recover import Recovery
from rocketd.store.replica_log import ReplicaError, ReplicaLog
from rocketd.store.running_flags import FLUSH_ERROR, WRITE_INDEX_FILE_ERROR, RunningFlags
from rocketd.store.settings import MessageStoreConfig

SLOW_PUT_MS = 500
"""An append that takes longer is logged."""

PutListener = Callable[[int, float], None]
"""Told in the storage thread how many puts have ended at once, a batch being one, and how many ms they took. Under sync
flush or replication, it is not told of those that wait for them.
"""

_log = Logger()

_KEPT_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
"""Whose queues never begin anew: how far they are dealt with is known by queue offsets."""


@implementer(IMessageStore)
class MessageStore(MessageReader):
    """One store directory.

    Threads: `put_messages`, `put_batch`, `delete_topic`, `begin_replica` and `append_replica` belong to one thread, the
    storage thread; `start` and `stop` to the one that owns the store, and both block. All else may be called by any
    thread. Nothing is opened before `start`.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        store_host: bytes,
        *,
        fs: IFileSystem | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        stamps: Callable[[], float] | None = None,
        delay_time_of: DelayTimeOf | None = None,
        physical_memory: int | None = None,
    ) -> None:
        """`store_host` is this broker's address and 4-byte port, 8 bytes for IPv4 and 20 for IPv6.

        `clock` gives seconds since 1970, `stamps` those of the timestamps of messages, `clock` unless
        given. `delay_time_of(level, store_timestamp)` gives the delivery time in ms of a
        delayed message, which recovery needs. `physical_memory` is that of the machine in bytes unless given.
        """
        root = config.store_path_root_dir
        self.config = config
        self.root = root
        self._fs = fs or RealFileSystem()
        self._clock = clock
        self._monotonic = monotonic
        self.flags = RunningFlags()
        paths = log_paths(config)
        self.commit_log = CommitLog(self._fs, paths, config.mapped_file_size_commit_log)
        self.queues = ConsumeQueueTable(
            self._fs,
            consume_queue_dir(root),
            config.mapped_file_size_consume_queue,
            ext_directory=consume_queue_ext_dir(root),
            ext_file_size=config.mapped_file_size_consume_queue_ext,
            extend=config.enable_consume_queue_ext,
        )
        self.checkpoint = StoreCheckpoint(checkpoint_path(root), self._fs)
        self.index = self._make_index() if config.message_index_enable else None
        finder = EntryFinder(self.commit_log, delay_time_of, lambda: self._dispatcher.deletions)
        super().__init__(
            config, self.commit_log, self.queues, self.index, physical_memory or _memory_of_machine(), finder
        )
        self._scanner = RecordScanner(delay_time_of)
        self._stopping = threading.Event()
        self._dispatcher = Dispatcher(self.queues, self.index, self.flags, self._stopping)
        self._reput = ReputMessageService(self.commit_log, self._dispatcher, self._scanner)
        self._appender = GroupAppender(
            self.commit_log, store_host, config.max_message_size, stamps or clock, delay_time_of
        )
        self._append: Callable[[Sequence[MessageInner]], tuple[list[PutResult], AppendedGroup | None]]
        self._append = self._appender.append
        self._multi_dispatch: MultiDispatch | None = None
        if config.enable_multi_dispatch:
            self._multi_dispatch = MultiDispatch(config, lambda: self._appender.topic_queues)
            self._append = partial(self._multi_dispatch.append, append=self._appender.append)
            self._dispatcher.further = self._multi_dispatch.further
        self._replica = ReplicaLog(self.commit_log, RecordScanner(delay_time_of))
        self._append_listeners: tuple[Callable[[], None], ...] = ()
        self._sync = config.flush_disk_type == "SYNC_FLUSH"
        self._refuses_puts = ""
        self._sync_replica = config.broker_role == "SYNC_MASTER"
        if config.warm_maped_file_enable:
            flush_bytes = config.flush_least_pages_when_warm_maped_file * PAGE_SIZE if self._sync else 0
            self.commit_log.allocate.warm = lambda file, hurry: file.warm(hurry, flush_bytes)
        self._flush = FlushCommitLogService(
            self.commit_log.queue,
            self.checkpoint,
            self.flags,
            config,
            monotonic,
        )
        self.disk_watch = DiskWatch(
            config, self._fs, paths.writable, consume_queue_dir(root), self.flags, self.commit_log.avoid
        )
        self._flush_queues = FlushConsumeQueueService(
            config, self.queues, self._dispatcher, self.checkpoint, self.commit_log.queue, self.flags
        )
        self._cleaner = StoreCleaner(
            config,
            self.commit_log,
            self.queues,
            self.index,
            self.disk_watch,
            clock,
            self._fs,
            self._dispatched_to,
        )
        log = self.commit_log.queue if len(paths.all) > 1 else None
        self._file_notes = FileNotes(self._fs, root, self.queues, self.index, self.checkpoint, log)
        self._maintenance = MaintenanceService(
            # The notes first: the checkpoint must not know of entries in files that are not noted.
            (self._file_notes, self._flush_queues, self.disk_watch, NotedTask(self._file_notes, self._cleaner)),
            monotonic,
        )
        self._late: CatchUp | None = None
        self._lock: int | None = None
        self._open = False
        self._append_began = 0.0
        self.last_append_ms = 0.0
        self.put_listener: PutListener | None = None
        self.messages_put = self.bytes_put = self.puts_failed = 0
        """What was stored since the start, bytes of the log, and how many messages were refused."""
        self.holds_dispatch = False
        """Whether puts become visible only at `release_dispatch`, which the storage thread then has to call."""

    def start(self) -> None:
        """Lock, load, recover and open the store.

        Raises StoreLockedError when another process has it, StoreLogMissingError when there is no log but signs of
        one, StoreDamagedError when whole records would be lost, another StoreError or OSError when its files cannot be
        read; the store is then as before.
        """
        if self._lock is not None:
            raise StoreStateError(f"the store in {self.root} is started already")
        make_durable_dir(self._fs, self.root)
        self._lock = self._fs.lock(lock_path(self.root), LOCK_CONTENT)
        try:
            is_slave = self.config.broker_role == "SLAVE"
            refuse_lost_log(self._fs, self.root, self.commit_log.paths.all, is_slave=is_slave)
            self.commit_log.load()
            self.queues.load()
            self.checkpoint.load()
            self._recover(read_last_stop(self._fs, self.root))
            mark_open(self._fs, self.root)
            self.disk_watch.check()
        except BaseException:
            self._release()
            raise
        self.commit_log.allocate.start()
        self._reput.start()
        if self._late is not None:
            self._reput.call(self._run_late)
        self._flush.start()
        self._maintenance.start()
        self._open = True

    def stop(self) -> None:
        """Dispatch and flush everything, close the store and leave it as after a clean stop.

        The `abort` file stays when something could not be written, so that the next start recovers thoroughly. The
        storage thread must have ended or be idle.
        """
        if self._lock is None:
            return
        self._open = False
        if self._late is not None:
            # What waits for room on the disk is left to the next start.
            self._stopping.set()
        self._reput.stop()
        self._stopping.set()
        self._flush.stop()
        self._maintenance.stop()
        self._file_notes.note(last=True)
        self._flush_queues.flush_all()
        if self.index is not None:
            self.index.flush()
            self.index.close()
        self.commit_log.allocate.stop()
        flushed = self.commit_log.queue.flushed_where >= self.commit_log.max_offset and not self.queues.dirty
        try:
            if self.flags.writable and flushed and self.dispatch_behind_bytes() == 0:
                self._fs.remove(abort_path(self.root))
            else:
                _log.error("{root} was not stopped cleanly: {why}", root=self.root, why=self._trouble(flushed))
        except OSError as error:
            _log.error("{root} was not stopped cleanly: {why}", root=self.root, why=error)
        finally:
            self._release()

    def put_messages(self, messages: Sequence[MessageInner]) -> list[PutResult]:
        """Append each message for itself; the results stand in the order of the messages.

        One call is one write, unless a file ends within it: the more messages it has, the less each costs.
        """
        return self._put(messages, self._append, len(messages))

    def put_batch(self, messages: Sequence[MessageInner]) -> list[PutResult]:
        """Append all messages of a batch next to each other in one file, or none of them: one END_OF_FILE decision
        for all.
        """
        if (
            self._multi_dispatch is not None
            and (refusal := self._multi_dispatch.refusal_of_batch(messages)) is not None
        ):
            return [refusal] * len(messages)
        return self._put(messages, self._appender.append_batch, 1)

    def begin_replica(self) -> int:
        """Get ready for a master's bytes, and return the offset from which they have to come: 0 in an empty log, else
        somewhat before its end, so that they can be compared.
        """
        return self._replica.begin()

    def append_replica(self, offset: int, data: bytes) -> int:
        """Append a master's bytes from an offset on; records that are whole become visible as those put here do.

        Returns the offset up to which this log is known to be the master's. Raises ReplicaError, or another StoreError of
        the disk, with a text that says what to do.
        """
        if not self._open or self.flags.bits & FLUSH_ERROR:
            raise ReplicaError(f"this store takes no messages: {self.flags.describe() or 'it is closed'}")
        self._replica.append(offset, data, self._appended)
        if self._sync:
            self._flush.wake()
        return self._replica.confirmed

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        """Have a function called in the storage thread whenever the log has grown; it may not block."""
        self._append_listeners = (*self._append_listeners, listener)

    def set_bitmap_maker(self, make_bitmaps: BitmapMaker) -> None:
        """Have a function find out which filters match messages, for extended queues; it is called by the thread that
        dispatches. To be set before `start`, since recovery dispatches too.
        """
        self._dispatcher.make_bitmaps = make_bitmaps

    def release_dispatch(self, idle: bool) -> None:
        """Make what was put visible, after `put_messages` with `holds_dispatch`; the storage thread's answers come
        first.

        ``idle`` says that this thread has nothing else to do.
        """
        self._reput.release(idle)

    def when_flushed(self, end_offset: int, callback: FlushCallback) -> None:
        """Call back when the log is on the disk up to an offset: PUT_OK, or FLUSH_DISK_TIMEOUT after syncFlushTimeout.

        The time limit holds under SYNC_FLUSH. The callback comes from a thread of the store, and must not block it.
        """
        self._flush.when_flushed(end_offset, callback)

    def wait_until_flushed(self, end_offset: int) -> bool:
        """Have the log flushed up to an offset, and wait for it, at most syncFlushTimeout; returns whether it is.

        Not for the storage thread or the reactor's.
        """
        if self.flushed_offset() >= end_offset:
            return True
        done = threading.Event()
        self.when_flushed(end_offset, lambda _: done.set())
        done.wait(self.config.sync_flush_timeout / 1000)
        return self.flushed_offset() >= end_offset

    def delete_topic(self, topic: str) -> None:
        """Forget a topic: its queues are removed behind what is being dispatched, its next message gets queue
        offset 0 again. That it was deleted is on the disk when this returns.
        """
        self._note_deletion(topic)
        for key in [key for key in self._appender.topic_queues if key[0] == topic]:
            del self._appender.topic_queues[key]
        self._reput.call(lambda: self.queues.remove_topic(topic))

    def _note_deletion(self, topic: str) -> None:
        if not any(key[0] == topic for keys in (self._appender.topic_queues, self.queues.queues) for key in list(keys)):
            return
        # Stored before now, unless the clock was set back.
        stored_ms = max(int(self._clock() * 1000), self._dispatcher.last[2])
        end = self.commit_log.max_offset
        deletions = self._dispatcher.deletions.within(self.commit_log.min_offset, end)
        deletions = deletions.and_also(topic, Deletion(end, stored_ms))
        try:
            write_deletions(self._fs, self.root, deletions)
        except OSError as error:
            _log.error(
                "the deletion of topic {topic} could not be noted: {error}; its messages may come back after a crash",
                topic=topic,
                error=error,
            )
        self._dispatcher.deletions = deletions

    def delete_expired_queues(self) -> list[tuple[str, int]]:
        """Remove the queues all of whose messages have left the log, and say which they are: topics and queue ids.

        The next message of such a queue gets queue offset 0 again. Queues in which messages wait for something stay.
        Belongs to the storage thread.
        """
        first = self.commit_log.min_offset
        expired = [
            key
            for key, queue in self.queues.all()
            if key[0] not in _KEPT_TOPICS and 0 <= queue.max_physic_offset <= first and not self._has_more(key, queue)
        ]
        for key in expired:
            self._appender.topic_queues.pop(key, None)
        if expired:
            self._reput.call(lambda: self.queues.remove(expired))
        return expired

    def _has_more(self, key: tuple[str, int], queue: ConsumeQueue) -> bool:
        """Whether messages were appended to a queue that are still to be dispatched to it."""
        appended = self._appender.topic_queues.get(key)
        return appended is not None and appended.next_offset > queue.max_offset

    def execute_delete_files_manually(self) -> None:
        """Have expired files deleted soon, whatever hour it is."""
        self._cleaner.execute_delete_files_manually()

    def add_arrival_listener(self, listener: ArrivalListener) -> None:
        """Have a function called with the messages that became visible, from the dispatching thread, once for each
        group.
        """
        self._reput.add_listener(listener)

    def add_dispatcher(self, dispatch: Callable[[Sequence[DispatchRequest]], None]) -> None:
        """Have a function called with each group of records once it is in queues and index, from the dispatching thread.

        To be called before ``start``. What it raises is logged and changes nothing.
        """
        self._dispatcher.others = (*self._dispatcher.others, dispatch)

    def queue_keys(self) -> list[tuple[str, int]]:
        """Topics and queue ids that messages were dispatched to."""
        return list(self.queues.queues)

    def max_physical_offset(self) -> int:
        """Offset behind the last byte of the log."""
        return self.commit_log.max_offset

    def min_physical_offset(self) -> int:
        """Offset of the first byte of the log that is still there, -1 while nothing was ever stored."""
        return self.commit_log.min_offset

    def flushed_offset(self) -> int:
        """Offset up to which the log is on the disk."""
        return self.commit_log.queue.flushed_where

    @property
    def last_flush_ms(self) -> float:
        """How long the last flush of the log took."""
        return self._flush.last_flush_ms

    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that are not visible to readers yet."""
        return max(0, self.commit_log.max_offset - self._dispatched_to())

    def append_lock_ms(self) -> float:
        """How long the append that is under way has taken so far, 0 when there is none."""
        began = self._append_began
        return max(0.0, (self._monotonic() - began) * 1000) if began else 0.0

    def is_os_page_cache_busy(self) -> bool:
        """Whether an append hangs for longer than osPageCacheBusyTimeOutMills."""
        return self.append_lock_ms() > self.config.os_page_cache_busy_time_out_mills

    def refuse_puts(self, why: str) -> None:
        """Take no messages from now on. Any thread."""
        self._refuses_puts = why

    def refusal(self) -> PutResult | None:
        """Why messages are not taken now, None when they are."""
        if not self._open:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="the store is closed")
        if self._refuses_puts:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause=self._refuses_puts)
        if self.config.broker_role == "SLAVE":
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="this broker is a slave, which takes no messages")
        if not self.flags.writable:
            cause = f"{self.flags.describe()} ({self.disk_watch.describe()})"
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause=cause)
        return None

    def _put(
        self,
        messages: Sequence[MessageInner],
        append: Callable[[Sequence[MessageInner]], tuple[list[PutResult], AppendedGroup | None]],
        puts: int,
    ) -> list[PutResult]:
        refusal = self.refusal()
        if refusal is not None or not messages:
            self.puts_failed += len(messages)
            return [refusal] * len(messages) if refusal is not None else []
        begin = self._append_began = self._monotonic()
        self._appender.max_message_size = self.config.max_message_size
        try:
            results, group = append(messages)
        finally:
            self._append_began = 0.0
        took_ms = self.last_append_ms = (self._monotonic() - begin) * 1000
        if took_ms > SLOW_PUT_MS:
            _log.warn(
                "appending {count} messages to the log took {took} ms, more than {limit}: the disk or the machine is slow",
                count=len(messages),
                took=int(took_ms),
                limit=SLOW_PUT_MS,
            )
        if self._sync or self._sync_replica:
            # Those who wait know themselves when they have ended.
            puts = sum([not message.wait for message in messages[:puts]])
        if self.put_listener is not None and puts:
            self.put_listener(puts, took_ms)
        self.puts_failed += len(messages)
        if group is not None:
            self.puts_failed -= len(group.requests)
            self._appended(group)
            if self._sync and not all(message.wait for message in messages):
                # Those who wait ask for the flush themselves.
                self._flush.wake()
        return results

    def _appended(self, group: AppendedGroup) -> None:
        self.messages_put += len(group.requests)
        self.bytes_put += group.end_offset - group.start_offset
        if self.holds_dispatch:
            self._reput.hold(group)
        else:
            self._reput.submit(group)
        for listener in self._append_listeners:
            listener()

    def _recover(self, last_stop: LastStop) -> None:
        written = read_notes(self._fs, self.root)
        notes = written if self.checkpoint.files_noted else None
        if notes is not None:
            refuse_lost_directory(
                notes.log_directories,
                self.commit_log.paths.all,
                [file.path for file in self.commit_log.queue.files],
                clean=last_stop is LastStop.CLEAN,
            )
        recovery = Recovery(
            self.commit_log,
            self.queues,
            self._scanner,
            self.checkpoint,
            last_stop,
            notes,
            check_crc=self.config.check_crc_on_recover,
            index_safe=self.config.message_index_enable and self.config.message_index_safe,
            lost_end_comes_again=self.config.broker_role == "SLAVE",
        )
        notes = recovery.notes
        found, causes = recovery.plan(self.index)
        # What an earlier start has begun to make again and not finished may look whole.
        plan = found if written is None else merged((found, written.rebuild))
        rebuilt_from = recovery.record_from(plan.begin) if plan else 0
        log_end = recovery.find_end(plan)
        if plan:
            known = Notes({}, ()) if notes is None else notes
            write_notes(self._fs, self.root, known._replace(rebuild=plan))
        elif notes is None:
            self._fs.remove(notes_path(self.root))
            self.checkpoint.files_noted = False
        # From here on files are changed: a crash in the middle must be followed by a thorough recovery.
        mark_in_doubt(self._fs, self.root)
        deletions = self._load_deletions(log_end.end)
        rebuild = Rebuild(plan, rebuilt_from, self.commit_log, self.queues, self.index, self._scanner, deletions)
        if plan:
            rebuild.cut_queues(causes)
        index_cut = None if plan.index_cut is None else plan.index_cut.name
        if self.index is not None and not self.index.load(last_stop, self.checkpoint, log_end.end, index_cut):
            raise StoreError(f"the index in {index_dir(self.root)} cannot be opened")
        indexed_to = log_end.begin if self.index is None or index_cut is not None else self.index.indexed_to
        self._reput.reput_from_offset = recovery.apply(log_end, indexed_to)
        self._remove_deleted(deletions)
        rebuild.carry_out(self._reput.reput_from_offset)
        self._catch_up(self._reput.reput_from_offset)
        if notes is not None and self._late is None:
            rebuild.keep_offsets(notes if last_stop is LastStop.CLEAN else notes._replace(ends={}))
        self._flush_queues.flush_all()
        if plan and self.index is not None:
            self.index.flush()
        done = self.flags.queue_writable
        self._file_notes.take_over(None if last_stop is LastStop.CRASHED else notes, RebuildPlan() if done else plan)
        if plan:
            self._file_notes.note()
        self.queues.before_removal = self._file_notes.note
        offsets = {key: queue.max_offset for key, queue in self.queues.all()}
        if self._late is not None:
            for key, offset in self._late.queue_offsets().items():
                offsets[key] = max(offset, offsets.get(key, 0))
        self._appender.topic_queues = {key: TopicQueue(key[0], offset) for key, offset in offsets.items()}

    def _load_deletions(self, log_end: int) -> Deletions:
        """What was deleted of a log that ends there. Raises OSError."""
        noted = read_deletions(self._fs, self.root)
        if noted is None:
            _log.warn(
                "{path} is not what was written: what is made again from the log may bring back messages of deleted topics; "
                "delete such a topic once more",
                path=deletions_path(self.root),
            )
            return Deletions()
        deletions = noted.within(self.commit_log.min_offset, log_end)
        if deletions != noted:
            write_deletions(self._fs, self.root, deletions)
        self._dispatcher.deletions = deletions
        return deletions

    def _remove_deleted(self, deletions: Deletions) -> None:
        """Remove the queues of deleted topics, which a kill has left. Raises OSError."""
        left = [
            key
            for key, queue in self.queues.all()
            if key[0] in deletions.topics
            and (last := queue.entry(queue.max_offset - 1)) is not None
            and deletions.include(key[0], last[0], self.get_store_time(*key, queue.max_offset - 1))
        ]
        if left:
            _log.info(
                "{queues}: removed, as their topic was deleted", queues=", ".join(f"{t}-{q}" for t, q in sorted(left))
            )
            self.queues.remove(left)

    def _catch_up(self, begin: int) -> None:
        """Dispatch all from an offset of the log on: now, or where the disk has no room, in the dispatching thread."""
        late = self._late = CatchUp(
            self.commit_log, self._make_dispatcher, self._scanner, begin, self._dispatcher.deletions
        )
        if late.attempt():
            self._caught_up()
        else:
            # Until all is entered, the next start has to go by time; what the disk was known to hold, it may lack again.
            self.checkpoint.go_back_to(late.begin_timestamp())
            # For what is put from now on; behind this it is dispatched.
            self._reput.reput_from_offset = self.commit_log.max_offset

    def _caught_up(self) -> None:
        late = self._late
        if late is not None:
            self._reput.reput_from_offset = max(late.begin, self._reput.reput_from_offset)
            if late.last[0] >= 0:
                self._dispatcher.last = late.last
            self._late = None

    def _run_late(self) -> None:
        """Dispatch what the start could not."""
        if self._late is None:
            return
        if self._late.run(self._stopping):
            self._caught_up()
        else:
            # Nothing behind it may be entered before it.
            self._reput.reput_from_offset = MAX_OFFSET

    def _dispatched_to(self) -> int:
        late = self._late
        return self._reput.reput_from_offset if late is None else late.begin

    def _make_dispatcher(self, flags: RunningFlags, stopping: threading.Event) -> Dispatcher:
        dispatcher = Dispatcher(self.queues, self.index, flags, stopping)
        dispatcher.deletions = self._dispatcher.deletions
        dispatcher.make_bitmaps = self._dispatcher.make_bitmaps
        dispatcher.further = self._dispatcher.further
        return dispatcher

    def _make_index(self) -> IndexService:
        return IndexService(
            index_dir(self.root),
            self.config.max_hash_slot_num,
            self.config.max_index_num,
            lambda: int(self._clock() * 1000),
            max_msgs_num_batch=self.config.max_msgs_num_batch,
            on_index_file_error=self._on_index_file_error,
            file_system=self._fs,
        )

    def _trouble(self, flushed: bool) -> str:
        """What keeps a stop from being clean, in words."""
        if not self.flags.writable:
            return self.flags.describe()
        return (
            f"{self.dispatch_behind_bytes()} bytes are not dispatched" if flushed else "not everything could be flushed"
        )

    def _on_index_file_error(self) -> None:
        late = self._late
        flags = self.flags if late is None or late.flags is None else late.flags
        flags.set(WRITE_INDEX_FILE_ERROR, True)

    def _release(self) -> None:
        self.commit_log.queue.close()
        if self._lock is not None:
            self._fs.unlock(self._lock)
            self._lock = None


def _memory_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
