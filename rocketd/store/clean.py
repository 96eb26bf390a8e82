"""Deletes files that have expired: log files from the front, then the queue and index files that lead to them.

Answers to Apache's `CleanCommitLogService` and `CleanConsumeQueueService`. A name is removed at once; readers that
still hold views of the file keep its bytes, and its room on the disk, until they let go: nothing is ever unmapped
under them. Whatever moment the process dies at, what is left is a store that opens: each deletion is on the disk before
the next is begun, and queues are cleaned behind the log.
"""

import time
from collections.abc import Callable, Iterator

from twisted.logger import Logger

from rocketd.store.commit_log import CommitLog
from rocketd.store.consume_queue import ConsumeQueue
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.disk_watch import DiskWatch
from rocketd.store.filesystem import IFileSystem
from rocketd.store.index_service import IndexService
from rocketd.store.layout import CONSUME_QUEUE_UNIT
from rocketd.store.mapped_file import LogFile
from rocketd.store.settings import MessageStoreConfig

FIRST_ROUND_SECONDS = 60.0
"""Nothing is deleted sooner after the start."""

MAX_FILES_A_ROUND = 10
"""Log files deleted in one round."""

MANUAL_ROUNDS = 20
"""Rounds in which expired files are deleted at any hour, after somebody has asked for it."""

QUEUES_A_STEP = 256
"""Queues that are looked through before other tasks get their turn."""

HOUR_MS = 3_600_000

_log = Logger()


class _DeletedFile:
    """A log file whose name is gone: its mapping, which gives None once no reader holds it, and since when it is
    gone.
    """

    __slots__ = ("mapping", "path", "since", "told")

    def __init__(self, path: str, mapping: Callable[[], object | None], since: float) -> None:
        self.path = path
        self.mapping = mapping
        self.since = since
        self.told = False


class StoreCleaner:
    """A task of the maintenance thread, to which it belongs; `execute_delete_files_manually` may be called by any.

    Settings are read each round, so that a change of them counts at once.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        index: IndexService | None,
        disk_watch: DiskWatch,
        clock: Callable[[], float],
        fs: IFileSystem,
        dispatched_to: Callable[[], int],
    ) -> None:
        """`clock` gives seconds since 1970; `dispatched_to()` the offset up to which consumers see the log: what
        they never saw is not deleted.
        """
        self._config = config
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._disk_watch = disk_watch
        self._clock = clock
        self._fs = fs
        self._dispatched_to = dispatched_to
        self._now = 0.0
        self._next_round: float | None = None
        self._round: Iterator[float] | None = None
        self._asked = False
        self._manual_rounds = 0
        self._retry_at: float | None = None
        self._stuck = False
        self._queues_clean_to = 0
        self._deleted: list[_DeletedFile] = []
        self._next_look = 0.0

    def execute_delete_files_manually(self) -> None:
        """Have expired files deleted in the next 20 rounds, whatever hour it is."""
        _log.info("expired files are deleted in the next {rounds} rounds: somebody asked for it", rounds=MANUAL_ROUNDS)
        self._asked = True

    def run_once(self, now: float) -> float:
        """Do what comes next of the round that is under way, or begin one; at most one file is deleted.

        `now` is in seconds of a clock that never goes back; returns when to call again.
        """
        self._now = now
        if self._next_round is None:
            self._next_round = now + FIRST_ROUND_SECONDS
        if self._round is None:
            if now < self._next_round:
                return self._next_round
            self._next_round = now + self._config.clean_resource_interval / 1000
            self._round = self._clean()
        pause = next(self._round, None)
        if pause is None:
            self._round = None
            return self._next_round
        return now + pause

    def _clean(self) -> Iterator[float]:
        """One round, as a run of steps; each gives the seconds to wait before the next."""
        self._disk_watch.check()
        yield from self._clean_log()
        yield from self._clean_queues()
        if self._now >= self._next_look:
            self._next_look = self._now + self._config.redelete_hanged_file_interval / 1000
            self._name_held_files()

    def _clean_log(self) -> Iterator[float]:
        reason = self._reason()
        if reason is None:
            self._stuck = False
            return
        deleted = 0
        while deleted < MAX_FILES_A_ROUND and self._delete_first_log_file(reason):
            deleted += 1
            # So that no more goes than has to, and messages are taken again as soon as they can be.
            self._disk_watch.check()
            yield self._config.delete_commit_log_files_interval / 1000
        stuck = self._disk_watch.short and not deleted
        if stuck and not self._stuck:
            _log.error(
                "no log file can be deleted, though space is short ({disk}): none but the last is "
                "flushed, dispatched{and_expired}",
                disk=self._disk_watch.describe(),
                and_expired=""
                if self._at_once
                else f" and older than fileReservedTime={self._config.file_reserved_time} h",
            )
        self._stuck = stuck

    @property
    def _at_once(self) -> bool:
        """Whether files have to go that have not expired."""
        return self._config.clean_file_forcibly_enable and self._disk_watch.critical

    def _reason(self) -> str | None:
        """Why log files are to be deleted in this round, None when they are not."""
        if self._asked:
            self._asked = False
            self._manual_rounds = MANUAL_ROUNDS
        manual = self._manual_rounds > 0
        if manual:
            self._manual_rounds -= 1
        retried = self._retry_at is not None and self._now >= self._retry_at
        if retried:
            self._retry_at = None
        if self._disk_watch.short:
            return self._disk_watch.describe()
        hour = time.localtime(self._clock()).tm_hour
        if any(part.strip() and int(part) == hour for part in self._config.delete_when.split(";")):
            return f"it is the hour of deleteWhen={self._config.delete_when}"
        if manual:
            return "somebody asked for it"
        return "the last attempt failed" if retried else None

    def _delete_first_log_file(self, reason: str) -> bool:
        """Delete the oldest log file if it may go; returns whether it did."""
        queue = self._commit_log.queue
        files = queue.files
        if len(files) < 2:
            return False
        file = files[0]
        if file.file_from_offset + queue.file_size > self._dispatched_to():
            return False
        try:
            if not self._expired(file):
                if not self._at_once:
                    return False
                reason = f"it has not expired, but space is short ({self._disk_watch.describe()})"
            mapping = file.mapping()
            if not queue.delete_first(file):
                return False
        except OSError as error:
            _log.error("cannot delete {path}: {error}", path=file.path, error=error)
            self._retry_at = self._now + self._config.redelete_hanged_file_interval / 1000
            return False
        self._deleted.append(_DeletedFile(file.path, mapping, self._now))
        _log.info("deleted {path}: {reason}", path=file.path, reason=reason)
        return True

    def _expired(self, file: LogFile) -> bool:
        try:
            modified = self._fs.modified(file.path)
        except FileNotFoundError:
            # Somebody removed it by hand; its room is free when we let go of it too.
            return True
        return self._clock() * 1000 >= modified + self._config.file_reserved_time * HOUR_MS

    def _clean_queues(self) -> Iterator[float]:
        """Follow the log: once for each new first offset, and once after the start, which a crash may have preceded."""
        offset = self._commit_log.min_offset
        if offset <= self._queues_clean_to:
            return
        for number, (_, queue) in enumerate(self._queues.all(), 1):
            queue.correct_min_offset(offset)
            deleted = False
            while self._delete_first_queue_file(queue, offset):
                deleted = True
                yield 0.0
            if deleted:
                queue.correct_min_offset(offset)
                yield self._config.delete_consume_queue_files_interval / 1000
            elif number % QUEUES_A_STEP == 0:
                yield 0.0
        if self._index is not None:
            self._index.delete_expired(offset)
        self._queues_clean_to = offset

    @staticmethod
    def _delete_first_queue_file(queue: ConsumeQueue, offset: int) -> bool:
        """Delete the oldest file of a queue if all its entries lead before an offset of the log; whether it did."""
        files = queue.files.files
        if len(files) < 2:
            return False
        file = files[0]
        entry = file.file_size - CONSUME_QUEUE_UNIT
        if int.from_bytes(file.view[entry : entry + 8], "big", signed=True) >= offset:
            return False
        try:
            if not queue.files.delete_first(file):
                return False
        except OSError as error:
            _log.error("cannot delete {path}: {error}", path=file.path, error=error)
            return False
        _log.info("deleted {path}: the log begins at {offset}", path=file.path, offset=offset)
        return True

    def _name_held_files(self) -> None:
        """Warn once of each deleted file that readers hold for long."""
        self._deleted = [deleted for deleted in self._deleted if deleted.mapping() is not None]
        patience = self._config.destroy_maped_file_interval_forcibly / 1000
        for deleted in self._deleted:
            if not deleted.told and self._now >= deleted.since + patience:
                deleted.told = True
                _log.warn(
                    "{path} was deleted {seconds:.0f} s ago, but readers still hold it: its room on the disk is not "
                    "free until they let go, for instance when their connections are closed",
                    path=deleted.path,
                    seconds=self._now - deleted.since,
                )
