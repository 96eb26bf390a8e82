"""The message index: finds the commit-log offsets of a topic's messages by key and time.

Counterpart: `IndexService` (Apache), with the same files in the same directory. Files are named by the local time of
their creation and read in the order of their names. A file is started when the one before it is full.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from twisted.logger import Logger

from rocketd.common.java_hash import PrefixedHasher, java_string_hash_unsigned
from rocketd.common.process.cpu_affinity import UnboundThread
from rocketd.store.base.filesystem import IFileSystem, RealFileSystem
from rocketd.store.format.message import DispatchRequest
from rocketd.store.index.entries import KEY_SEPARATOR, index_entries, index_key_hash
from rocketd.store.index.file import IndexFile
from rocketd.store.index.layout import DEFAULT_ENTRIES, DEFAULT_SLOTS, index_file_size
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.state.last_stop import LastStop

_CREATE_ATTEMPTS: Final = 3
_LAST_FILE_NAME: Final = (1 << 63) - 1

_log = Logger()


class QueryOffsets(NamedTuple):
    """Result of a query: physical offsets, newest first, and the end of the index (ms, physical offset)."""

    offsets: list[int]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int


def index_file_name(now_ms: int) -> str:
    """Return the name of a file created at this time: yyyyMMddHHmmssSSS, local time."""
    made = time.localtime(now_ms // 1000)
    return (
        f"{made.tm_year:04d}{made.tm_mon:02d}{made.tm_mday:02d}"
        f"{made.tm_hour:02d}{made.tm_min:02d}{made.tm_sec:02d}{now_ms % 1000:03d}"
    )


def _was_flushed(file: IndexFile, before_ms: int, checkpoint: StoreCheckpoint) -> bool:
    """Return whether a full file is surely on disk. The file before it ends at `before_ms`, 0 without one."""
    return before_ms < checkpoint.index_msg_timestamp and 0 < file.end_timestamp <= checkpoint.index_msg_timestamp


def _system_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class IndexService:
    """The index files of one directory.

    `slots` and `entries` are per file. `max_msgs_num_batch` limits the offsets that one query returns. If a file cannot
    be created, three attempts are made, `retry_seconds` apart, unless `put` is told whether to go on. Then
    `on_index_file_error` is called on the dispatching thread, and neither the rest of the group nor later messages are
    indexed.

    Threads:

    - `put` belongs to the dispatching thread.
    - `query`, `flush` and `delete_expired` may be called by other threads at the same time; the last two by one thread
      each.
    - `load` comes before all of them, `close` and `destroy` after the last `put`.
    """

    def __init__(
        self,
        directory: str,
        slots: int = DEFAULT_SLOTS,
        entries: int = DEFAULT_ENTRIES,
        now_ms: Callable[[], int] = _system_clock_ms,
        *,
        max_msgs_num_batch: int = 64,
        on_index_file_error: Callable[[], None] | None = None,
        retry_seconds: float = 1.0,
        file_system: IFileSystem | None = None,
    ) -> None:
        self.directory = directory
        self.slots = slots
        self.entries = entries
        self.max_msgs_num_batch = max_msgs_num_batch
        self._now_ms = now_ms
        self._on_index_file_error = on_index_file_error
        self._retry_seconds = retry_seconds
        self._file_system = file_system or RealFileSystem()
        self._checkpoint: StoreCheckpoint | None = None
        self._files: tuple[IndexFile, ...] = ()
        self._files_guard = threading.Lock()
        self._flusher: threading.Thread | None = None
        self._flush_failed = False
        self._closing = threading.Event()
        self._hasher = PrefixedHasher()
        self._lacks: int | None = None
        """The offset of the first message that could not be indexed."""

    def load(self, last_stop: LastStop, checkpoint: StoreCheckpoint, log_end: int, cut_at: str | None = None) -> bool:
        """Open the existing files. Return False, after logging the reason, if one cannot be opened.

        After a system crash, only the leading files are kept for which all of this is true: full, surely flushed by the
        checkpoint's index timestamp, contiguous, and before `log_end`, the end of the log. Several files may end in one
        millisecond: if it is that of the checkpoint, only the first of them was surely flushed. Recovery puts the
        messages of the other files again. After a process exit, at most the last group is incomplete. Files whose names
        are not numbers are left alone. Files from the name `cut_at` on are removed and recreated.
        """
        self._checkpoint = checkpoint
        self._lacks = None
        self._closing.clear()
        whole = True
        odd: list[str] = []
        for name in self.names_on_disk():
            if not (name.isascii() and name.isdigit() and int(name) <= _LAST_FILE_NAME):
                _log.warn("{name} in {directory} is not an index file", name=name, directory=self.directory)
                continue
            try:
                size = self._file_system.file_size(os.path.join(self.directory, name))
                file = self._open(name)
                file.load()
                if not self._has_entries(file, last_stop):
                    # Messages before it would seem not to be indexed.
                    whole = whole and last_stop is LastStop.KILLED
                    file.destroy()
                    continue
                whole = whole and (cut_at is None or name < cut_at)
                whole = whole and (last_stop is not LastStop.CRASHED or self._is_whole(file, checkpoint, log_end))
                if not whole:
                    file.destroy()
                    continue
            except OSError as error:
                _log.error(
                    "cannot open index file {name} in {directory}: {error}",
                    name=name,
                    directory=self.directory,
                    error=error,
                )
                return False
            self._add(file)
            if size != index_file_size(self.slots, self.entries):
                odd.append(name)
        if odd:
            _log.warn(
                "{count} index files in {directory}, {name} the first, do not have the length given by "
                "maxHashSlotNum={slots} and maxIndexNum={entries}: queries by key may miss their messages; set the "
                "values they were created with, or rebuild them with 'rocketd store repair DIR --write --index'",
                count=len(odd),
                directory=self.directory,
                name=odd[0],
                slots=self.slots,
                entries=self.entries,
            )
        if cut_at is not None:
            # Recreated files must not count as flushed.
            surely = self._files[-1].end_timestamp if self._files else 0
            checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, surely)
        if last_stop is LastStop.KILLED and self._files:
            self._files[-1].drop_uncounted()
            ends = (0, *(file.end_timestamp for file in self._files))
            for file, before_ms in zip(self._files, ends, strict=False):
                # The checkpoint will move past it when a later file is flushed.
                if file.is_write_full() and not _was_flushed(file, before_ms, checkpoint):
                    self._flush_in_background(file)
        return True

    @staticmethod
    def _has_entries(file: IndexFile, last_stop: LastStop) -> bool:
        """Return whether a file is worth keeping: its process has counted entries, and no system crash took them all."""
        return last_stop is LastStop.CLEAN or file.index_count > 1

    def _is_whole(self, file: IndexFile, checkpoint: StoreCheckpoint, log_end: int) -> bool:
        """Return whether a system crash took nothing of the file that comes after the loaded ones."""
        before_ms = self._files[-1].end_timestamp if self._files else 0
        return (
            file.is_write_full()
            and _was_flushed(file, before_ms, checkpoint)
            and self.indexed_to <= file.begin_physical_offset
            and file.end_physical_offset < log_end
        )

    def names_on_disk(self) -> list[str]:
        """Return the sorted names in the directory. Raises OSError."""
        try:
            return self._file_system.listdir(self.directory)
        except NotADirectoryError:
            return []

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first. The tuple is replaced, never changed."""
        return self._files

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the files, oldest first."""
        return tuple(file.name for file in self._files)

    @property
    def indexed_to(self) -> int:
        """Offset of the log up to which messages are indexed, 0 without any."""
        files = self._files
        return files[-1].end_physical_offset if files else 0

    def put(self, requests: Iterable[DispatchRequest], again: Callable[[OSError], bool] | None = None) -> bool:
        """Index a group of dispatched messages, in log order. Return whether all are indexed.

        Messages before the end of the index were put already and are skipped, as are rolled-back messages. `again` is
        called after each failure and returns whether to go on. If it raises, the group can be put again. After a failure,
        later messages are not indexed until the missing ones are put, by this process or the next one: an index with a
        gap would seem to be complete.
        """
        files = self._files
        indexed_to = files[-1].end_physical_offset if files else 0
        group = index_entries(requests, indexed_to, self._hasher)
        if group and self._lacks is not None:
            if group[0][1] > self._lacks:
                return False
            self._lacks = None
        position = 0
        while position < len(group):
            try:
                position = self._writable_file(_CREATE_ATTEMPTS if again is None else 1).put_group(group, position)
            except OSError as error:
                if again is not None and again(error):
                    continue
                _log.error(
                    "cannot index the messages from offset {offset} in {directory}: {error}",
                    offset=group[position][1],
                    directory=self.directory,
                    error=error,
                )
                self._lacks = group[position][1]
                if self._on_index_file_error is not None:
                    self._on_index_file_error()
                return False
        return True

    def _writable_file(self, attempts: int) -> IndexFile:
        """Return the newest file, or a new one after it if it is full. Raises OSError after the last attempt."""
        newest = self._files[-1] if self._files else None
        if newest is not None and not newest.is_write_full():
            return newest
        attempt = 1
        while True:
            try:
                file = self._make_after(newest)
                break
            except OSError as error:
                if attempt == attempts:
                    raise
                _log.warn("cannot create an index file in {directory}: {error}", directory=self.directory, error=error)
            attempt += 1
            self._closing.wait(self._retry_seconds)
        self._add(file)
        if newest is not None:
            self._flush_in_background(newest)
        return file

    def _make_after(self, newest: IndexFile | None) -> IndexFile:
        self._file_system.makedirs(self.directory)
        name = index_file_name(self._now_ms())
        if newest is None:
            return self._open(name)
        if name <= newest.name:
            # Two files in one millisecond, or a clock set back. The names must sort in the order of the files.
            name = str(int(newest.name) + 1).zfill(len(newest.name))
        return self._open(name, newest.end_physical_offset, newest.end_timestamp)

    def _open(self, name: str, end_physical_offset: int = 0, end_timestamp: int = 0) -> IndexFile:
        path = os.path.join(self.directory, name)
        return IndexFile(path, self.slots, self.entries, self._file_system, end_physical_offset, end_timestamp)

    def _add(self, file: IndexFile) -> None:
        with self._files_guard:
            self._files = (*self._files, file)

    def _flush_in_background(self, file: IndexFile) -> None:
        before = self._flusher

        def flush() -> None:
            # One after another: the checkpoint must not move past a file that is not on disk yet.
            if before is not None:
                before.join()
            self._flush_file(file)

        self._flusher = UnboundThread(target=flush, name="FlushIndexFileThread", daemon=True)
        self._flusher.start()

    def _join_flusher(self) -> None:
        flusher = self._flusher
        if flusher is not None:
            flusher.join()

    def _flush_file(self, file: IndexFile) -> None:
        full = file.is_write_full()
        try:
            file.flush()
            # The checkpoint speaks of all files up to a time.
            if full and file.end_timestamp > 0 and self._checkpoint is not None and not self._flush_failed:
                self._checkpoint.index_msg_timestamp = file.end_timestamp
                self._checkpoint.flush()
        except OSError as error:
            self._flush_failed = True
            _log.error("cannot flush index file {path}: {error}", path=file.path, error=error)

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, is_wanted: Callable[[int], bool]
    ) -> QueryOffsets:
        """Find at most `max_num` messages of the key, stored from `begin_ms` to `end_ms`.

        Searches from the newest file back and ends with the first file that begins before `begin_ms`. The index knows
        times to the second, so `is_wanted` is asked for the offset of each candidate. Another key may have the same hash.
        """
        max_num = min(max_num, self.max_msgs_num_batch)
        key_hash = index_key_hash(java_string_hash_unsigned(topic + KEY_SEPARATOR + key))
        offsets: list[int] = []
        files = self._files
        if not files:
            return QueryOffsets(offsets, 0, 0)
        last_timestamp = files[-1].end_timestamp
        last_physical_offset = files[-1].end_physical_offset
        for file in reversed(files):
            if file.is_time_matched(begin_ms, end_ms):
                file.select(offsets, key_hash, max_num, begin_ms, end_ms, is_wanted)
            if file.begin_timestamp < begin_ms or len(offsets) >= max_num:
                break
        return QueryOffsets(offsets, last_timestamp, last_physical_offset)

    def flush(self) -> None:
        """Wait until all files are on disk. A failure is logged."""
        self._join_flusher()
        files = self._files
        if files:
            self._flush_file(files[-1])

    def delete_expired(self, min_physical_offset: int) -> int:
        """Delete the oldest files without messages at or after the offset, never the newest. Return their number."""
        deleted = 0
        while len(self._files) > 1 and self._files[0].end_physical_offset < min_physical_offset:
            oldest = self._files[0]
            try:
                oldest.destroy()
            except OSError as error:
                _log.error("cannot delete index file {path}: {error}", path=oldest.path, error=error)
                break
            with self._files_guard:
                self._files = self._files[1:]
            deleted += 1
        return deleted

    def close(self) -> None:
        """Wait for running flushes and unmap the files. No `put` may follow."""
        for file in self._take_all():
            file.close()

    def destroy(self) -> None:
        """Close and delete all files. Raises OSError if one cannot be deleted."""
        for file in self._take_all():
            file.destroy()

    def _take_all(self) -> tuple[IndexFile, ...]:
        self._closing.set()
        self._join_flusher()
        with self._files_guard:
            files, self._files = self._files, ()
        return files
