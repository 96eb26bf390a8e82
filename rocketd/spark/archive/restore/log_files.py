"""Writes files of a commit log from an archive, each record at its old offset. One file is one task."""

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketd.spark.archive.format.durable import sync_dir
from rocketd.spark.archive.format.layout import random_part
from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.parquet import raw_bytes
from rocketd.spark.archive.restore.fillers import NoRoomError, end_of_file, fillers
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.store.base.layout import END_OF_FILE_BLANK, offset_to_file_name

WINDOW = 32 * 1024 * 1024
"""Bytes of a file assembled in memory at once."""

_COLUMNS = ("commit_log_offset", "store_size", "store_time", "raw")

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogFileTask:
    """One file of the log: its first offset, its length, and the archive files that overlap it.

    `last` means no file follows, so the broker continues after the last record. The file is written in `staging`, on
    the same disk. So leftovers of a killed task are never in the `directory` of the log.
    """

    root: str
    staging: str
    directory: str
    begin: int
    size: int
    last: bool
    files: tuple[ArchiveFile, ...]
    selection: Selection


@dataclass(frozen=True, slots=True)
class LogFileMade:
    """The content of a log file: records, their bytes, bytes covered by fillers, and the last store time (ms)."""

    begin: int
    records: int
    bytes: int
    filled: int
    last_time: int


@dataclass
class _Rows:
    """Records by ascending offset; `data` holds them one after the other."""

    offset: Longs
    size: Longs
    time: Longs
    data: memoryview
    starts: Longs = field(init=False)

    def __post_init__(self) -> None:
        self.starts = np.concatenate(([0], np.cumsum(self.size[:-1]))) if len(self.size) else self.size

    def before(self, limit: int) -> tuple["_Rows", "_Rows | None"]:
        """Split into the rows that begin before an offset, and the others, if any."""
        count = int(np.searchsorted(self.offset, limit))
        if count == len(self.offset):
            return self, None
        cut = int(self.starts[count])
        return (
            _Rows(self.offset[:count], self.size[:count], self.time[:count], self.data[:cut]),
            _Rows(self.offset[count:], self.size[count:], self.time[count:], self.data[cut:]),
        )


def write_log_file(task: LogFileTask) -> LogFileMade:
    """Write one file. It is on the disk, under its final name, when this returns. Raises ArchiveError, OSError."""
    pa.set_cpu_count(1)
    name = offset_to_file_name(task.begin)
    temporary = os.path.join(task.staging, f"{name}-{random_part()}")
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, task.size)
        made = _Writer(fd, task).write()
        os.fsync(fd)
    except NoRoomError as error:
        os.unlink(temporary)
        raise ArchiveError(
            f"{error}: the archive's records do not fit into files of {task.size} bytes; "
            "give the broker's mappedFileSizeCommitLog with --commit-log-file-size"
        ) from None
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.rename(temporary, os.path.join(task.directory, name))
    sync_dir(task.directory)
    return made


class _Writer:
    """Writes one file from its beginning to its end."""

    def __init__(self, fd: int, task: LogFileTask) -> None:
        self._fd = fd
        self._task = task
        self._end = task.begin
        self._time = 0
        self._records = self._bytes = self._filled = 0

    def write(self) -> LogFileMade:
        task = self._task
        for parts in _windows(task):
            self._write_window(parts)
        limit = task.begin + task.size
        if not task.last:
            self._put(*end_of_file(self._end, limit))
            self._filled += limit - self._end
        return LogFileMade(task.begin, self._records, self._bytes, self._filled, self._time)

    def _write_window(self, parts: list[_Rows]) -> None:
        """Write consecutive records of the log, and the fillers between them."""
        offset = np.concatenate([part.offset for part in parts])
        order = np.argsort(offset, kind="stable")
        offset = offset[order]
        ends = offset + np.concatenate([part.size for part in parts])[order]
        begin, end = int(offset[0]), int(ends[-1])
        if end > self._task.begin + self._task.size - END_OF_FILE_BLANK:
            raise NoRoomError(f"the record at {int(offset[-1])} of the commit log reaches to {end}")
        before = np.concatenate(([self._end], ends[:-1]))
        if (offset < before).any():
            at = int(offset[np.argmax(offset < before)])
            raise ArchiveError(
                f"the archive has two records at offset {at} of one commit log: it is of several brokers"
            )
        time = np.concatenate([part.time for part in parts])[order]
        buffer = memoryview(bytearray(end - begin))
        for part in parts:
            data, position = part.data, 0
            for at, size in zip((part.offset - begin).tolist(), part.size.tolist(), strict=True):
                buffer[at : at + size] = data[position : position + size]
                position += size
            self._bytes += position
        for row in np.flatnonzero(offset > before).tolist():
            gap_begin, gap_end = int(before[row]), int(offset[row])
            self._filled += gap_end - gap_begin
            for at, piece in fillers(gap_begin, gap_end, int(time[row])):
                if at >= begin:
                    buffer[at - begin : at - begin + len(piece)] = piece
                else:
                    self._put(at, piece)
        self._put(begin, buffer)
        self._end = end
        self._time = max(self._time, int(time.max()))
        self._records += len(offset)

    def _put(self, offset: int, data: bytes | memoryview) -> None:
        view = memoryview(data)
        position = offset - self._task.begin
        while view:
            done = os.pwrite(self._fd, view, position)
            view, position = view[done:], position + done


def _windows(task: LogFileTask) -> Iterator[list[_Rows]]:
    """Yield the file's records in windows of limited memory; each part is in order of offset."""
    sources = [_Source(task, file) for file in task.files]
    heap = [(source.next, number) for number, source in enumerate(sources) if source.advance()]
    heapq.heapify(heap)
    while heap:
        limit = heap[0][0] + WINDOW
        parts = []
        while heap and heap[0][0] < limit:
            _, number = heapq.heappop(heap)
            source = sources[number]
            parts += source.take(limit)
            if source.next >= 0:
                heapq.heappush(heap, (source.next, number))
        yield parts


class _Source:
    """The wanted records of one archive file that belong to the log file, by offset."""

    def __init__(self, task: LogFileTask, file: ArchiveFile) -> None:
        self._task = task
        self._file = file
        self._batches = self._rows()
        self._held: _Rows | None = None
        self._last = -1

    @property
    def next(self) -> int:
        """The offset of the next record, or -1."""
        return -1 if self._held is None else int(self._held.offset[0])

    def advance(self) -> bool:
        """Load the next records. Return whether there are any."""
        self._held = next(self._batches, None)
        return self._held is not None

    def take(self, limit: int) -> list[_Rows]:
        """Return the records that begin before an offset."""
        taken = []
        while self._held is not None and self.next < limit:
            part, self._held = self._held.before(limit)
            taken.append(part)
            if self._held is None:
                self.advance()
        return taken

    def _rows(self) -> Iterator[_Rows]:
        task = self._task
        begin, end = task.begin, task.begin + task.size
        for batch in task.selection.read(task.root, self._file, _COLUMNS, {"commit_log_offset": (begin, end)}):
            offset = batch.column("commit_log_offset").to_numpy()
            if offset[0] <= self._last or (np.diff(offset) <= 0).any():
                raise ArchiveError(
                    f"{self._file.path}: offsets of the commit log do not ascend with those of the queue"
                )
            self._last = int(offset[-1])
            yield _Rows(
                offset,
                batch.column("store_size").to_numpy().astype(np.int64),
                batch.column("store_time").cast(pa.int64()).to_numpy() // 1000,
                raw_bytes(batch.column("raw")),
            )
