"""A Parquet file, written sequentially and only once, with encodings suited to messages."""

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rocketd.spark.archive.format.crc32 import Crc32
from rocketd.spark.archive.format.layout import PARQUET, random_part

ROW_GROUP_BYTES = 16 * 1024 * 1024
ZSTD_LEVEL = 1

_REPEATING = ("broker", "topic", "queue_id", "sys_flag", "flag", "tags", "tag_hash", "born_host", "store_host")
"""Columns with few values: only for these a dictionary saves space."""
_ASCENDING = ("queue_offset", "commit_log_offset", "store_time", "born_time", "store_size")
"""Columns of numbers close to each other: the differences are stored."""
_BIG = ("raw", "body", "properties_raw", "properties")
"""Columns without statistics: least and greatest value are never queried."""


class HashingFile:
    """A new file written from its beginning to its end, with the CRC-32 of its content."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._crc32 = Crc32()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write all of a buffer and return its length."""
        view = memoryview(data).cast("B")
        self._crc32.update(view)
        done = 0
        while done < len(view):
            done += os.write(self._fd, view[done:])
        self.size += done
        return done

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def flush(self) -> None:
        """Do nothing: no data is buffered."""

    def readable(self) -> bool:
        """Return False: the file is only written."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False: the file is written sequentially."""
        return False

    def sync(self) -> str:
        """Wait until everything is on the disk. Return the CRC-32 as hexadecimal digits."""
        os.fsync(self._fd)
        return self._crc32.hexdigest()

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self.closed = True
            os.close(self._fd)


def open_writer(sink: HashingFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a Parquet writer with encodings suited to messages, and zstd."""
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    numbers = [name for name in _ASCENDING if name in flat and _is_number(schema.field(name).type)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=[name for name in _REPEATING if name in flat],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in flat if name not in _BIG],
        # Otherwise readers would take constants, which are passed as dictionaries, for dictionary columns.
        store_schema=False,
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


class Output:
    """One file being written."""

    def __init__(self, root: str, directory: str, schema: pa.Schema) -> None:
        """Create the file under a unique name, in an existing directory within the archive."""
        self.random = random_part()
        self.path = os.path.join(directory, self.random + PARQUET)
        self._sink = HashingFile(os.path.join(root, self.path))
        self._writer = open_writer(self._sink, schema)
        self._schema = schema
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self.rows = 0

    @property
    def size(self) -> int:
        """The bytes written so far."""
        return self._sink.size

    def add(self, batch: pa.RecordBatch, size: int) -> None:
        """Add a batch whose records have `size` bytes."""
        self._pending.append(batch)
        self._pending_bytes += size
        self.rows += batch.num_rows
        if self._pending_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._pending = []
            self._pending_bytes = 0

    def finish(self) -> str:
        """Write the rest and wait until everything is on the disk. Return the file's CRC-32."""
        self._flush()
        self._writer.close()
        crc32 = self._sink.sync()
        self._sink.close()
        return crc32

    def abandon(self) -> None:
        """Close the file as it is."""
        self._sink.close()
