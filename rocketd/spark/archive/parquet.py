"""Writes message batches into Parquet files of an archive, inside a task, and records the content of each file.

A new file begins with each day of store time, and once a file is large enough. Checksums are taken on the way, so that
nothing is read twice.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketd.spark.archive.archive import UncommittedFile
from rocketd.spark.archive.format.crc32 import Crc32
from rocketd.spark.archive.format.durable import make_dirs
from rocketd.spark.archive.format.layout import data_name, date_of, rows_name
from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.output import Output
from rocketd.spark.errors import DataLossError
from rocketd.spark.ranges import Queue

DEFAULT_MAX_FILE_BYTES = 512 * 1024 * 1024

OF_QUEUE = ("broker", "topic", "queue_id")
"""Columns that identify the queue, and so are constant within a file."""

_DAY_US = 86_400_000_000


class QueueFileWriter:
    """Writes the messages of one queue, in ascending order, into files of a staging directory.

    Call `add` for each batch, then `finish`. The files of a failed task are swept later.
    """

    def __init__(
        self,
        root: str,
        staging: str,
        schema: pa.Schema,
        queue: Queue,
        max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
        *,
        ordered: bool = True,
    ) -> None:
        """`staging` is a directory within the archive.

        Batches must have the columns of `schema`, except those of the queue.

        Unless `ordered`, a batch with lower offsets begins a new file.
        """
        self._root = root
        self._staging = staging
        self._schema = schema
        self._queue = queue
        self._max = max_file_bytes
        self._ordered = ordered
        self._output: Output | None = None
        self._staged: list[UncommittedFile] = []
        self._last = -1
        self._day = -1
        make_dirs(os.path.join(root, staging))

    def add(self, batch: pa.RecordBatch) -> None:
        """Write one batch. Raises DataLossError if its offsets do not ascend; OSError."""
        if not batch.num_rows:
            return
        offsets = batch.column("queue_offset").to_numpy()
        if (np.diff(offsets) <= 0).any() or (self._ordered and offsets[0] <= self._last):
            raise DataLossError(
                f"messages of {self._queue} came twice or out of order behind offset {self._last}; read them again"
            )
        if offsets[0] <= self._last:
            self._close()
        self._last = int(offsets[-1])
        days = batch.column("store_time").cast(pa.int64()).to_numpy() // _DAY_US
        for begin, end in _runs(days):
            day = int(days[begin])
            if self._output is not None and day != self._day:
                self._close()
            self._day = day
            self._put(batch.slice(begin, end - begin))

    def _put(self, batch: pa.RecordBatch) -> None:
        output = self._output
        if output is None:
            output = self._output = Output(self._root, self._staging, self._schema)
            self._facts = _Facts()
        size = self._facts.add(batch)
        output.add(self._complete(batch), size)
        if output.size >= self._max:
            self._close()

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the constant columns to a batch."""
        names = set(batch.schema.names)
        columns = [
            batch.column(field.name)
            if field.name in names
            else pa.repeat(pa.scalar(getattr(self._queue, field.name), field.type), batch.num_rows)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _close(self) -> None:
        output, self._output = self._output, None
        if output is None:
            return
        crc32 = output.finish()
        facts = self._facts
        queue = self._queue
        date = date_of(self._day * _DAY_US // 1000)
        path = data_name(queue.topic, date, queue.broker, queue.queue_id, facts.first, facts.last, output.random)
        file = ArchiveFile(path, output.rows, output.size, crc32, queue, *facts.values())
        self._staged.append(UncommittedFile(output.path, file))

    def finish(self) -> list[UncommittedFile]:
        """Close the last file, and return all files; they are on the disk."""
        self._close()
        return self._staged

    def abandon(self) -> None:
        """Close the open file and leave it."""
        if self._output is not None:
            self._output.abandon()


class _Facts:
    """The facts of a commit about the messages of one file."""

    def __init__(self) -> None:
        self.first = self.last = -1
        self._raw_bytes = 0
        self._crc32 = Crc32()
        self._log = [1 << 62, -1]
        self._time = [1 << 62, -1]

    def add(self, batch: pa.RecordBatch) -> int:
        """Add a batch, and return the number of bytes of its records."""
        offsets = batch.column("queue_offset")
        if self.first < 0:
            self.first = offsets[0].as_py()
        self.last = offsets[-1].as_py()
        raw = raw_bytes(batch.column("raw"))
        self._crc32.update(raw)
        self._raw_bytes += len(raw)
        position = batch.column("commit_log_offset").to_numpy()
        end = position + batch.column("store_size").to_numpy()
        self._log = [min(self._log[0], int(position.min())), max(self._log[1], int(end.max()))]
        extent = pc.min_max(batch.column("store_time").cast(pa.int64()))
        low, high = extent["min"].as_py() // 1000, extent["max"].as_py() // 1000
        self._time = [min(self._time[0], low), max(self._time[1], high)]
        return len(raw)

    def values(self) -> tuple[int, int, int, str, int, int, int, int]:
        """Return the fields of an ArchiveFile from `first` on."""
        return (
            self.first,
            self.last,
            self._raw_bytes,
            self._crc32.hexdigest(),
            self._log[0],
            self._log[1],
            self._time[0],
            self._time[1],
        )


def raw_bytes(column: pa.Array) -> memoryview:
    """Return all values of a binary column without nulls, one after the other, without copying."""
    buffers = column.buffers()
    wide = pa.types.is_large_binary(column.type)
    offsets = np.frombuffer(buffers[1], dtype=np.int64 if wide else np.int32)
    begin, end = int(offsets[column.offset]), int(offsets[column.offset + len(column)])
    return memoryview(buffers[2]).cast("B")[begin:end] if end > begin else memoryview(b"")


def _runs(values: "np.ndarray[Any, Any]") -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of equal values."""
    borders = np.flatnonzero(values[1:] != values[:-1]) + 1
    begin = 0
    for end in [*borders.tolist(), len(values)]:
        yield begin, end
        begin = end


def write_rows(root: str, staging: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[UncommittedFile]:
    """Write rows without a queue into one file of a staging directory. Without rows, no file is made."""
    make_dirs(os.path.join(root, staging))
    output: Output | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                output = output or Output(root, staging, schema)
                output.add(batch, batch.nbytes)
        if output is None:
            return []
        crc32 = output.finish()
    except BaseException:
        if output is not None:
            output.abandon()
        raise
    return [UncommittedFile(output.path, ArchiveFile(rows_name(output.random), output.rows, output.size, crc32))]
