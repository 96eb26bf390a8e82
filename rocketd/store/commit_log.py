"""The commit log: all messages of all topics in the order they were stored.

Answers to Apache's `CommitLog`, its reading half; `append` writes it, `recover` finds its end after a stop.
"""

import os
import struct
from itertools import pairwise

from twisted.logger import Logger

from rocketd.store.allocate import AllocateMappedFileService
from rocketd.store.errors import StoreFileMissingError
from rocketd.store.filesystem import IFileSystem
from rocketd.store.layout import MESSAGE_MAGIC
from rocketd.store.log_paths import LogPaths
from rocketd.store.mapped_file import LogFile
from rocketd.store.mapped_file_queue import MappedFileQueue
from rocketd.store.multi_path import MultiPathFileQueue
from rocketd.store.record import MIN_RECORD_SIZE, store_timestamp_of

_log = Logger()

_BEGIN = struct.Struct(">ii")
_PHYSICAL_OFFSET = struct.Struct(">q")
_PHYSICAL_OFFSET_POSITION = 28


class CommitLog:
    """Files of the log. `load` and `next_file` belong to the storage thread; reading may be done by any thread.

    Offsets are bytes from the beginning of the log, which is the beginning of the first file ever written.
    """

    def __init__(self, fs: IFileSystem, paths: LogPaths | str, file_size: int) -> None:
        """`paths` are the directories, or the one."""
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
        """Map what is there; recovery must follow. Raises StoreFileSizeError, StoreFileMissingError,
        StoreFileTwiceError, OSError.
        """
        for directory in self.paths.writable:
            self._fs.makedirs(directory)
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
        """Offset of the first byte there is, -1 while nothing was ever written."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """Offset behind the last byte."""
        return self.queue.max_offset

    def avoid(self, full_paths: frozenset[str]) -> None:
        """Have new files made in other directories, if there are any. Any thread."""
        if isinstance(self.queue, MultiPathFileQueue):
            self.queue.full_paths = full_paths

    def next_file(self, first: int = 0) -> LogFile:
        """The file that can be appended to, made now where there is none or the last is full. Raises
        CreateMappedFileError.

        ``first`` is where the log begins when it has no file yet: that of a slave begins with its master's last file.
        """
        files = self.queue.files
        if files and files[-1].wrote_position < self.file_size:
            return files[-1]
        offset = files[-1].file_from_offset + self.file_size if files else first
        file = self.allocate.take(offset, offset + self.file_size)
        self.queue.add(file)
        return file

    def roll(self, offset: int) -> int:
        """Offset of the file behind the one that holds this offset."""
        return offset + self.file_size - offset % self.file_size

    def select(self, offset: int, size: int) -> memoryview | None:
        """View of `size` bytes at an offset, None when they are not there, not yet or no longer."""
        file = self.queue.find(offset)
        return None if file is None else file.select(offset - file.file_from_offset, size)

    def data_from(self, offset: int) -> memoryview | None:
        """View from an offset to the end of what was appended to its file; None where there is no such file."""
        file = self.queue.find(offset)
        if file is None:
            return None
        position = offset - file.file_from_offset
        return file.select(position, file.wrote_position - position)

    def record_at(self, offset: int) -> memoryview | None:
        """View of the record that starts at an offset; None where none does, which any client may ask for."""
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
        """Store time in ms of the record of this size at this offset, -1 where there is none."""
        record = self.select(offset, size)
        return -1 if record is None or size < MIN_RECORD_SIZE else store_timestamp_of(record)

    def sync_names(self) -> None:
        """Return when the names of all files are on the disk."""
        for directory in self.paths.writable:
            self._fs.sync_dir(directory)

    def data_ranges(self, file: LogFile, position: int) -> list[tuple[int, int]]:
        """Begins and ends of what a file holds from a position on, its holes left out."""
        return self._fs.data_ranges(file.path, position)

    def _make_file(self, offset: int) -> LogFile:
        file = self.queue.open_file(offset)
        # Before it is handed out: a flush of the file's bytes must not be worth nothing because its name is lost.
        self._fs.sync_dir(os.path.dirname(file.path))
        return file
