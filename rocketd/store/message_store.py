"""The store as the broker sees it: start, append, read, stop.

Counterpart: `DefaultMessageStore` (Apache). It joins the parts and orders their start and stop. Reading is inherited
from `MessageReader`.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.event_loop.loop_lag import LagHistogram
from rocketd.common.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketd.store.base.errors import StoreStateError
from rocketd.store.base.filesystem import IFileSystem, RealFileSystem, make_safe_dir
from rocketd.store.base.layout import (
    LOCK_CONTENT,
    abort_path,
    checkpoint_path,
    consume_queue_dir,
    consume_queue_ext_dir,
    index_dir,
    lock_path,
)
from rocketd.store.base.running_flags import FLUSH_ERROR, WRITE_INDEX_FILE_ERROR, RunningFlags
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import BitmapMaker, DispatchRequest, MessageInner, PutResult, PutStatus
from rocketd.store.format.record_scanner import DelayTimeOf, RecordScanner
from rocketd.store.index.service import IndexService
from rocketd.store.interfaces import IMessageStore
from rocketd.store.log.append import AppendedGroup, GroupAppender
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.flush import FlushCallback, FlushCommitLogService
from rocketd.store.log.log_paths import log_paths
from rocketd.store.log.mapped_file import PAGE_SIZE
from rocketd.store.log.replica_log import ReplicaError, ReplicaLog
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.queue.dispatch import (
    ArrivalListener,
    DispatchBlockers,
    RecordDispatcher,
    ReputMessageService,
    no_blockers,
)
from rocketd.store.queue.entry_finder import EntryFinder
from rocketd.store.queue.multi_dispatch import MultiDispatch
from rocketd.store.reader import MessageReader
from rocketd.store.recovery.catch_up import LateDispatch
from rocketd.store.recovery.file_notes import (
    FileNotes,
    NotedTask,
)
from rocketd.store.recovery.lost_log import refuse_lost_begin, refuse_lost_log
from rocketd.store.recovery.opening import StoreOpening
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.state.deletion_file import write_deletions
from rocketd.store.state.deletions import Deletion
from rocketd.store.state.last_stop import mark_open, read_last_stop
from rocketd.store.upkeep.clean import StoreCleaner
from rocketd.store.upkeep.disk_watch import DiskWatch
from rocketd.store.upkeep.log_begin import LogBegin
from rocketd.store.upkeep.maintenance import FlushConsumeQueueService, MaintenanceService

SLOW_PUT_MS = 500
"""Appends that take longer are logged."""

PutListener = Callable[[int, float], None]
"""Called on the storage thread with (number of puts completed, milliseconds). A batch counts as one put.

Puts that wait for a sync flush or for replication are not reported.
"""

_log = Logger()

_KEPT_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
"""Topics whose queues never restart at offset 0: progress on them is kept as queue offsets."""


@implementer(IMessageStore)
class MessageStore(MessageReader):
    """One store directory.

    Threads: `put_messages`, `put_batch`, `delete_topic`, `begin_replica` and `append_replica` belong to one thread, the
    storage thread. On a slave, `append_replica` and `release_dispatch` may also be called by another thread. `start` and
    `stop` belong to the owner of the store, and block. Everything else may be called by any thread. Files are opened by
    `start`, not before.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        store_host: bytes,
        *,
        fs: IFileSystem | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        stopwatch: Callable[[], float] | None = None,
        stamps: Callable[[], float] | None = None,
        delay_time_of: DelayTimeOf | None = None,
        physical_memory: int | None = None,
    ) -> None:
        """Create a closed store.

        - `store_host` is this broker's address and 4-byte port, 8 bytes for IPv4 and 20 for IPv6.
        - `clock` returns seconds since 1970. `stamps` does so for the timestamps of messages; the default is `clock`.
        - `stopwatch` returns the seconds that measure how long work takes. The default is `monotonic`.
        - `delay_time_of(level, store_timestamp)` returns the delivery time in ms of a delayed message. Recovery needs
          it.
        - `physical_memory` is in bytes; the default is the machine's.
        """
        root = config.store_path_root_dir
        self.config = config
        self.root = root
        self._fs = fs or RealFileSystem()
        self._clock = clock
        self._stamps = stamps or clock
        self._stopwatch = stopwatch or monotonic
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
        self._dispatcher = RecordDispatcher(self.queues, self.index, self.flags, self._stopping)
        self._reput = ReputMessageService(self.commit_log, self._dispatcher, self._scanner)
        self._late = LateDispatch(self.commit_log, self._dispatcher, self._reput, self._scanner, self.checkpoint)
        self._appender = GroupAppender(
            self.commit_log, store_host, config.max_message_size, self._stamps, delay_time_of
        )
        self._max_message_size = config.max_message_size
        self._append: Callable[[Sequence[MessageInner]], tuple[list[PutResult], AppendedGroup | None]]
        self._append = self._appender.append
        self._multi_dispatch: MultiDispatch | None = None
        if config.enable_multi_dispatch:
            self._multi_dispatch = MultiDispatch(config, lambda: self._appender.topic_queues)
            self._append = partial(self._multi_dispatch.append, append=self._appender.append)
            self._dispatcher.further = self._multi_dispatch.further
        self._replica = ReplicaLog(self.commit_log, RecordScanner(delay_time_of))
        self._turn = threading.Lock()
        """Held by the thread that appends a master's bytes, or changes what depends on the end of the log."""
        self._held_copy: AppendedGroup | None = None
        """The groups of a master since the last `release_dispatch`, joined: their dispatch is cheaper together."""
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
            self._stopwatch,
        )
        self.disk_watch = DiskWatch(
            config, self._fs, paths.writable, consume_queue_dir(root), self.flags, self.commit_log.avoid
        )
        self._flush_queues = FlushConsumeQueueService(
            config, self.queues, self._dispatcher, self.checkpoint, self.commit_log.queue, self.flags
        )
        self._log_begin = LogBegin(self._fs, root, self.commit_log.queue)
        self._cleaner = StoreCleaner(
            config,
            self.commit_log,
            self.queues,
            self.index,
            self.disk_watch,
            clock,
            self._fs,
            lambda: self._late.dispatched_to,
            self._log_begin,
        )
        self._file_notes = FileNotes(self._fs, root, self.queues, self.index, self.checkpoint)
        self._maintenance = MaintenanceService(
            # The notes first: the checkpoint must not refer to entries in files without a note.
            (
                self._file_notes,
                self._log_begin,
                self._flush_queues,
                self.disk_watch,
                NotedTask(self._file_notes, self._cleaner),
            ),
            monotonic,
        )
        self._lock: int | None = None
        self._lifecycle = threading.Lock()
        """Held by `start` and `stop`: a stop during a rebuild would leave the store as after a clean stop."""
        self._open = False
        self._append_began = 0.0
        self.last_append_ms = 0.0
        self.append_times = LagHistogram()
        """Durations of the appends, each of a group of messages."""
        self.put_listener: PutListener | None = None
        self.messages_put = self.bytes_put = self.puts_failed = 0
        """Messages stored since the start, their bytes of the log, and messages refused."""
        self.dispatch_blockers: DispatchBlockers = no_blockers
        """Names the third-party calls that block dispatch, for the stop."""
        self.holds_dispatch = False
        """Whether puts become visible only at `release_dispatch`, to be called by the storage thread."""

    def start(self) -> None:
        """Lock, load, recover and open the store. After an error, the lock is released, and a later start may succeed.

        Raises:

        - StoreLockedError if another process uses it,
        - StoreLogMissingError if the log is missing but other files show that it existed,
        - StoreDamagedError if whole records would be lost,
        - another StoreError or OSError if its files cannot be read.
        """
        with self._lifecycle:
            self._start()

    def stop(self) -> None:
        """Dispatch and flush everything, and close the store as after a clean stop. A start under way ends first.

        If anything could not be written, the `abort` file stays, so the next start recovers thoroughly. The storage
        thread must have ended or be idle.
        """
        with self._lifecycle:
            self._stop()

    def _start(self) -> None:
        if self._lock is not None:
            raise StoreStateError(f"the store in {self.root} is already started")
        make_safe_dir(self._fs, self.root)
        self._lock = self._fs.lock(lock_path(self.root), LOCK_CONTENT)
        try:
            is_slave = self.config.broker_role == "SLAVE"
            refuse_lost_log(self._fs, self.root, self.commit_log.paths.all, is_slave=is_slave)
            now_ms = int(self._stamps() * 1000)
            refuse_lost_begin(self._fs, self.root, self.commit_log.paths.all, self.config.file_reserved_time, now_ms)
            self.commit_log.load()
            self.queues.load()
            self.checkpoint.load()
            self._appender.topic_queues = self._opening().recover(read_last_stop(self._fs, self.root))
            self.checkpoint.limit_to(int(self._stamps() * 1000))
            mark_open(self._fs, self.root)
            self.disk_watch.check()
        except BaseException:
            if self.index is not None:
                # Its flush thread writes the checkpoint. A later start must not find what this one knew.
                self.index.close()
            self._release()
            raise
        self.commit_log.allocate.start()
        self._reput.start()
        if self._late.pending:
            self._reput.call(lambda: self._late.run(self._stopping))
        self._flush.start()
        self._maintenance.start()
        self._open = True

    def _stop(self) -> None:
        if self._lock is None:
            return
        self._open = False
        if self._late.pending or self._dispatcher.is_waiting:
            # Messages that wait for the disk are left to the next start.
            self._stopping.set()
        self._reput.stop(self.dispatch_blockers)
        self._stopping.set()
        self._flush.stop()
        self._maintenance.stop()
        self._log_begin.note()
        self._file_notes.note(last=True)
        # Before the flush: everything dispatched by now is flushed.
        behind = self.dispatch_behind_bytes()
        self._flush_queues.flush_all()
        if self.index is not None:
            self.index.flush()
            self.index.close()
        self.commit_log.allocate.stop()
        flushed = self.commit_log.queue.flushed_where >= self.commit_log.max_offset and not self.queues.dirty
        try:
            if self.flags.writable and flushed and not behind:
                self._fs.remove(abort_path(self.root))
            else:
                _log.error("{root} was not stopped cleanly: {why}", root=self.root, why=self._trouble(flushed, behind))
        except OSError as error:
            _log.error("{root} was not stopped cleanly: {why}", root=self.root, why=error)
        finally:
            self._release()

    def put_messages(self, messages: Sequence[MessageInner]) -> list[PutResult]:
        """Append each message independently. The results are in the order of the messages.

        One call is one write, unless a file ends within it. So the cost per message falls with the number of messages.
        """
        return self._put(messages, self._append, len(messages))

    def put_batch(self, messages: Sequence[MessageInner]) -> list[PutResult]:
        """Append all messages of a batch next to each other in one file, or none of them."""
        if (
            self._multi_dispatch is not None
            and (refusal := self._multi_dispatch.refusal_of_batch(messages)) is not None
        ):
            return [refusal] * len(messages)
        return self._put(messages, self._appender.append_batch, 1)

    def begin_replica(self) -> int:
        """Prepare for a master's bytes, and return the offset to request them from.

        The offset is 0 in an empty log, otherwise somewhat before its end, so the bytes can be compared.
        """
        with self._turn:
            return self._replica.begin()

    def append_replica(self, offset: int, data: bytes) -> int:
        """Append a master's bytes from an offset on. Whole records become visible like those of puts.

        Return the offset up to which this log is known to equal the master's. Raises ReplicaError, or another
        StoreError of the disk. The text has the next step.
        """
        if not self._open or self.flags.bits & FLUSH_ERROR:
            raise ReplicaError(f"this store does not accept messages: {self.flags.describe() or 'it is closed'}")
        with self._turn:
            self._replica.append(offset, data, self._copied)
            confirmed = self._replica.confirmed
        if self._sync:
            self._flush.wake()
        return confirmed

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        """Call a function on the storage thread whenever the log has grown. It must not block."""
        self._append_listeners = (*self._append_listeners, listener)

    def set_bitmap_maker(self, make_bitmaps: BitmapMaker) -> None:
        """Set the function that makes the filter bitmaps of messages, for the extensions of consume queues.

        The dispatching thread calls it. Set it before `start`, because recovery dispatches as well.
        """
        self._dispatcher.make_bitmaps = make_bitmaps

    def release_dispatch(self, idle: bool) -> bool:
        """Make the held puts visible, after `put_messages` with `holds_dispatch`.

        Separate from the put, so the storage thread can answer first. ``idle`` tells that this thread has nothing else
        to do. Without ``idle``, some may stay held for a while, unless a reader waits for them. Return whether any do.
        """
        with self._turn:
            copied, self._held_copy = self._held_copy, None
            if copied is not None:
                self._reput.hold(copied)
            return self._reput.release(idle)

    def when_flushed(self, end_offset: int, callback: FlushCallback) -> None:
        """Call back when the log is on disk up to an offset: PUT_OK, or FLUSH_DISK_TIMEOUT after syncFlushTimeout.

        The timeout applies under SYNC_FLUSH only. The callback runs on a thread of the store and must not block it.
        """
        self._flush.when_flushed(end_offset, callback)

    def wait_until_flushed(self, end_offset: int) -> bool:
        """Request a flush up to an offset and wait for it, at most syncFlushTimeout. Return whether it is done.

        Do not call it on the storage thread or the reactor thread.
        """
        if self.flushed_offset() >= end_offset:
            return True
        done = threading.Event()
        self.when_flushed(end_offset, lambda _: done.set())
        done.wait(self.config.sync_flush_timeout / 1000)
        return self.flushed_offset() >= end_offset

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic, after the dispatch in progress. Its next message gets queue offset 0 again.

        The record of the deletion is on disk when this returns.
        """
        with self._turn:
            self._note_deletion(topic)
            for key in [key for key in self._appender.topic_queues if key[0] == topic]:
                del self._appender.topic_queues[key]
            self._reput.call(lambda: self.queues.remove_topic(topic))

    def was_deleted(self, topic: str, offset: int, stored_ms: int) -> bool:
        """Return whether a topic was deleted after one of its records was stored. Any thread.

        The record begins at an offset of the log in bytes and was stored at a time in Unix ms.
        """
        return self._dispatcher.deletions.include(topic, offset, stored_ms)

    def _note_deletion(self, topic: str) -> None:
        # Also of a topic without queues: its delayed and half messages wait in others.
        # Stored before now, unless the clock was set back before the start.
        stored_ms = max(int(self._stamps() * 1000), self._dispatcher.last[2])
        end = self.commit_log.max_offset
        deletions = self._dispatcher.deletions.within(self.commit_log.min_offset, end)
        deletions = deletions.with_deletion(topic, Deletion(end, stored_ms))
        try:
            write_deletions(self._fs, self.root, deletions)
        except OSError as error:
            _log.error(
                "the deletion of topic {topic} could not be recorded: {error}; its messages may come back after a crash",
                topic=topic,
                error=error,
            )
        self._dispatcher.deletions = deletions

    def delete_expired_queues(self) -> list[tuple[str, int]]:
        """Remove the queues whose messages have all left the log. Return their topics and queue ids.

        The next message of such a queue gets queue offset 0 again. Queues of waiting messages (delayed, timed, half)
        stay. Belongs to the storage thread.
        """
        begin = self.commit_log.min_offset
        expired = [
            key
            for key, queue in self.queues.all()
            if key[0] not in _KEPT_TOPICS and 0 <= queue.max_physic_offset <= begin and not self._has_more(key, queue)
        ]
        for key in expired:
            self._appender.topic_queues.pop(key, None)
        if expired:
            with self._turn:
                self._reput.call(lambda: self.queues.remove(expired))
        return expired

    def _has_more(self, key: tuple[str, int], queue: ConsumeQueue) -> bool:
        """Return whether messages were appended to a queue but not dispatched yet."""
        appended = self._appender.topic_queues.get(key)
        return appended is not None and appended.next_offset > queue.max_offset

    def execute_delete_files_manually(self) -> None:
        """Delete expired files soon, at any hour."""
        self._cleaner.execute_delete_files_manually()

    def add_arrival_listener(self, listener: ArrivalListener) -> None:
        """Call a function on the dispatching thread with the messages that became visible, once for each group.

        The only listener is not called if no reader waits for any of them (`is_awaited`).
        """
        self._reput.add_listener(listener)

    @property
    def is_awaited(self) -> Callable[[str, int], bool]:
        """Returns whether a reader waits for the next message of a queue, given topic and queue id. Any thread calls it."""
        return self._reput.is_awaited

    @is_awaited.setter
    def is_awaited(self, is_awaited: Callable[[str, int], bool]) -> None:
        self._reput.is_awaited = is_awaited

    def add_dispatcher(self, dispatch: Callable[[Sequence[DispatchRequest]], None]) -> None:
        """Call a function on the dispatching thread with each group of records after they are in queues and index.

        Call this before ``start``. Exceptions of the function are only logged.
        """
        self._dispatcher.others = (*self._dispatcher.others, dispatch)

    def queue_keys(self) -> list[tuple[str, int]]:
        """Return the topics and queue ids with dispatched messages."""
        return list(self.queues.queues)

    def max_physical_offset(self) -> int:
        """Return the offset after the last byte of the log."""
        return self.commit_log.max_offset

    def min_physical_offset(self) -> int:
        """Return the offset of the first byte of the log, -1 if nothing was ever stored."""
        return self.commit_log.min_offset

    def log_data_from(self, offset: int) -> memoryview | None:
        """Return the log's bytes from an offset to the end of its file, None if the log does not have them."""
        return self.commit_log.data_from(offset)

    def disk_ratio(self) -> float:
        """Return the used share of the log's disk, 0 to 1, the emptiest of several."""
        return self.disk_watch.ratio

    def flushed_offset(self) -> int:
        """Return the offset up to which the log is on disk."""
        return self.commit_log.queue.flushed_where

    @property
    def last_flush_ms(self) -> float:
        """Duration of the last flush of the log."""
        return self._flush.last_flush_ms

    @property
    def flush_failed(self) -> bool:
        """Whether a flush has failed. No messages are accepted until a restart then."""
        return bool(self.flags.bits & FLUSH_ERROR)

    @property
    def flush_times(self) -> LagHistogram:
        """Durations of the flushes of the log."""
        return self._flush.flush_times

    def dispatch_behind_bytes(self) -> int:
        """Return the number of bytes of the log not visible to readers yet."""
        return max(0, self.commit_log.max_offset - self._late.dispatched_to)

    def append_lock_ms(self) -> float:
        """Return how long the running append has taken so far, 0 without one."""
        began = self._append_began
        return max(0.0, (self._stopwatch() - began) * 1000) if began else 0.0

    def is_os_page_cache_busy(self) -> bool:
        """Return whether an append hangs for longer than osPageCacheBusyTimeOutMills."""
        return self.append_lock_ms() > self.config.os_page_cache_busy_time_out_mills

    def refuse_puts(self, why: str) -> None:
        """Refuse messages until `accept_puts`, with STEPPED_DOWN. Any thread."""
        self._refuses_puts = why

    def accept_puts(self) -> None:
        """Accept messages again after `refuse_puts`. Any thread."""
        self._refuses_puts = ""

    def refusal(self) -> PutResult | None:
        """Return why messages are refused now, None if they are accepted."""
        if not self._open:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="the store is closed")
        if self._refuses_puts:
            return PutResult(PutStatus.STEPPED_DOWN, cause=self._refuses_puts)
        if self.config.broker_role == "SLAVE":
            return PutResult(
                PutStatus.SERVICE_NOT_AVAILABLE, cause="this broker is a slave and does not accept messages"
            )
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
        begin = self._append_began = self._stopwatch()
        if self.config.max_message_size != self._max_message_size:
            self._max_message_size = self._appender.max_message_size = self.config.max_message_size
        try:
            results, group = append(messages)
        finally:
            self._append_began = 0.0
        took = self._stopwatch() - begin
        self.append_times.add(took)
        took_ms = self.last_append_ms = took * 1000
        if took_ms > SLOW_PUT_MS:
            _log.warn(
                "appending {count} messages to the log took {took} ms, more than {limit}: the disk or the machine is slow",
                count=len(messages),
                took=int(took_ms),
                limit=SLOW_PUT_MS,
            )
        if self._sync or self._sync_replica:
            # Waiting puts are reported by their waiters.
            puts = sum([not message.wait for message in messages[:puts]])
        if self.put_listener is not None and puts:
            self.put_listener(puts, took_ms)
        if group is None:
            self.puts_failed += len(messages)
        else:
            self.puts_failed += len(messages) - len(group.requests)
            if self.holds_dispatch:
                self._reput.hold(group)
            else:
                self._reput.submit(group)
            self._count_appended(group)
            if self._sync and not all(message.wait for message in messages):
                # Waiting puts request the flush themselves.
                self._flush.wake()
        return results

    def _copied(self, group: AppendedGroup) -> None:
        """Take over bytes of a master: pass them on to dispatch, and count them."""
        held = self._held_copy
        if not self.holds_dispatch:
            self._reput.submit(group)
        elif held is not None and held.end_offset == group.start_offset:
            held.requests.extend(group.requests)
            self._held_copy = AppendedGroup(held.start_offset, group.end_offset, held.requests)
        else:
            if held is not None:
                self._reput.hold(held)
            self._held_copy = group
        self._count_appended(group)

    def _count_appended(self, group: AppendedGroup) -> None:
        self.messages_put += len(group.requests)
        self.bytes_put += group.end_offset - group.start_offset
        for listener in self._append_listeners:
            listener()

    def _opening(self) -> StoreOpening:
        return StoreOpening(
            self.config,
            self.root,
            self._fs,
            self.flags,
            self.commit_log,
            self.queues,
            self.index,
            self.checkpoint,
            self._scanner,
            self._dispatcher,
            self._reput,
            self._late,
            self._flush_queues,
            self._log_begin,
            self._file_notes,
            self.get_store_time,
        )

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

    def _trouble(self, flushed: bool, behind: int) -> str:
        """Return in words why the stop is not clean."""
        if not self.flags.writable:
            return self.flags.describe()
        return f"{behind} bytes are not dispatched" if flushed else "some data could not be flushed"

    def _on_index_file_error(self) -> None:
        (self._late.flags or self.flags).set(WRITE_INDEX_FILE_ERROR, True)

    def _release(self) -> None:
        self.commit_log.queue.close()
        if self._lock is not None:
            self._fs.unlock(self._lock)
            self._lock = None


def _memory_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
