"""The commit log: all messages of all topics in the order of storing.

Counterpart: the reading half of `CommitLog` (Apache). `append` writes the log, `recovery` finds its end after a stop.
"""

import os
import struct
from itertools import pairwise

from twisted.logger import Logger

from rocketd.store.base.errors import StoreFileMissingError
from rocketd.store.base.filesystem import IFileSystem, make_safe_dir
from rocketd.store.base.layout import MESSAGE_MAGIC
from rocketd.store.format.record import MIN_RECORD_SIZE, store_timestamp_of
from rocketd.store.log.allocate import AllocateMappedFileService
from rocketd.store.log.log_paths import LogPaths
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.log.multi_path import MultiPathFileQueue

_log = Logger()

_BEGIN = struct.Struct(">ii")
_PHYSICAL_OFFSET = struct.Struct(">q")
_PHYSICAL_OFFSET_POSITION = 28


class CommitLog:
    """Files of the log. `load` and `next_file` belong to the storage thread. Any thread may read.

    Offsets are bytes from the beginning of the log, the beginning of the first file ever written.
    """

    def __init__(self, fs: IFileSystem, paths: LogPaths | str, file_size: int) -> None:
        """`paths` are the directories, or the only one."""
        self._fs = fs
        self.paths = LogPaths(paths, (paths,)) if isinstance(paths, str) else paths
        self.file_size = file_size
        self.queue = (
            MappedFileQueue(fs, self.paths.text, file_size, LogFile)
            if self.paths.all == (self.paths.text,)
            else MultiPathFileQueue(fs, self.paths, file_size)
        )
        self.allocate = AllocateMappedFileService(self._make_file, self.queue.path_of)

    def load(self) -> None:
        """Map the existing files. Recovery must follow.

        Raises:

        - StoreFileSizeError if the length of a file differs from the settings,
        - StoreFileMissingError if a file in the middle is missing,
        - StoreFileTwiceError if two directories have the same file,
        - OSError.
        """
        for directory in self.paths.writable:
            make_safe_dir(self._fs, directory)
        self.queue.load()
        used = {os.path.dirname(file.path) for file in self.queue.files}
        for directory in self.paths.read_only:
            if directory not in used:
                _log.warn("{path} of readOnlyCommitLogStorePaths has no file of the log", path=directory)
        for before, after in pairwise(self.queue.files):
            missing = before.file_from_offset + self.file_size
            if after.file_from_offset != missing:
                raise StoreFileMissingError(self.queue.path_of(missing), before.path, after.path)

    @property
    def min_offset(self) -> int:
        """Offset of the first byte present, -1 before the first write."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """Offset after the last byte."""
        return self.queue.max_offset

    def avoid(self, full_paths: frozenset[str]) -> None:
        """Create new files in other directories, if there are any. Any thread."""
        if isinstance(self.queue, MultiPathFileQueue):
            self.queue.full_paths = full_paths

    def next_file(self, first: int = 0) -> LogFile:
        """Return the file to append to, created now if there is none or the last one is full.

        `first` is the start of a log without files: a slave's log begins with its master's last file. Raises
        CreateMappedFileError.
        """
        files = self.queue.files
        if files and files[-1].wrote_position < self.file_size:
            return files[-1]
        offset = files[-1].file_from_offset + self.file_size if files else first
        file = self.allocate.take(offset, offset + self.file_size)
        self.queue.add(file)
        return file

    def roll(self, offset: int) -> int:
        """Return the offset of the file after the one with this offset."""
        return offset + self.file_size - offset % self.file_size

    def select(self, offset: int, size: int) -> memoryview | None:
        """Return a view of `size` bytes at an offset, None if they are not present."""
        file = self.queue.find(offset)
        return None if file is None else file.select(offset - file.file_from_offset, size)

    def data_from(self, offset: int) -> memoryview | None:
        """Return a view from an offset to the end of the data in its file, None without such a file."""
        file = self.queue.find(offset)
        if file is None:
            return None
        position = offset - file.file_from_offset
        return file.select(position, file.wrote_position - position)

    def record_at(self, offset: int) -> memoryview | None:
        """Return a view of the record that starts at an offset, None if none does. Clients may ask for any offset."""
        file = self.queue.find(offset)
        if file is None:
            return None
        position = offset - file.file_from_offset
        if position + MIN_RECORD_SIZE > file.wrote_position:
            return None
        size, magic = _BEGIN.unpack_from(file.view, position)
        if magic != MESSAGE_MAGIC or size < MIN_RECORD_SIZE:
            return None
        if _PHYSICAL_OFFSET.unpack_from(file.view, position + _PHYSICAL_OFFSET_POSITION)[0] != offset:
            return None
        return file.select(position, size)

    def store_timestamp_at(self, offset: int, size: int) -> int:
        """Return the store time in ms of the record at this offset, -1 if no record of this size is there."""
        record = self.select(offset, size)
        return -1 if record is None or size < MIN_RECORD_SIZE else store_timestamp_of(record)

    def sync_names(self) -> None:
        """Return when the names of all files are on disk."""
        for directory in self.paths.writable:
            self._fs.sync_dir(directory)

    def data_ranges(self, file: LogFile, position: int) -> list[tuple[int, int]]:
        """Return (begin, end) of the data of a file from a position on, without its holes."""
        return self._fs.data_ranges(file.path, position)

    def _make_file(self, offset: int) -> LogFile:
        file = self.queue.open_file(offset)
        # Before it is used: flushed bytes are worthless if the name of their file is lost.
        self._fs.sync_dir(os.path.dirname(file.path))
        return file
