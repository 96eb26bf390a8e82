"""One fixed-length file of the log or of a consume queue, mapped for reading.

Answers to Apache's `MappedFile`. Readers get views of the mapping; a view keeps the mapping alive, so no file is
ever unmapped under a reader, whatever happens to its name. Positions are bytes from the start of the file.

Threads: one thread appends, any thread reads what lies before `wrote_position`, one thread flushes. A file that is
full and flushed may be destroyed by a third.
"""

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable

from rocketd.store.filesystem import IFileSystem

PAGE_SIZE = 4096

RESERVE_STEP = 4 * PAGE_SIZE
"""Disk space reserved at a time for a file that is written through its mapping."""

WARM_STEP = 256 * PAGE_SIZE
"""Bytes that are warmed at a time: about a millisecond, and as much between two looks at whether to go on."""


class MappedFile(ABC):
    """What log files and queue files have in common.

    `wrote_position` is where the next append goes and what readers may see, `flushed_position` what is on the disk.
    `store_timestamp` (ms) is that of the last append.
    """

    def __init__(self, fs: IFileSystem, path: str, file_from_offset: int, file_size: int) -> None:
        self._fs = fs
        self.path = path
        self.file_from_offset = file_from_offset
        self.file_size = file_size
        self.wrote_position = 0
        self.flushed_position = 0
        self.store_timestamp = 0
        self.available = True

    @property
    @abstractmethod
    def view(self) -> memoryview:
        """The whole mapping."""

    @property
    def full(self) -> bool:
        """Whether nothing more can be appended."""
        return self.wrote_position == self.file_size

    def mapping(self) -> Callable[[], object | None]:
        """Weak reference to the mapping: gives None once the last view of it is gone, and with a removed file its
        room on the disk.
        """
        return weakref.ref(self.view.obj)

    @abstractmethod
    def append(self, data: bytes) -> None:
        """Store at `wrote_position` and move it; raises OSError, without having moved it, when the disk has no room."""

    def end_file(self, filler: bytes) -> None:
        """Append the filler and declare the file full."""
        self.append(filler)
        self.wrote_position = self.file_size

    def set_positions(self, position: int) -> None:
        """Recovery found that what counts ends here, and that it is on the disk."""
        self.wrote_position = position
        self.flushed_position = position

    def select(self, position: int, size: int) -> memoryview | None:
        """View of `size` bytes, None where not so many were appended."""
        end = position + size
        if size < 0 or end > self.wrote_position or not self.available:
            return None
        return self.view[position:end]

    def flush(self) -> int:
        """Return when all that was appended before the call is on the disk; gives the position up to which it is."""
        position = self.wrote_position
        self._sync()
        self.flushed_position = position
        return position

    def forget_flushed(self, position: int) -> None:
        """Count nothing from a position on as flushed."""
        self.flushed_position = min(self.flushed_position, max(0, position))

    def clear_from(self, position: int) -> None:
        """Make everything behind a position zero, so that what a crash left there never counts again."""
        fd = self._fs.open(self.path)
        try:
            self._fs.clear_from(fd, position)
        finally:
            self._fs.close(fd)

    def destroy(self) -> None:
        """Remove the file; views of it stay readable. Raises OSError when it cannot be removed, and it stays usable."""
        self._fs.remove(self.path)
        self.retire()

    def retire(self) -> None:
        """Give out no more views, and the descriptor back: the name is gone."""
        self.available = False
        self.close()

    @abstractmethod
    def _sync(self) -> None:
        """Return when all bytes of the file are on the disk."""

    @abstractmethod
    def close(self) -> None:
        """Give the descriptor back; the mapping goes with its last view."""


class LogFile(MappedFile):
    """A file that is appended to by pwrite, which faults no pages in and reports a full disk as an error."""

    def __init__(self, fs: IFileSystem, path: str, file_from_offset: int, file_size: int) -> None:
        """Open the file, making it where it is missing. Raises OSError."""
        super().__init__(fs, path, file_from_offset, file_size)
        self._fd = fs.open(path, file_size)
        self._closed = False
        try:
            self._map = fs.map(self._fd, file_size, False)
            self._view = memoryview(self._map)
        except BaseException:
            fs.close(self._fd)
            self._closed = True
            raise
        self._pwrite = fs.pwrite

    @property
    def view(self) -> memoryview:
        """The whole mapping, read-only."""
        return self._view

    def find(self, data: bytes, begin: int, end: int) -> int:
        """Position of these bytes between two positions; -1 where they are not."""
        return self._map.find(data, begin, end)

    def append(self, data: bytes) -> None:
        """Write at `wrote_position` and move it; raises OSError, without having moved it, when not all could be
        written.
        """
        position = self.wrote_position
        done = self._pwrite(self._fd, data, position)
        size = len(data)
        while done < size:
            taken = self._pwrite(self._fd, data[done:], position + done)
            if taken <= 0:
                raise OSError(f"{self.path}: the disk took {done} of {size} bytes")
            done += taken
        self.wrote_position = position + size

    def warm(self, hurry: Callable[[], bool], flush_bytes: int) -> None:
        """Reserve the room of an empty file on the disk, and bring its pages into memory, as zeros.

        Ends early, with the room reserved, as soon as `hurry` says so. What was written is put on the disk each
        `flush_bytes`, 0 for never. Raises OSError when the disk has no room.
        """
        self._fs.allocate(self._fd, 0, self.file_size)
        zeros = bytes(WARM_STEP)
        position = flushed = 0
        while position < self.file_size and not hurry():
            position += self._pwrite(self._fd, zeros[: self.file_size - position], position)
            if flush_bytes and position - flushed >= flush_bytes:
                self._sync()
                flushed = position
        if flush_bytes and position > flushed:
            self._sync()

    def _sync(self) -> None:
        self._fs.fdatasync(self._fd)

    def close(self) -> None:
        """Give the descriptor back; must not run beside append or flush."""
        if not self._closed:
            self._closed = True
            self._fs.close(self._fd)


class QueueFile(MappedFile):
    """A file that is appended to through its mapping: the entries are so small that a system call for each would
    dominate.

    Space on the disk is reserved ahead of the mapping's use, for a store into a page that finds no room would be a
    fatal signal. No descriptor is kept open, since there are many such files.
    """

    def __init__(self, fs: IFileSystem, path: str, file_from_offset: int, file_size: int) -> None:
        """Open the file, making it and its directory where they are missing. Raises OSError."""
        super().__init__(fs, path, file_from_offset, file_size)
        self.first_create_in_queue = False
        # Nor is that of a file that is there: the process that made it may have been killed before it was.
        self._name_synced = False
        self._reserved = 0
        if not fs.exists(path):
            fs.makedirs(os.path.dirname(path))
        fd = fs.open(path, file_size)
        try:
            self._view = memoryview(fs.map(fd, file_size, True))
        finally:
            fs.close(fd)

    @property
    def view(self) -> memoryview:
        """The whole mapping."""
        return self._view

    def append(self, data: bytes) -> None:
        """Store at `wrote_position` and move it; raises OSError, with nothing stored, when the disk has no room."""
        position = self.wrote_position
        end = position + len(data)
        if end > self._reserved:
            self._reserve(position, end)
        self._view[position:end] = data
        self.wrote_position = end

    def clear_from(self, position: int) -> None:
        """Make everything behind a position zero; what was reserved there may be given back."""
        self._reserved = min(self._reserved, position)
        super().clear_from(position)

    def _reserve(self, position: int, end: int) -> None:
        size = min(max(RESERVE_STEP, end - position), self.file_size - position)
        fd = self._fs.open(self.path)
        try:
            self._fs.allocate(fd, position, size)
        finally:
            self._fs.close(fd)
        self._reserved = position + size

    def _sync(self) -> None:
        fd = self._fs.open(self.path)
        try:
            self._fs.fdatasync(fd)
        finally:
            self._fs.close(fd)
        if not self._name_synced:
            queue_dir = os.path.dirname(self.path)
            topic_dir = os.path.dirname(queue_dir)
            for directory in (queue_dir, topic_dir, os.path.dirname(topic_dir)):
                self._fs.sync_dir(directory)
            self._name_synced = True

    def close(self) -> None:
        """Nothing is held but the mapping, which goes with its last view."""
