"""The writers that Spark calls: `write` in tasks, `commit` and `abort` in a process beside the driver.

Spark makes a writer once for a batch write, and pickles it; for a stream it makes one to be pickled to the tasks and
another for each commit. So a batch write's id can be made here, and a stream's ids come with the commit messages.
"""

import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.sink import halves
from rocketd.spark.sink.cluster_outlet import ClusterOutlet
from rocketd.spark.sink.exact import JOB, EffectivelyOnce, sink_folder
from rocketd.spark.sink.halves import Prepared, Preparing
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.options import AT_LEAST_ONCE, EFFECTIVELY_ONCE, TRANSACTIONAL, WriteOptions
from rocketd.spark.sink.plain import AtLeastOnce
from rocketd.spark.sink.rows import RowReader
from rocketd.spark.sink.staging import Staged, Staging, check_reached, mark_folder
from rocketd.spark.sink.write_columns import check_columns
from rocketd.spark.wire.unique_keys import unique_keys

_KEYS_AT_ONCE = 256
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
"""Local properties that Spark gives the tasks of a stream."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What became of a partition. `sink` and `query` are those of an effectively-once write, `label` is
    that of a transactional one.
    """

    partition: int
    rows: int
    staged: Staged | None = None
    prepared: Prepared | None = None
    sink: str = ""
    query: str = ""
    label: str = ""


class _Writing:
    """What both writers do. `job` names a batch write, `mark` the staging folder."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._job = ""
        self._mark = ""
        check_columns(_arrow_schema(schema), options)
        if not options.stream:
            self._job = JOB + (options.job_id or uuid.uuid4().hex)
        if options.delivery == EFFECTIVELY_ONCE:
            self._mark = mark_folder(options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send or stage the rows of a partition."""
        pa.set_cpu_count(1)
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        messages = self._messages(iterator, f"partition {partition}")
        options = self._options
        if options.delivery == AT_LEAST_ONCE:
            plain = AtLeastOnce(options, ClusterOutlet(options), partition)
            plain.deliver(messages)
            return Written(partition, plain.sent)
        if options.delivery == TRANSACTIONAL:
            label = self._job or f"{context.getLocalProperty(_QUERY_ID)}:{context.getLocalProperty(_BATCH_ID)}"
            prepared = Preparing(options, ClusterOutlet(options), label, partition).deliver(messages)
            return Written(partition, len(prepared), prepared=prepared, label=label)
        query = context.getLocalProperty(_QUERY_ID) or ""
        sink = options.sink_id or query
        batch = self._job or context.getLocalProperty(_BATCH_ID) or ""
        if not sink or not batch:
            raise SparkError("this version of Spark does not tell the tasks of a stream their query and batch")
        check_reached(options.staging, self._mark, socket.gethostname())
        attempt = f"{partition}-{context.attemptNumber()}"
        staged = Staging(sink_folder(options, sink)).write(batch, attempt, messages)
        return Written(partition, staged.rows, staged, sink=sink, query="" if self._job else query)

    def _messages(self, iterator: Iterator[pa.RecordBatch], where: str) -> Iterator[Outgoing]:
        reader: RowReader | None = None
        for batch in iterator:
            if reader is None:
                reader = RowReader(batch.schema, self._options, _new_keys().__next__, where)
            yield from reader.read(batch)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: str) -> None:
        written = _in_order(messages)
        if self._options.delivery == TRANSACTIONAL:
            prepared = [one.prepared for one in written if one.prepared is not None]
            halves.commit(self._options, prepared)
            self._roll_back_lost(written)
        elif self._options.delivery == EFFECTIVELY_ONCE and written:
            staged = [one.staged for one in written if one.staged is not None]
            self._sink(written[0]).commit(batch, staged)

    def _abort(self, messages: Sequence[WriterCommitMessage | None], batch: str) -> None:
        written = _in_order(messages)
        if self._options.delivery == TRANSACTIONAL:
            halves.roll_back(self._options, [one.prepared for one in written if one.prepared is not None])
            self._roll_back_lost(written)
        elif self._options.delivery == EFFECTIVELY_ONCE and written:
            self._sink(written[0]).abort(batch, [one.staged for one in written if one.staged is not None])

    def _roll_back_lost(self, written: Sequence[Written]) -> None:
        if written:
            prepared = [one.prepared for one in written if one.prepared is not None]
            halves.roll_back_lost(self._options, written[0].label, prepared)

    def _sink(self, one: Written) -> EffectivelyOnce:
        return EffectivelyOnce(self._options, one.sink, one.query, lambda: ClusterOutlet(self._options))


class RocketdBatchWriter(_Writing, DataSourceArrowWriter):
    """Writes a data frame."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Show or send what the tasks have made ready."""
        self._commit(messages, self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks have made ready."""
        self._abort(messages, self._job)


class RocketdStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Show or send what the tasks of a batch have made ready, once for each batch id."""
        self._commit(messages, str(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Drop what the tasks of a batch have made ready."""
        self._abort(messages, str(batchId))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketdBatchWriter:
    """The writer of a data frame with this schema. Raises OptionError."""
    if overwrite:
        raise OptionError("a topic is only ever appended to: write with mode('append'), not 'overwrite'")
    return RocketdBatchWriter(WriteOptions.parse(options), schema)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketdStreamWriter:
    """The writer of a stream with this schema. Raises OptionError."""
    if overwrite:
        raise OptionError("a topic is only ever appended to: write with outputMode('append'), not 'complete'")
    return RocketdStreamWriter(WriteOptions.parse(options, stream=True), schema)


def _new_keys() -> Iterator[str]:
    while True:
        yield from unique_keys(_KEYS_AT_ONCE)


def _in_order(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """The messages of partitions that were written, by their numbers: Spark gives them as tasks end."""
    written = sorted((one for one in messages if isinstance(one, Written)), key=lambda one: one.partition)
    if len({one.partition for one in written}) < len(written):
        raise SparkError(
            "Spark handed over two attempts of one partition as done: committing both would write rows twice"
        )
    return written


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # needs pyarrow, which the module above has

    return to_arrow_schema(schema, timezone="UTC")
