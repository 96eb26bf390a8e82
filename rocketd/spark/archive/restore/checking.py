"""Compares the log of a restored store with the archive, queue by queue and byte for byte."""

import hashlib
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.parquet import raw_bytes
from rocketd.spark.archive.reader import by_queue
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue
from rocketd.store.base.layout import offset_to_file_name


@dataclass(frozen=True, slots=True)
class CheckTask:
    """One queue to compare with the archive: the directory of the log, and the queue's files."""

    root: str
    directory: str
    log_file_size: int
    queue: Queue
    files: tuple[ArchiveFile, ...]
    selection: Selection


@dataclass(frozen=True, slots=True)
class QueueRestored:
    """A queue in the restored log: its offsets, messages, and the SHA-256 of all records in the order of the queue."""

    queue: Queue
    first: int
    last: int
    messages: int
    bytes: int
    sha256: str


def queue_tasks(
    files: Iterable[ArchiveFile], log_file_size: int, root: str, selection: Selection, directory: str
) -> list[CheckTask]:
    """Return a task for each queue of the files; `directory` is that of the log."""
    return [
        CheckTask(root, directory, log_file_size, queue, tuple(some), selection)
        for queue, some in by_queue(files).items()
    ]


def check_queue(task: CheckTask) -> QueueRestored:
    """Compare the records in the log with the archive's, byte for byte. Raises ArchiveError if they differ."""
    pa.set_cpu_count(1)
    log = _Log(task.directory, task.log_file_size)
    found, wanted = hashlib.sha256(), hashlib.sha256()
    first, last, messages, size = -1, -1, 0, 0
    columns = ("queue_offset", "commit_log_offset", "store_size", "raw")
    try:
        for file in task.files:
            for batch in task.selection.read(task.root, file, columns):
                raw = raw_bytes(batch.column("raw"))
                wanted.update(raw)
                offsets = batch.column("commit_log_offset").to_pylist()
                for offset, length in zip(offsets, batch.column("store_size").to_pylist(), strict=True):
                    found.update(log.record(offset, length))
                if found.digest() != wanted.digest():
                    raise ArchiveError(f"{task.queue}: the records in the restored log differ from {file.path}")
                first = batch.column("queue_offset")[0].as_py() if first < 0 else first
                last = max(last, batch.column("queue_offset")[-1].as_py())
                messages += batch.num_rows
                size += len(raw)
    finally:
        log.close()
    return QueueRestored(task.queue, first, last, messages, size, found.hexdigest())


class _Log:
    """Reads records of a log by offset, and keeps the last file mapped."""

    def __init__(self, directory: str, file_size: int) -> None:
        self._directory = directory
        self._size = file_size
        self._begin = -1
        self._map: mmap.mmap | None = None

    def record(self, offset: int, size: int) -> bytes:
        begin = offset - offset % self._size
        if begin != self._begin or self._map is None:
            self.close()
            with open(os.path.join(self._directory, offset_to_file_name(begin)), "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._begin = begin
        return self._map[offset - begin : offset - begin + size]

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
