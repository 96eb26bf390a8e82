"""One fixed-length file, mapped for reading. Here are the files of the log; `queue_file` has those of consume queues.

Counterpart: `MappedFile` (Apache). Readers get views of the mapping. A view keeps the mapping alive, so a file is never
unmapped under a reader, even if its name is removed. Positions are bytes from the start of the file.

Threads: one thread appends, any thread reads below `wrote_position`, one thread flushes. A third thread may destroy a
file that is full and flushed.
"""

import mmap
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable

from rocketd.store.base.filesystem import IFileSystem

PAGE_SIZE = 4096

WARM_STEP = 256 * PAGE_SIZE
"""Bytes warmed at a time, about a millisecond of work. In between, `warm` checks whether to stop."""


class MappedFile(ABC):
    """Common part of log files and queue files.

    - `wrote_position`: the next append goes here; readers see the bytes before it.
    - `flushed_position`: the bytes before it are on disk.
    - `store_timestamp`: store time in ms of the last append.
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
        """Return a weak reference to the mapping.

        It gives None after the last view is gone. Only then is the disk space of a removed file free.
        """
        return weakref.ref(self.view.obj)

    @abstractmethod
    def append(self, data: bytes) -> None:
        """Store at `wrote_position` and advance it. Raises OSError if the disk is full; the position is unchanged then."""

    def end_file(self, filler: bytes) -> None:
        """Append the filler and mark the file as full."""
        self.append(filler)
        self.wrote_position = self.file_size

    def set_positions(self, position: int) -> None:
        """Set both positions to the end found by recovery: the data before it is on disk."""
        self.wrote_position = position
        self.flushed_position = position

    def select(self, position: int, size: int) -> memoryview | None:
        """Return a view of `size` bytes, None if fewer were appended."""
        end = position + size
        if size < 0 or end > self.wrote_position or not self.available:
            return None
        return self.view[position:end]

    def flush(self) -> int:
        """Return when the data appended before the call is on disk. The result is the flushed position."""
        position = self.wrote_position
        self._sync()
        self.flushed_position = position
        return position

    def forget_flushed(self, position: int) -> None:
        """Treat the bytes from a position on as not flushed."""
        self.flushed_position = min(self.flushed_position, max(0, position))

    def clear_from(self, position: int) -> None:
        """Zero everything after a position, so remains of a crash never become valid."""
        fd = self._fs.open(self.path)
        try:
            self._fs.clear_from(fd, position)
        finally:
            self._fs.close(fd)

    def destroy(self) -> None:
        """Remove the file. Views stay readable. Raises OSError if it cannot be removed; it stays usable then."""
        self.remove_name()
        self.retire()

    def remove_name(self) -> None:
        """Remove the name of the file. The file stays readable. Raises OSError."""
        self._fs.remove(self.path)

    def retire(self) -> None:
        """Stop giving out views and close the descriptor: the name is gone."""
        self.available = False
        self.close()

    @abstractmethod
    def _sync(self) -> None:
        """Return when all bytes of the file are on disk."""

    @abstractmethod
    def close(self) -> None:
        """Close the descriptor. The mapping goes with its last view."""


class LogFile(MappedFile):
    """A file appended to by pwrite, which faults in no pages and reports a full disk as an error."""

    def __init__(self, fs: IFileSystem, path: str, file_from_offset: int, file_size: int) -> None:
        """Open the file, creating it if it is missing. Raises OSError."""
        super().__init__(fs, path, file_from_offset, file_size)
        self._fd = fs.open(path, file_size)
        self._closed = False
        try:
            self.map: mmap.mmap = fs.map(self._fd, file_size, False)
            """The mapping itself. Its slices are copies."""
            self._view = memoryview(self.map)
        except BaseException:
            fs.close(self._fd)
            self._closed = True
            raise
        self._pwrite = fs.pwrite

    @property
    def view(self) -> memoryview:
        """The whole mapping, read-only."""
        return self._view

    def append(self, data: bytes) -> None:
        """Write at `wrote_position` and advance it. Raises OSError, with the position unchanged, after an incomplete
        write.
        """
        position = self.wrote_position
        done = self._pwrite(self._fd, data, position)
        size = len(data)
        while done < size:
            taken = self._pwrite(self._fd, data[done:], position + done)
            if taken <= 0:
                raise OSError(f"{self.path}: only {done} of {size} bytes were written")
            done += taken
        self.wrote_position = position + size

    def warm(self, hurry: Callable[[], bool], flush_bytes: int) -> None:
        """Reserve the disk space of an empty file and load its pages into memory as zeros.

        Ends early, with the space reserved, as soon as `hurry` returns True. Written pages are flushed each
        `flush_bytes`; 0 means never. Raises OSError if the disk is full.
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
        """Close the descriptor. Must not run concurrently with append or flush."""
        if not self._closed:
            self._closed = True
            self._fs.close(self._fd)
