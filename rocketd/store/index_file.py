"""One file of the message index: a hash table on disk from key hash to commit-log offsets, newest first.

Answers to Apache's `IndexFile` and `IndexHeader`. Promises the same bytes for the same sequence of keys and the same
offsets for the same query. The layout is in docs/formats/index_file.md.
"""

import os
import struct
import threading
from collections.abc import Sequence
from typing import Final

from twisted.logger import Logger

from rocketd.store.filesystem import IFileSystem
from rocketd.store.index_entries import IndexEntry
from rocketd.store.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, index_file_size

_HEADER: Final = struct.Struct(">qqqqii")
_LONG: Final = struct.Struct(">q")
_COUNT: Final = struct.Struct(">i")
_COUNT_POSITION: Final = HEADER_SIZE - _COUNT.size
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
_MAX_INT: Final = 0x7FFFFFFF
_RESERVE_STEP: Final = 1 << 20

_log = Logger()


class IndexFile:
    """The mapped file at `path`; made, sparse, when it is not there.

    `end_physical_offset` and `end_timestamp` are those of the file before, where a new one carries on.

    Threads: `put_group` belongs to the thread that dispatches the log. `select`, `is_time_matched`, `flush` and the
    attributes may be used by any other at the same time: an entry is written before the slot that leads to it, and
    counted last. `close` and `destroy` may come from any thread, also while others read (the mapping goes with the last
    reader), but not while `put_group` runs.

    Raises OSError when the file cannot be opened, made longer or mapped.
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
        # One written with larger settings keeps its length.
        new = not file_system.exists(path)
        long_enough = not new and file_system.file_size(path) >= self._size
        self._descriptor = file_system.open(path, None if long_enough else self._size)
        try:
            self._map = file_system.map(self._descriptor, self._size, writable=True)
            if end_physical_offset > 0 or end_timestamp > 0:
                # As for entries: a store into a hole of a full disk would end the process.
                file_system.allocate(self._descriptor, 0, HEADER_SIZE)
                self._write_header()
        except BaseException:
            file_system.close(self._descriptor)
            if new:
                file_system.remove(path)
            raise

    @property
    def name(self) -> str:
        """The file's name, which is the local time it was made."""
        return os.path.basename(self.path)

    def load(self) -> None:
        """Take the header's values from the file. Raises OSError."""
        # Holes are not looked at: a full memory file system has no room even for the zeros of a hole that is mapped.
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
        ) = _HEADER.unpack_from(self._map, 0)
        self.index_count = max(1, index_count)

    def forget_uncounted(self) -> None:
        """Lead the slots of entries that the header does not count back to those it does: they will be put again. Raises
        OSError.
        """
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
            key_hash, _, _, previous = _ENTRY.unpack_from(mapped, entries_at + number * ENTRY_SIZE)
            slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
            if _SLOT.unpack_from(mapped, slot_at)[0] == number:
                _SLOT.pack_into(mapped, slot_at, previous)

    def is_write_full(self) -> bool:
        """Whether no further entry fits."""
        return self.index_count >= self.entries

    def put_group(self, group: Sequence[IndexEntry], start: int) -> int:
        """Store `group[start:]` as far as there is room; returns the position of the first entry not stored.

        The header in the file follows once, at the end of the group. Raises OSError, with nothing stored, when the disk
        has no room.
        """
        first = count = self.index_count
        stop = min(len(group), start + max(0, self.entries - count))
        if start >= stop:
            return start
        slots = self.slots
        entry_at = HEADER_SIZE + slots * SLOT_SIZE + count * ENTRY_SIZE
        entries_end = entry_at + (stop - start) * ENTRY_SIZE
        if entries_end > self._reserved:
            self._reserve(entry_at, entries_end)
        mapped = self._map
        read_slot = _SLOT.unpack_from
        write_slot = _SLOT.pack_into
        write_entry = _ENTRY.pack_into
        begin = self.begin_timestamp
        used = self.hash_slot_count
        diff_of: int | None = None
        diff = 0
        try:
            for key_hash, physical_offset, timestamp in group[start:stop]:
                if timestamp != diff_of:
                    diff = min(max(0, (timestamp - begin) // 1000), _MAX_INT) if begin > 0 else 0
                    diff_of = timestamp
                slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
                (previous,) = read_slot(mapped, slot_at)
                if not 0 < previous <= count:
                    previous = 0
                    used += 1
                write_entry(mapped, entry_at, key_hash, physical_offset, diff, previous)
                write_slot(mapped, slot_at, count)
                if count <= 1:
                    # Only now: the first entry's difference is still that to the end of the file before.
                    self.begin_physical_offset = physical_offset
                    self.begin_timestamp = begin = timestamp
                    diff_of = None
                count += 1
                self.index_count = count
                entry_at += ENTRY_SIZE
        finally:
            self.hash_slot_count = used
            if count > first:
                _, self.end_physical_offset, self.end_timestamp = group[start + count - first - 1]
            self._write_header()
        return stop

    def _reserve(self, entries_from: int, entries_to: int) -> None:
        """Have the disk keep room for the slots and a stretch of entries: storing into a mapped hole of a full disk
        would be a signal and the end of the process.
        """
        if not self._reserved:
            self._file_system.allocate(self._descriptor, 0, HEADER_SIZE + self.slots * SLOT_SIZE)
        reserved = min(max(entries_to, entries_from + _RESERVE_STEP), self._size)
        self._file_system.allocate(self._descriptor, entries_from, reserved - entries_from)
        self._reserved = reserved

    def _write_header(self) -> None:
        # In this order, for the process may end at any point: what is counted has its beginning, a message behind the end is
        # put again, one before it never.
        _LONG.pack_into(self._map, 0, self.begin_timestamp)
        _LONG.pack_into(self._map, 16, self.begin_physical_offset)
        _COUNT.pack_into(self._map, _COUNT_POSITION, self.index_count)
        _HEADER.pack_into(
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
        """Whether the file's messages and `begin_ms` to `end_ms` (both included) have times in common."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def select(self, offsets: list[int], key_hash: int, max_num: int, begin_ms: int, end_ms: int) -> None:
        """Append to `offsets` those of the hash, newest first, until there are `max_num` in it.

        Only entries stored from `begin_ms` to `end_ms`, by times known to the second. Other keys may have the same
        hash: the caller compares. Nothing is added when the file is closed; a damaged chain ends where it is damaged.
        """
        if not self.hold():
            return
        try:
            if self.index_count <= 1:
                # The slots may have no room on the disk yet, and a full one has none for reading them.
                return
            mapped = self._map
            entries_at = HEADER_SIZE + self.slots * SLOT_SIZE
            (number,) = _SLOT.unpack_from(mapped, HEADER_SIZE + key_hash % self.slots * SLOT_SIZE)
            # Read after the slot, so that it counts the entry the slot leads to.
            if number > self.index_count:
                return
            while number > 0 and len(offsets) < max_num:
                found, physical_offset, diff, previous = _ENTRY.unpack_from(mapped, entries_at + number * ENTRY_SIZE)
                if diff < 0:
                    return
                stored = self.begin_timestamp + diff * 1000
                if found == key_hash and begin_ms <= stored <= end_ms:
                    offsets.append(physical_offset)
                # Entries lead to older ones only; one that does not would send the search round for ever.
                if stored < begin_ms or previous >= number:
                    return
                number = previous
        except struct.error:
            _log.failure("index file {path} has a chain that leads out of it", path=self.path)
        finally:
            self.release()

    def flush(self) -> None:
        """Wait until all that was put is on the disk; nothing when the file is closed. Raises OSError."""
        if self.hold():
            try:
                self._file_system.fdatasync(self._descriptor)
                # A name that is lost takes the bytes with it.
                self._file_system.sync_dir(os.path.dirname(self.path))
            finally:
                self.release()

    def hold(self) -> bool:
        """Keep the mapping from going until `release`; False when it is closed already."""
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
        """Unmap, now or when the last reader has done. What was put stays in the file."""
        with self._lock:
            if not self._closed:
                self._closed = True
                if not self._users:
                    self._unmap()

    def destroy(self) -> None:
        """Close and delete the file. Raises OSError when it is there and cannot be deleted."""
        self.close()
        self._file_system.remove(self.path)

    def _unmap(self) -> None:
        self._map.close()
        self._file_system.close(self._descriptor)
