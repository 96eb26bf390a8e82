"""The files of a stopped store, for reading only.

File sizes are taken from the files, so settings are not needed. Memory use does not depend on the size of the store: a
few log files are mapped at a time, and only some entries of a queue are held.
"""

import errno
import mmap
import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rocketd.store.base.errors import StoreFileTwiceError
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import (
    CONSUME_QUEUE_ENTRY,
    CONSUME_QUEUE_UNIT,
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    DEFAULT_CONSUME_QUEUE_FILE_SIZE,
    commit_log_dir,
    consume_queue_dir,
    index_dir,
    is_mapped_file_name,
)
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.record_scanner import RecordScanner
from rocketd.store.state.deletion_file import read_deletions
from rocketd.store.state.deletions import Deletions
from rocketd.store.state.last_stop import LastStop, read_last_stop

_MAPPED_FILES = 4
_CHUNK_ENTRIES = 200
_CHUNK = 1 << 16

Entry = tuple[int, int, int]
"""Physical offset, record size, tags code."""


class Segment(NamedTuple):
    """One file of the log or of a queue: its path, the offset of its first byte, its current length."""

    path: str
    offset: int
    size: int

    @property
    def end(self) -> int:
        """Offset after its last byte."""
        return self.offset + self.size


def segments_in(*directories: str) -> list[Segment]:
    """Return the mapped files of one directory, or of several as one run, by offset. Missing directories are empty.

    Of two files with the same name, the one with content is taken. Raises StoreFileTwiceError if both have content,
    OSError.
    """
    paths: dict[str, str] = {}
    for directory in directories:
        for name in _names(directory):
            path = os.path.join(directory, name)
            if not is_mapped_file_name(name) or not os.path.isfile(path):
                continue
            if name in paths and not _is_hole(paths[name]):
                if _is_hole(path):
                    continue
                raise StoreFileTwiceError(paths[name], path)
            paths[name] = path
    return [Segment(paths[name], int(name), os.stat(paths[name]).st_size) for name in sorted(paths)]


def _is_hole(path: str) -> bool:
    return not data_end(path, os.stat(path).st_size)


def common_size(segments: Sequence[Segment], default: int) -> int:
    """Return the intended length of a directory's files: the distance of their names, or else the most frequent length."""
    steps = Counter(after.offset - before.offset for before, after in pairwise(segments))
    sizes = Counter(segment.size for segment in segments if segment.size)
    for size, _ in sizes.most_common():
        if all(step % size == 0 for step in steps):
            return size
    return min(steps) if steps else default


def data_end(path: str, size: int) -> int:
    """Return the position after the last nonzero byte of a file. Reads from the end and skips holes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for begin, end in reversed(_extents(fd, size)):
            while end > begin:
                at = max(begin, (end - 1) // _CHUNK * _CHUNK)
                kept = len(os.pread(fd, end - at, at).rstrip(b"\0"))
                if kept:
                    return at + kept
                end = at
        return 0
    finally:
        os.close(fd)


def _extents(fd: int, size: int) -> list[tuple[int, int]]:
    """Return (begin, end) of the parts of a file that are not holes."""
    found = []
    end = 0
    try:
        while end < size:
            begin = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, begin, os.SEEK_HOLE)
            found.append((begin, end))
    except OSError as error:
        if error.errno != errno.ENXIO:
            return [(0, size)]
    return found


class LogReader:
    """Maps the files of the log for reading. Keeps the most recently used mappings."""

    def __init__(self, directory: str | Sequence[str], file_size: int | None = None) -> None:
        """`directory` may be a sequence; the attribute `directory` is then its first item, used in names.

        `file_size` is the intended size of the files; the default is derived from the files.
        """
        self.directories = (directory,) if isinstance(directory, str) else tuple(directory)
        self.directory = self.directories[0]
        self.segments = segments_in(*self.directories)
        self.file_size = file_size or common_size(self.segments, DEFAULT_COMMIT_LOG_FILE_SIZE)
        self._mapped: OrderedDict[str, mmap.mmap] = OrderedDict()
        self._data_ends: dict[str, int] = {}
        self._scanner = RecordScanner()

    @property
    def min_offset(self) -> int:
        """Offset of the first byte present, 0 without files."""
        return self.segments[0].offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """Offset after the last byte of the last file, 0 without files."""
        return self.segments[-1].end if self.segments else 0

    def bytes_of(self, segment: Segment) -> mmap.mmap | bytes:
        """Return the bytes of a file, an mmap unless the file is empty."""
        mapping = self._mapped.get(segment.path)
        if mapping is None:
            if not segment.size:
                return b""
            fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapping = mmap.mmap(fd, segment.size, access=mmap.ACCESS_READ)
            finally:
                os.close(fd)
            self._mapped[segment.path] = mapping
            if len(self._mapped) > _MAPPED_FILES:
                self._mapped.popitem(last=False)
        self._mapped.move_to_end(segment.path)
        return mapping

    def data_end(self, segment: Segment) -> int:
        """Return the position after the last nonzero byte of a file."""
        end = self._data_ends.get(segment.path)
        if end is None:
            end = self._data_ends[segment.path] = data_end(segment.path, segment.size)
        return end

    def find(self, offset: int) -> Segment | None:
        """Return the file with an offset."""
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].end <= offset:
                low = middle + 1
            else:
                high = middle
        if low < len(self.segments) and self.segments[low].offset <= offset:
            return self.segments[low]
        return None

    def record_at(self, offset: int) -> DispatchRequest | None:
        """Return the record that begins at an offset, regardless of its CRC, None if none does."""
        segment = self.find(offset)
        if segment is None:
            return None
        view = memoryview(self.bytes_of(segment))
        found = self._scanner.scan(view, offset - segment.offset, segment.size, segment.offset, False, 1).requests
        return found[0] if found else None


class QueueReader:
    """Reads entries of one consume queue. Keeps no file open and holds about 200 entries."""

    __slots__ = ("_at", "_chunk", "begin", "directory", "end", "file_size", "queue_id", "segments", "topic")

    def __init__(self, topic: str, queue_id: int, directory: str) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.segments = segments_in(directory)
        self.file_size = common_size(self.segments, DEFAULT_CONSUME_QUEUE_FILE_SIZE)
        self.begin = self.segments[0].offset // CONSUME_QUEUE_UNIT if self.segments else 0
        """Queue offset of the first entry of the first file."""
        self.end = self.begin
        """Queue offset after the last nonzero entry, valid after `find_end`."""
        self._chunk = b""
        self._at = 0

    def find_end(self) -> None:
        """Find the last entry by reading back from the end of the last file."""
        for segment in reversed(self.segments):
            end = data_end(segment.path, segment.size)
            if end:
                self.end = -(-(segment.offset + end) // CONSUME_QUEUE_UNIT)
                return

    def path_of(self, index: int) -> tuple[str, int]:
        """Return the file of an entry and the position in it, or the directory and 0 without such a file."""
        offset = index * CONSUME_QUEUE_UNIT
        for segment in self.segments:
            if segment.offset <= offset < segment.end:
                return segment.path, offset - segment.offset
        return self.directory, 0

    def entry(self, index: int) -> Entry | None:
        """Return one entry as stored in its file, None without a file for it."""
        position = (index - self._at) * CONSUME_QUEUE_UNIT
        if not 0 <= position <= len(self._chunk) - CONSUME_QUEUE_UNIT:
            if not self._load(index):
                return None
            position = 0
        physical_offset, size, tags_code = CONSUME_QUEUE_ENTRY.unpack_from(self._chunk, position)
        return physical_offset, size, tags_code

    def _load(self, index: int) -> bool:
        path, position = self.path_of(index)
        if path == self.directory:
            return False
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._chunk = os.pread(fd, _CHUNK_ENTRIES * CONSUME_QUEUE_UNIT, position)
        finally:
            os.close(fd)
        self._at = index
        return len(self._chunk) >= CONSUME_QUEUE_UNIT

    def first_from(self, physical_offset: int, end: int) -> int:
        """Return the queue offset before `end` of the first entry with a record at or after a physical offset, else
        `end`.
        """
        low, high = self.begin, end
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is not None and entry[0] >= physical_offset:
                high = middle
            else:
                low = middle + 1
        return low


class FileSizes(NamedTuple):
    """Sizes from the settings: files of log and queues in bytes, slots and entries of an index file."""

    log: int
    queue: int
    index_slots: int
    index_entries: int


class StoppedStore:
    """The content of one store directory. The caller ensures that no broker writes to it."""

    def __init__(
        self, root: str, commit_log: str | Sequence[str] | None = None, sizes: FileSizes | None = None
    ) -> None:
        """`commit_log` is the log's directory, or several, if it is outside the store. `sizes` are from the settings,
        if known.

        Raises OSError.
        """
        self.root = root
        self.sizes = sizes
        self.log = LogReader(commit_log or commit_log_dir(root), sizes.log if sizes else None)
        self.queue_root = consume_queue_dir(root)
        self.index_root = index_dir(root)
        self.last_stop = read_last_stop(RealFileSystem(), root)
        noted = read_deletions(RealFileSystem(), root) or Deletions()
        self.deletions = noted.within(self.log.min_offset, self.log.max_offset)
        self.extended = os.path.exists(os.path.join(root, "consumequeue_ext"))

    @property
    def abnormal(self) -> bool:
        """Whether the store was not stopped cleanly."""
        return self.last_stop is not LastStop.CLEAN

    def is_store(self) -> bool:
        """Return whether the directory has any part of a store."""
        return any(os.path.isdir(path) for path in (*self.log.directories, self.queue_root, self.index_root))

    def queues(self) -> list[QueueReader]:
        """Return a reader for every queue, by topic and queue id."""
        found = [
            QueueReader(topic, int(name), os.path.join(self.queue_root, topic, name))
            for topic in _names(self.queue_root)
            for name in sorted(_names(os.path.join(self.queue_root, topic)), key=lambda name: (len(name), name))
            if name.isascii() and name.isdigit()
        ]
        if self.sizes is not None:
            for queue in found:
                queue.file_size = self.sizes.queue
            return found
        # One setting holds for all of them: use the most frequent size, in case a file was cut.
        sizes = Counter(segment.size for queue in found for segment in queue.segments if segment.size)
        for queue in found:
            if len(queue.segments) <= 1 and sizes:
                queue.file_size = sizes.most_common(1)[0][0]
        return found

    def index_paths(self) -> list[str]:
        """Return the paths of the index files by age."""
        return [
            os.path.join(self.index_root, name) for name in _names(self.index_root) if name.isascii() and name.isdigit()
        ]


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
