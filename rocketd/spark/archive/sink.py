"""The sink for Spark's writes into an archive: tasks write Parquet, and each batch becomes a commit.

``df.writeStream.format("rocketd").option("archive", DIR)``. All columns of the stream are kept. If they form whole
messages, files are laid out by topic, day and queue, and commits record ranges. If they are ranges
(`rocketd.spark.range_rows`), the tasks read the messages themselves, bypassing Spark's row format.

A batch repeated after a crash is recognized by the id of the query and its number. Files staged the first time are
never seen.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rocketd.spark.archive.archive import Archive, UncommittedFile, clear_staging, discard
from rocketd.spark.archive.format.layout import random_part, settings_path, staging_dir
from rocketd.spark.archive.format.manifest import Commit
from rocketd.spark.archive.format.settings import MESSAGES, ROWS, Settings, is_of_messages
from rocketd.spark.archive.overlaps import check_distinct, check_none_twice
from rocketd.spark.archive.parquet import DEFAULT_MAX_FILE_BYTES, OF_QUEUE, QueueFileWriter, write_rows
from rocketd.spark.columns import arrow_schema
from rocketd.spark.errors import ArchiveError, OptionError
from rocketd.spark.range_rows import RANGE, RangeRowReader, are_ranges
from rocketd.spark.ranges import Queue, QueueRange, joined

SINK_OPTIONS = ("archive", "sinkId", "maxFileBytes", "columns")

_OF_SPARK = ("path", "checkpointlocation", "queryname")
"""Options that Spark adds to a stream, in lower case."""

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"

_open: dict[tuple[str, int], Archive] = {}
"""Open archives of the committing process, which serves all batches of a query run.

The key is the directory and the inode of the settings file, because an archive may be deleted and recreated.
"""


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """The staged files of a task, and their writer and batch."""

    writer: str
    batch: int
    staged: tuple[UncommittedFile, ...]


@dataclass(frozen=True)
class _Target:
    """The target of a write: the archive, the schema of the rows, and the schema archived. Sent to tasks by pickle."""

    root: str
    sink_id: str
    max_file_bytes: int
    source: pa.Schema
    archived: pa.Schema
    kind: str


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool = False
) -> DataSourceStreamArrowWriter:
    """Return the writer of a stream with this schema. Raises OptionError, ArchiveError."""
    _refuse_overwriting(overwrite, "outputMode('append')")
    return ArchiveStreamWriter(_prepared(options, schema))


def _refuse_overwriting(overwrite: bool, instead: str) -> None:
    if overwrite:
        raise OptionError(f"an archive is only added to, and this write replaces its content: use {instead}")


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> DataSourceArrowWriter:
    """Return the writer of a DataFrame with this schema: one commit for all of it. Raises OptionError, ArchiveError."""
    _refuse_overwriting(overwrite, "mode('append')")
    return ArchiveBatchWriter(_prepared(options, schema))


def _prepared(options: Mapping[str, str], schema: StructType) -> _Target:
    from pyspark.sql.pandas.types import to_arrow_schema

    given = {name.lower(): value for name, value in options.items() if name.lower() not in _OF_SPARK}
    known = {name.lower(): name for name in SINK_OPTIONS}
    for name in given:
        if name not in known:
            raise OptionError(f"option {name} is not one of a write to an archive; there are {', '.join(SINK_OPTIONS)}")
    root = os.path.abspath(given["archive"])
    text = given.get("maxfilebytes", str(DEFAULT_MAX_FILE_BYTES))
    if not text.isdigit() or not int(text):
        raise OptionError(f"option maxFileBytes is {text!r}; give a number of bytes")
    source = plain_schema(to_arrow_schema(schema, timezone="UTC"))
    if are_ranges(source):
        settings = Archive.wanted_settings(root, given.get("columns"))
    elif "columns" in given:
        raise OptionError(
            f"option columns is for a read of ranges (column {RANGE} alone); this one has the columns "
            f"{', '.join(source.names)}, and all of them are archived"
        )
    else:
        settings = Settings.of_schema(source, MESSAGES if is_of_messages(source) else ROWS)
    Archive.ensure(root, settings)
    archived = arrow_schema(settings.names) if are_ranges(source) else source
    return _Target(root, given.get("sinkid", ""), int(text), source, archived, settings.kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema as archived: times in UTC, texts with 32-bit offsets, and every column nullable."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind


class _Writer:
    """The common part of both writers; sent by pickle to tasks and to the committing process."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._root = target.root
        self._sink_id = target.sink_id

    def _stage(self, writer: str, batch: int, batches: Iterable[pa.RecordBatch]) -> StagedMessage:
        pa.set_cpu_count(1)
        staging = os.path.relpath(os.path.join(staging_dir(self._root, writer), str(batch)), self._root)
        target = self._target
        plain = (one.cast(target.source) for one in batches)
        if target.kind == ROWS:
            return StagedMessage(writer, batch, tuple(write_rows(self._root, staging, target.archived, plain)))
        stage = self._stage_ranges if are_ranges(target.source) else self._stage_messages
        return StagedMessage(writer, batch, tuple(stage(staging, plain)))

    def _stage_ranges(self, staging: str, batches: Iterable[pa.RecordBatch]) -> Iterator[UncommittedFile]:
        names = [name for name in self._target.archived.names if name not in OF_QUEUE]
        reader = RangeRowReader()
        try:
            for batch in batches:
                for row in batch.column(RANGE).to_pylist():
                    queue, messages = reader.read(row, names)
                    files = self._files(staging, queue)
                    try:
                        for one in messages:
                            files.add(one)
                        yield from files.finish()
                    except BaseException:
                        files.abandon()
                        raise
        finally:
            reader.close()

    def _stage_messages(self, staging: str, batches: Iterable[pa.RecordBatch]) -> Iterator[UncommittedFile]:
        queues: dict[Queue, QueueFileWriter] = {}
        try:
            for batch in batches:
                for queue, rows in parted(batch):
                    if queue not in queues:
                        queues[queue] = self._files(staging, queue, ordered=False)
                    queues[queue].add(rows)
            for queue in sorted(queues):
                yield from queues[queue].finish()
        except BaseException:
            for files in queues.values():
                files.abandon()
            raise

    def _files(self, staging: str, queue: Queue, *, ordered: bool = True) -> QueueFileWriter:
        target = self._target
        return QueueFileWriter(self._root, staging, target.archived, queue, target.max_file_bytes, ordered=ordered)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        told = [one for one in messages if isinstance(one, StagedMessage)]
        if not told:
            return
        staged = [file for one in told for file in one.staged]
        known = self._root, os.stat(settings_path(self._root)).st_ino
        archive = _open.get(known)
        if archive is None:
            archive = _open[known] = Archive.open(self._root)
        check_none_twice(self._root, staged)
        made = Commit(told[0].writer, time.time_ns() // 1_000_000, ranges=_ranges(staged), batch=batch)
        archive.commit(made, staged)
        if batch is None:
            clear_staging(self._root, told[0].writer)
        else:
            self._clear(told[0].writer, batch)

    def _clear(self, writer: str, batch: int) -> None:
        """Remove files staged by losing attempts of this batch and of earlier ones."""
        directory = staging_dir(self._root, writer)
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            if name.isdigit() and int(name) <= batch:
                shutil.rmtree(os.path.join(directory, name), ignore_errors=True)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for one in messages:
            if isinstance(one, StagedMessage):
                discard(self._root, one.staged)


class ArchiveStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Stages files in the tasks of a micro-batch, and commits them under its number."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one partition, as a task."""
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty(_BATCH_ID)
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        sink = self._sink_id or query
        if batch is None or sink is None:
            raise ArchiveError("Spark does not tell which batch of which query this is; give the option sinkId")
        return self._stage(f"stream-{sink}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Commit the staged files, unless the batch is committed already."""
        self._commit(messages, batch_id)

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Remove the staged files."""
        self._abort(messages)


class ArchiveBatchWriter(_Writer, DataSourceArrowWriter):
    """Stages files in the tasks of a job, and commits all of them at once."""

    def __init__(self, target: _Target) -> None:
        super().__init__(target)
        self._writer = f"batch-{target.sink_id or random_part()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage the rows of one partition, as a task."""
        return self._stage(self._writer, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the staged files."""
        self._commit(messages, 0 if self._sink_id else None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files."""
        self._abort(messages)
        clear_staging(self._root, self._writer)


def parted(batch: pa.RecordBatch) -> Iterator[tuple[Queue, pa.RecordBatch]]:
    """Split the rows of a batch by queue, each part in order of offset.

    Raises ArchiveError for a row that is not a whole message, and for a duplicate row.
    """
    for name in ("topic", "broker", "queue_id", "queue_offset", "commit_log_offset", "store_size", "store_time", "raw"):
        if batch.column(name).null_count:
            raise ArchiveError(
                f"a row has no {name}: it is not a message; leave the column raw out to archive mere rows"
            )
    codes = np.zeros(batch.num_rows, np.int64)
    for name in ("topic", "broker", "queue_id"):
        encoded = pc.dictionary_encode(batch.column(name))
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        offsets = batch.column("queue_offset").to_numpy()[rows]
        if (np.diff(offsets) < 0).any():
            order = np.argsort(offsets, kind="stable")
            rows, offsets = rows[order], offsets[order]
        part = batch if len(rows) == batch.num_rows and (np.diff(rows) == 1).all() else batch.take(pa.array(rows))
        queue = Queue(*(part.column(name)[0].as_py() for name in ("topic", "broker", "queue_id")))
        check_distinct(queue, offsets)
        yield queue, part


def _ranges(staged: Iterable[UncommittedFile]) -> tuple[QueueRange, ...]:
    """Return for each queue the offsets from the first to the last message of a batch."""
    extents: dict[Queue, tuple[int, int]] = {}
    for one in staged:
        queue = one.file.queue
        if queue is not None:
            first, last = extents.get(queue, (one.file.first, one.file.last))
            extents[queue] = min(first, one.file.first), max(last, one.file.last)
    return tuple(joined(QueueRange(queue, first, last + 1) for queue, (first, last) in extents.items()))


def options_of(root: str, **others: Any) -> dict[str, str]:
    """Return the options of a write to an archive, for `DataStreamWriter.options`."""
    return {"archive": root, **{name: str(value) for name, value in others.items()}}
