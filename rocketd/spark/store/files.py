"""The files of a store directory, opened for reading beside a broker that may be writing them.

Sizes are those of the files, whatever the broker's settings. Queue files are read on demand. Log files are mapped, and
the maps are kept for the next range read by the same process.
"""

import mmap
import os
import struct
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketd.spark.errors import StoreFilesError
from rocketd.spark.records.parse import ENTRY
from rocketd.store.base.layout import (
    CONSUME_QUEUE_ENTRY,
    CONSUME_QUEUE_UNIT,
    FILLER_SIZE,
    MESSAGE_MAGIC,
    is_mapped_file_name,
)

Entries = npt.NDArray[Any]
"""Entries of a queue: an array of `ENTRY`."""

_RECORD = struct.Struct(">ii")
_MAX_MAPS = 32
_FILLERS_AT_ONCE = 1 << 14

_maps: OrderedDict[tuple[str, int, int], mmap.mmap] = OrderedDict()


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file of the log or of a queue: the offset of its first byte, its length, and its path."""

    begin: int
    size: int
    path: str

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.begin + self.size

    def read(self, position: int, size: int) -> bytes | None:
        """Return bytes from a position in the file on, possibly fewer than requested, or None if the file is gone."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(error) from error
        try:
            parts = []
            while size > 0 and (part := os.pread(descriptor, min(size, 1 << 30), position)):
                parts.append(part)
                position += len(part)
                size -= len(part)
            return b"".join(parts)
        except OSError as error:
            raise unreadable(error) from error
        finally:
            os.close(descriptor)

    def map(self) -> mmap.mmap | None:
        """Map the whole file into memory, or return None if it is gone. All readers in this process share the map."""
        try:
            with open(self.path, "rb") as file:
                stat = os.fstat(file.fileno())
                key = (self.path, stat.st_size, stat.st_ino)
                held = _maps.pop(key, None) or mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise unreadable(error, self.path) from error
        _maps[key] = held
        if len(_maps) > _MAX_MAPS:
            # A map is closed when the last array made from it is freed.
            _maps.popitem(last=False)
        return held


def forget_deleted(row: "FileRow") -> None:
    """Drop the maps of files that were deleted from their directory: a held map keeps the disk space in use."""
    there = {file.path for file in row.files}
    for key in [key for key in _maps if os.path.dirname(key[0]) in row.directories and key[0] not in there]:
        _maps.pop(key, None)


def unreadable(error: Exception, path: str = "") -> StoreFilesError:
    """Return the error for files that cannot be read."""
    name = getattr(error, "filename", None) or path or "the store"
    cause = getattr(error, "strerror", None) or str(error)
    return StoreFilesError(f"{name} cannot be read: {cause}")


def files_in(directory: str) -> list[StoreFile]:
    """Return the mapped files of a directory, in order; none if the directory does not exist. Raises StoreFilesError."""
    found = []
    try:
        with os.scandir(directory) as names:
            for name in names:
                if is_mapped_file_name(name.name):
                    try:
                        size = name.stat().st_size
                    except FileNotFoundError:  # deleted during the scan
                        continue
                    if size:
                        found.append(StoreFile(int(name.name), size, name.path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(error) from error
    return sorted(found, key=lambda file: file.begin)


def _in_order(files: list[StoreFile]) -> list[StoreFile]:
    """Merge files of several directories into one row.

    If two have the same name, Apache's broker left one of them unused.
    """
    found: dict[int, StoreFile] = {}
    for file in files:
        other = found.get(file.begin)
        if other is None or not any(other.read(0, _RECORD.size) or b""):
            found[file.begin] = file
        elif any(file.read(0, _RECORD.size) or b""):
            raise StoreFilesError(
                f"{other.path} and {file.path} are the same part of the commit log: move one of them away"
            )
    return [found[begin] for begin in sorted(found)]


class FileRow:
    """The files of a log or a queue, as of the last scan. Those of a log may lie in several directories."""

    def __init__(self, *directories: str) -> None:
        self.directories = directories
        if len(directories) == 1:
            self.files = files_in(directories[0])
        else:
            self.files = _in_order([file for directory in directories for file in files_in(directory)])
        self._begins = [file.begin for file in self.files]

    @property
    def begin(self) -> int:
        """The offset of the first existing byte, 0 without files."""
        return self.files[0].begin if self.files else 0

    @property
    def end(self) -> int:
        """The offset after the last byte of the last file, 0 without files."""
        return self.files[-1].end if self.files else 0

    def find(self, offset: int) -> StoreFile | None:
        """Return the file that holds an offset, or None."""
        at = bisect_right(self._begins, offset) - 1
        if at < 0 or offset >= self.files[at].end:
            return None
        return self.files[at]

    def read(self, offset: int, size: int) -> bytes | None:
        """Return bytes from an offset on, all in one file, or None if they are missing."""
        file = self.find(offset)
        if file is None or offset + size > file.end:
            return None
        data = file.read(offset - file.begin, size)
        return data if data is not None and len(data) == size else None

    def holders(self, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return for each of these pieces the index of the file that holds all of it, or -1."""
        if not self.files:
            return np.full(len(offsets), -1, np.int64)
        numbers = np.searchsorted(np.array(self._begins, np.int64), offsets, "right") - 1
        ends = np.array([file.end for file in self.files], np.int64)
        outside = (numbers < 0) | (offsets + sizes > ends[numbers])
        numbers[outside] = -1
        return numbers


class QueueEntries:
    """The entries of one queue."""

    def __init__(self, directory: str) -> None:
        self._row = FileRow(directory)

    def entry(self, number: int) -> tuple[int, int, int]:
        """Return physical offset, size and tags code of one entry; zeros if it does not exist."""
        data = self._row.read(number * CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT)
        return (0, 0, 0) if data is None else CONSUME_QUEUE_ENTRY.unpack(data)

    def written(self) -> tuple[int, int]:
        """Return the number of the first entry, not counting fillers, and the number after the last."""
        end = 0
        for file in reversed(self._row.files):
            first = file.begin // CONSUME_QUEUE_UNIT
            numbers = range(first, file.end // CONSUME_QUEUE_UNIT)
            count = bisect_left(numbers, True, key=lambda number: self.entry(number)[1] <= 0)
            end = first + count
            if count:
                break
        begin = -(-self._row.begin // CONSUME_QUEUE_UNIT)
        while begin < end and self.entry(begin)[1] == FILLER_SIZE:
            some = self.entries(begin, min(end, begin + _FILLERS_AT_ONCE))["size"] != FILLER_SIZE
            begin += int(np.argmax(some)) if some.any() else len(some)
        return begin, end

    def first_where(self, begin: int, end: int, wanted: Callable[[int], bool | None]) -> int:
        """Return the first number from `begin` on for which `wanted` holds; `end` if there is none.

        If `wanted` holds for a number, it must hold for all later ones. A result of None says nothing about the
        neighbours of a number, and that number is never returned.
        """
        low, high = begin, end
        while low < high:
            number = middle = (low + high) // 2
            while number < high and (answer := wanted(number)) is None:
                number += 1
            if number == high or answer:
                high = middle
            else:
                low = number + 1
        while low < end and wanted(low) is None:
            low += 1
        return low

    def bounds(self, log: FileRow) -> tuple[int, int]:
        """Return the number of the first entry whose record is in the log, and the number after the last one."""
        begin, end = self.written()
        # Records are deleted from the front of the log, file by file. The last records of a log may be lost in a crash.
        end = begin + _bisect_end(end - begin, lambda at: self._has_record(log, begin + at))
        return self.first_where(begin, end, lambda number: self._is_within(log, number)), end

    def _is_within(self, log: FileRow, number: int) -> bool | None:
        """Tell whether an entry points to a part of the log that is not deleted. None for a filler."""
        offset, size, _ = self.entry(number)
        return None if size == FILLER_SIZE else offset >= log.begin

    def _has_record(self, log: FileRow, number: int) -> bool:
        """Tell whether an entry's record is in the log, or was until its file was deleted."""
        offset, size, _ = self.entry(number)
        if size == FILLER_SIZE or 0 <= offset < log.begin:
            return True
        return size > 0 and log.read(offset, _RECORD.size) == _RECORD.pack(size, MESSAGE_MAGIC)

    def entries(self, begin: int, end: int) -> Entries:
        """Return the entries from one number up to another; zeros for entries whose file is gone."""
        result = np.zeros(max(0, end - begin), ENTRY)
        for file in self._row.files:
            first = max(begin, -(-file.begin // CONSUME_QUEUE_UNIT))
            last = min(end, file.end // CONSUME_QUEUE_UNIT)
            if first < last:
                data = file.read(first * CONSUME_QUEUE_UNIT - file.begin, (last - first) * CONSUME_QUEUE_UNIT)
                got = np.frombuffer(data or b"", ENTRY, len(data or b"") // CONSUME_QUEUE_UNIT)
                result[first - begin : first - begin + len(got)] = got
        return result


def _bisect_end(count: int, good: Callable[[int], bool]) -> int:
    """Return how many numbers from 0 on are good, if all numbers before a good one are good.

    The last number is tested first.
    """
    if not count or good(count - 1):
        return count
    return bisect_left(range(count), True, key=lambda at: not good(at))
