"""One file of the message index: a hash table on disk from key hash to commit-log offsets, newest first.

Counterpart: `IndexFile` and `IndexHeader` (Apache). The same sequence of keys gives the same bytes. Queries are exact to the
millisecond, Apache's to the second. The layout is in docs/formats/index_file.md.
"""

import os
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Final

from twisted.logger import Logger

from rocketd.store.base.filesystem import IFileSystem, sync_names
from rocketd.store.index.entries import IndexEntry, write_entries
from rocketd.store.index.layout import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, SLOT, SLOT_SIZE, index_file_size

_LONG: Final = struct.Struct(">q")
_COUNT: Final = struct.Struct(">i")
_COUNT_POSITION: Final = HEADER_SIZE - _COUNT.size
_RESERVE_STEP: Final = 1 << 20
_LAST_MS: Final = 999
"""An entry has whole seconds: its message was stored at most this much later."""

_log = Logger()


class IndexFile:
    """The mapped file at `path`, created sparse if it is missing.

    `end_physical_offset` and `end_timestamp` are those of the previous file, if a new file continues it.

    Threads:

    - `put_group` belongs to the dispatching thread.
    - `select`, `is_time_matched`, `flush` and the attributes may be used by other threads at the same time. An entry is
      written before the slot that points to it, and counted last.
    - `close` and `destroy` may be called by any thread, also during reads (the last reader unmaps the file), but not
      while `put_group` runs.

    Raises OSError if the file cannot be opened, extended or mapped.
    """

    __slots__ = (
        "_closed",
        "_descriptor",
        "_file_system",
        "_lock",
        "_map",
        "_reserved",
        "_size",
        "_users",
        "begin_physical_offset",
        "begin_timestamp",
        "end_physical_offset",
        "end_timestamp",
        "entries",
        "hash_slot_count",
        "index_count",
        "path",
        "slots",
    )

    def __init__(
        self,
        path: str,
        slots: int,
        entries: int,
        file_system: IFileSystem,
        end_physical_offset: int = 0,
        end_timestamp: int = 0,
    ) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self.begin_timestamp = self.end_timestamp = max(0, end_timestamp)
        self.begin_physical_offset = self.end_physical_offset = max(0, end_physical_offset)
        self.hash_slot_count = 0
        self.index_count = 1
        self._file_system = file_system
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._reserved = 0
        self._size = index_file_size(slots, entries)
        # A file written with larger settings keeps its length.
        new = not file_system.exists(path)
        long_enough = not new and file_system.file_size(path) >= self._size
        self._descriptor = file_system.open(path, None if long_enough else self._size)
        try:
            self._map = file_system.map(self._descriptor, self._size, writable=True)
            if end_physical_offset > 0 or end_timestamp > 0:
                # Like entries: a store into a hole of a full disk would end the process.
                file_system.allocate(self._descriptor, 0, HEADER_SIZE)
                self._write_header()
        except BaseException:
            file_system.close(self._descriptor)
            if new:
                file_system.remove(path)
            raise

    @property
    def name(self) -> str:
        """File name: the local time of its creation."""
        return os.path.basename(self.path)

    def load(self) -> None:
        """Read the header's values from the file. Raises OSError."""
        # Do not look at holes: a full memory file system has no space for the zeros of a mapped hole.
        ranges = self._file_system.data_ranges(self.path, 0)
        if not ranges or ranges[0][0]:
            return
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            index_count,
        ) = HEADER.unpack_from(self._map, 0)
        self.index_count = max(1, index_count)

    def drop_uncounted(self) -> None:
        """Point the slots of uncounted entries back to counted ones. The entries will be put again. Raises OSError."""
        mapped, slots = self._map, self.slots
        entries_at = HEADER_SIZE + slots * SLOT_SIZE
        last = self.index_count
        ranges = self._file_system.data_ranges(self.path, entries_at + last * ENTRY_SIZE)
        written = (ranges[0][1] - entries_at) // ENTRY_SIZE if ranges else 0
        while last < min(self.entries, written) and any(
            mapped[(at := entries_at + last * ENTRY_SIZE) : at + ENTRY_SIZE]
        ):
            last += 1
        for number in range(last - 1, self.index_count - 1, -1):
            key_hash, _, _, previous = ENTRY.unpack_from(mapped, entries_at + number * ENTRY_SIZE)
            slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
            if SLOT.unpack_from(mapped, slot_at)[0] == number:
                SLOT.pack_into(mapped, slot_at, previous)

    def is_write_full(self) -> bool:
        """Return whether the file is full."""
        return self.index_count >= self.entries

    def put_group(self, group: Sequence[IndexEntry], start: int) -> int:
        """Store `group[start:]` as far as there is space. Return the position of the first entry not stored.

        The header in the file is updated once, at the end of the group. Raises OSError if the disk is full; nothing is
        stored then.
        """
        first = self.index_count
        stop = min(len(group), start + max(0, self.entries - first))
        if start >= stop:
            return start
        entry_at = HEADER_SIZE + self.slots * SLOT_SIZE + first * ENTRY_SIZE
        entries_end = entry_at + (stop - start) * ENTRY_SIZE
        if entries_end > self._reserved:
            self._reserve(entry_at, entries_end)
        try:
            write_entries(self, self._map, group, start, stop)
        finally:
            if self.index_count > first:
                _, self.end_physical_offset, self.end_timestamp = group[start + self.index_count - first - 1]
            self._write_header()
        return stop

    def _reserve(self, entries_from: int, entries_to: int) -> None:
        """Reserve disk space for the slots and some entries.

        A store into a mapped hole of a full disk would raise a signal and end the process.
        """
        if not self._reserved:
            self._file_system.allocate(self._descriptor, 0, HEADER_SIZE + self.slots * SLOT_SIZE)
        reserved = min(max(entries_to, entries_from + _RESERVE_STEP), self._size)
        self._file_system.allocate(self._descriptor, entries_from, reserved - entries_from)
        self._reserved = reserved

    def _write_header(self) -> None:
        # The order matters, because the process may end at any point. A counted entry then always has a beginning. A
        # message after the end is put again, a message before it never is.
        _LONG.pack_into(self._map, 0, self.begin_timestamp)
        _LONG.pack_into(self._map, 16, self.begin_physical_offset)
        _COUNT.pack_into(self._map, _COUNT_POSITION, self.index_count)
        HEADER.pack_into(
            self._map,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        )

    def is_time_matched(self, begin_ms: int, end_ms: int) -> bool:
        """Return whether the file's times overlap `begin_ms` to `end_ms` (both included)."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def select(
        self,
        offsets: list[int],
        key_hash: int,
        max_num: int,
        begin_ms: int,
        end_ms: int,
        is_wanted: Callable[[int], bool],
    ) -> None:
        """Append offsets of the hash to `offsets`, newest first, until it holds `max_num`.

        `is_wanted` is asked for the offset of each message that may have been stored from `begin_ms` to `end_ms`: the
        index knows times to the second. Other keys may have the same hash. A closed file adds nothing. A damaged chain
        ends at the damage.
        """
        if not self.hold():
            return
        try:
            if self.index_count <= 1:
                # The slots may have no disk space yet, and reading them needs space on a full disk.
                return
            mapped = self._map
            entries_at = HEADER_SIZE + self.slots * SLOT_SIZE
            (number,) = SLOT.unpack_from(mapped, HEADER_SIZE + key_hash % self.slots * SLOT_SIZE)
            # Read after the slot, so the count includes the slot's entry.
            if number > self.index_count:
                return
            while number > 0 and len(offsets) < max_num:
                found, physical_offset, diff, previous = ENTRY.unpack_from(mapped, entries_at + number * ENTRY_SIZE)
                if diff < 0:
                    return
                # The difference of the first entry refers to the end of the previous file.
                stored = self.begin_timestamp + (diff * 1000 if number > 1 else 0)
                too_old = stored + _LAST_MS < begin_ms
                if found == key_hash and not too_old and stored <= end_ms and is_wanted(physical_offset):
                    offsets.append(physical_offset)
                # Entries point to older ones only. Any other pointer would make the search loop forever.
                if too_old or previous >= number:
                    return
                number = previous
        except struct.error:
            _log.failure("a chain in index file {path} points outside the file", path=self.path)
        finally:
            self.release()

    def flush(self) -> None:
        """Wait until all entries are on disk. Does nothing if the file is closed. Raises OSError."""
        if self.hold():
            try:
                self._file_system.fdatasync(self._descriptor)
                # If its name or that of its directory is lost, so are the bytes.
                sync_names(self._file_system, self.path, 2)
            finally:
                self.release()

    def hold(self) -> bool:
        """Keep the file mapped until `release`. Return False if it is closed."""
        with self._lock:
            if self._closed:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        """Undo one `hold`."""
        with self._lock:
            self._users -= 1
            if self._closed and not self._users:
                self._unmap()

    def close(self) -> None:
        """Unmap now, or after the last reader. Entries stay in the file."""
        with self._lock:
            if not self._closed:
                self._closed = True
                if not self._users:
                    self._unmap()

    def destroy(self) -> None:
        """Close and delete the file. Raises OSError if it exists and cannot be deleted."""
        self.close()
        self._file_system.remove(self.path)

    def _unmap(self) -> None:
        self._map.close()
        self._file_system.close(self._descriptor)
