"""Deletes expired files: log files from the front, then the queue and index files that point to them.

Counterpart: `CleanCommitLogService` and `CleanConsumeQueueService` (Apache). A deleted file is unlinked at once.
Readers that hold views keep its bytes and disk space until they release them, because a file is never unmapped under a
reader. If the process dies at any moment, the store still opens: each deletion is on disk before the next begins, and
queues are cleaned after the log.
"""

import time
from collections.abc import Callable, Iterator

from twisted.logger import Logger

from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.index.service import IndexService
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.upkeep.disk_watch import DiskWatch
from rocketd.store.upkeep.log_begin import LogBegin

FIRST_ROUND_SECONDS = 60.0
"""Time after the start without deletions."""

MAX_FILES_A_ROUND = 10
"""Log files deleted in one round."""

MANUAL_ROUNDS = 20
"""Rounds that delete expired files at any hour after a manual request."""

QUEUES_A_STEP = 256
"""Queues examined before other tasks get their turn."""

HOUR_MS = 3_600_000

_log = Logger()


class _DeletedFile:
    """A deleted log file: its mapping (None once no reader holds it), and the time of its deletion."""

    __slots__ = ("mapping", "path", "since", "told")

    def __init__(self, path: str, mapping: Callable[[], object | None], since: float) -> None:
        self.path = path
        self.mapping = mapping
        self.since = since
        self.told = False


class StoreCleaner:
    """A task of the maintenance thread, its owner. `execute_delete_files_manually` may be called by any thread.

    Settings are read each round, so changes take effect at once.
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
        log_begin: LogBegin,
    ) -> None:
        """Take the parts of the store.

        - `clock` returns seconds since 1970.
        - `dispatched_to()` returns the offset up to which consumers see the log. Messages not visible yet are not
          deleted.
        - `log_begin` is called before a log file is deleted.
        """
        self._config = config
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._disk_watch = disk_watch
        self._clock = clock
        self._fs = fs
        self._dispatched_to = dispatched_to
        self._log_begin = log_begin
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
        """Delete expired files in the next 20 rounds, at any hour."""
        _log.info("expired files are deleted in the next {rounds} rounds, as requested", rounds=MANUAL_ROUNDS)
        self._asked = True

    def run_once(self, now: float) -> float:
        """Do the next step of the running round, or begin one. At most one file is deleted.

        `now` is in seconds of a monotonic clock. Return the time of the next call.
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
        """Yield one round as steps. Each yields the seconds to wait before the next."""
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
            # Delete no more than necessary, and accept messages again as soon as possible.
            self._disk_watch.check()
            yield self._config.delete_commit_log_files_interval / 1000
        stuck = self._disk_watch.short and not deleted
        if stuck and not self._stuck:
            _log.error(
                "no log file can be deleted, though space is short ({disk}): no file except the last is flushed, "
                "dispatched{and_expired}",
                disk=self._disk_watch.describe(),
                and_expired=""
                if self._at_once
                else f" and older than fileReservedTime={self._config.file_reserved_time} h",
            )
        self._stuck = stuck

    @property
    def _at_once(self) -> bool:
        """Whether files must be deleted before they expire."""
        return self._config.clean_file_forcibly_enable and self._disk_watch.critical

    def _reason(self) -> str | None:
        """Return why log files are deleted in this round, None if they are not."""
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
            return "a manual request"
        return "the last attempt failed" if retried else None

    def _delete_first_log_file(self, reason: str) -> bool:
        """Delete the oldest log file if it may be deleted. Return whether it was."""
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
            self._log_begin.deleting_to(file.file_from_offset + queue.file_size)
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
            # Removed by hand. Its disk space is free when we let go of it too.
            return True
        return self._clock() * 1000 >= modified + self._config.file_reserved_time * HOUR_MS

    def _clean_queues(self) -> Iterator[float]:
        """Follow the log: once for each new first offset, and once after the start, in case of a crash before."""
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
        """Delete the oldest file of a queue if all its entries point before an offset of the log. Return whether it
        was.
        """
        files = queue.files.files
        if len(files) < 2:
            return False
        file = files[0]
        entry = file.file_size - CONSUME_QUEUE_UNIT
        try:
            # This may map the file again, which fails if the file is gone.
            if int.from_bytes(file.view[entry : entry + 8], "big", signed=True) >= offset:
                return False
            if not queue.files.delete_first(file):
                return False
        except OSError as error:
            _log.error("cannot delete {path}: {error}", path=file.path, error=error)
            return False
        _log.info("deleted {path}: the log begins at {offset}", path=file.path, offset=offset)
        return True

    def _name_held_files(self) -> None:
        """Warn once about each deleted file that readers hold for long."""
        self._deleted = [deleted for deleted in self._deleted if deleted.mapping() is not None]
        patience = self._config.destroy_maped_file_interval_forcibly / 1000
        for deleted in self._deleted:
            if not deleted.told and self._now >= deleted.since + patience:
                deleted.told = True
                _log.warn(
                    "{path} was deleted {seconds:.0f} s ago, but readers still hold it: its disk space is free when "
                    "they release it, for example when their connections are closed",
                    path=deleted.path,
                    seconds=self._now - deleted.since,
                )
