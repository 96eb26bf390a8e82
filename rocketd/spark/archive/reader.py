"""Reading an archive: the committed files, for any program that reads Parquet, and messages in order for this package.

::

    spark.read.parquet(*archive_files("archive"))
    pyarrow.dataset.dataset(archive_files("archive"))
    duckdb.read_parquet(archive_files("archive"))

Columns missing in the archive are parsed from the raw record.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.format.crc32 import Crc32
from rocketd.spark.archive.format.layout import data_dir
from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.format.settings import MESSAGES
from rocketd.spark.archive.parquet import raw_bytes
from rocketd.spark.columns import COLUMNS, arrow_schema, check_columns
from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue
from rocketd.spark.records.parse import parse_frames

_CHUNK = 1 << 20


def archive_files(root: str, topics: Iterable[str] | None = None) -> list[str]:
    """Return the paths of an archive's committed files, in the order of their commits; optionally of some topics only.

    Raises ArchiveError.
    """
    archive = Archive.open(root)
    return [archive.path_of(file) for file in _selected(archive.files, topics)]


def dataset(root: str, topics: Iterable[str] | None = None) -> ds.Dataset:
    """Return the same files as an Arrow dataset. Raises ArchiveError."""
    files = archive_files(root, topics)
    if files:
        return ds.dataset(files, format="parquet")
    names = Archive.open(root).settings.names
    if not set(names) <= set(COLUMNS):
        raise ArchiveError(f"{root} has no rows yet, which would tell the types of its columns")
    return ds.dataset(arrow_schema(names).empty_table())


def _selected(files: Iterable[ArchiveFile], topics: Iterable[str] | None) -> list[ArchiveFile]:
    wanted = None if topics is None else set(topics)
    return [file for file in files if wanted is None or (file.queue is not None and file.queue.topic in wanted)]


def by_queue(files: Iterable[ArchiveFile]) -> dict[Queue, list[ArchiveFile]]:
    """Group files by queue and sort them by offset; queues in order. Raises ArchiveError for a file without a queue."""
    found: dict[Queue, list[ArchiveFile]] = {}
    for file in files:
        if file.queue is None:
            raise ArchiveError("the archive holds rows of a stream without queues and offsets: it has no messages")
        found.setdefault(file.queue, []).append(file)
    return {queue: sorted(found[queue], key=lambda file: file.first) for queue in sorted(found)}


def open_parquet(root: str, file: ArchiveFile) -> pq.ParquetFile:
    """Open a file of an archive. Raises ArchiveError if it is missing or not a Parquet file."""
    path = os.path.join(root, file.path)
    try:
        return pq.ParquetFile(path, memory_map=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise ArchiveError(f"{path}, which the archive's manifest names, cannot be read: {error}") from None


Limits = Mapping[str, tuple[int, int]]
"""For columns of numbers, or of times in microseconds: the least wanted value, and the end."""


def read_messages(
    root: str,
    file: ArchiveFile,
    columns: Sequence[str],
    limits: Limits | None = None,
    *,
    decompress: bool = True,
    batch_rows: int = 8192,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a file by offset, as batches of these columns of `rocketd.spark.columns`.

    Without `decompress`, compressed bodies stay compressed, unless the archive has a column of decompressed ones.
    Raises ArchiveError if the file is damaged.
    """
    check_columns(columns)
    parquet = open_parquet(root, file)
    limits = limits or {}
    # A stream's archive may have a column with a name from COLUMNS and another type.
    there = {
        field.name
        for field in parquet.schema_arrow
        if field.name in COLUMNS and field.type == COLUMNS[field.name].arrow
    }
    parsed = [name for name in columns if name not in there]
    asked = {*columns, *limits, *(("raw",) if parsed else ())}
    schema = arrow_schema(columns)
    try:
        for batch in parquet.iter_batches(
            batch_rows,
            row_groups=_row_groups(parquet, limits),
            columns=[name for name in parquet.schema_arrow.names if name in asked],
        ):
            batch = _wanted(batch, limits)
            if batch.num_rows:
                made = _parsed(batch, file, parsed, decompress) if parsed else None
                arrays = [made.column(n) if made is not None and n in parsed else batch.column(n) for n in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (OSError, pa.ArrowInvalid) as error:
        raise ArchiveError(f"{os.path.join(root, file.path)} is damaged: {error}") from None


def _row_groups(parquet: pq.ParquetFile, limits: Limits) -> list[int]:
    """Return the row groups that may have rows within the limits, according to the file's statistics."""
    metadata = parquet.metadata
    kept = list(range(metadata.num_row_groups))
    # Parquet counts the leaves: a map column has two.
    places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
    for name, (low, end) in limits.items():
        at = places[name]
        for group in list(kept):
            known = metadata.row_group(group).column(at).statistics
            told = known is not None and known.has_min_max and isinstance(known.min, int)
            if told and (known.max < low or known.min >= end):
                kept.remove(group)
    return kept


def _wanted(batch: pa.RecordBatch, limits: Limits) -> pa.RecordBatch:
    keep = np.ones(batch.num_rows, dtype=bool)
    for name, (low, end) in limits.items():
        values = batch.column(name).cast(pa.int64()).to_numpy()
        keep &= (values >= low) & (values < end)
    return batch if keep.all() else batch.filter(pa.array(keep))


def _parsed(batch: pa.RecordBatch, file: ArchiveFile, columns: Sequence[str], decompress: bool) -> pa.RecordBatch:
    raw = batch.column("raw")
    lengths = np.asarray(pa.compute.binary_length(raw), dtype=np.int64)
    starts = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    return parse_frames(
        raw_bytes(raw), starts, columns, broker=file.queue.broker if file.queue else "", decompress=decompress
    )


def check_file(root: str, file: ArchiveFile) -> None:
    """Read a whole file back and compare it with its commit. Raises ArchiveError that names the file."""
    path = os.path.join(root, file.path)
    found = _crc32_of(path)
    if found != file.crc32:
        raise ArchiveError(f"{path} is damaged: its CRC-32 is {found}, the manifest says {file.crc32}")
    parquet = open_parquet(root, file)
    if parquet.metadata.num_rows != file.rows:
        raise ArchiveError(f"{path} has {parquet.metadata.num_rows} rows, the manifest says {file.rows}")
    if file.queue is None:
        return
    crc32, offsets = Crc32(), []
    for batch in parquet.iter_batches(columns=["queue_offset", "raw"]):
        crc32.update(raw_bytes(batch.column("raw")))
        offsets.append(batch.column("queue_offset").to_numpy())
    if crc32.hexdigest() != file.raw_crc32:
        raise ArchiveError(f"{path}: the records in it are not those that were written; archive them again")
    numbers = np.concatenate(offsets)
    if (np.diff(numbers) <= 0).any() or (int(numbers[0]), int(numbers[-1])) != (file.first, file.last):
        raise ArchiveError(f"{path}: the offsets in it are not those that the manifest says")


def _crc32_of(path: str) -> str:
    crc32 = Crc32()
    try:
        with open(path, "rb") as file:
            while data := file.read(_CHUNK):
                crc32.update(data)
    except OSError as error:
        raise ArchiveError(f"{path}, which the archive's manifest names, cannot be read: {error}") from None
    return crc32.hexdigest()


def uncommitted(root: str) -> list[str]:
    """Return paths below `data` without a commit: leftovers of a killed writer, or files of a commit in progress."""
    named = {file.path for file in Archive.open(root).files}
    found = []
    for folder, _, names in os.walk(data_dir(root)):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path for path in found if path not in named)


def check_is_messages(archive: Archive) -> None:
    """Raise ArchiveError unless the archive holds whole messages."""
    if archive.settings.kind != MESSAGES:
        raise ArchiveError(f"{archive.root} holds rows of a stream, not whole messages: it cannot be restored or sent")


def config_of(archive: Archive) -> dict[str, Mapping[str, object]]:
    """Return the latest facts about each broker. Tables are merged by entry, because a commit covers only some topics."""
    found: dict[str, dict[str, object]] = {}
    for commit in archive.commits:
        for broker, said in commit.brokers.items():
            known = found.setdefault(broker, {})
            for name, value in said.items():
                before = known.get(name)
                known[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return dict(found)
