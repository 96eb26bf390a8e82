"""The writers that Spark calls: `write` in tasks, `commit` and `abort` in a process beside the driver.

For a batch write, Spark creates one writer and pickles it. For a stream, it creates one for the tasks and another for
each commit. So the id of a batch write can be generated here, while the ids of a stream come with the commit messages.
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
from rocketd.spark.sink import transactional
from rocketd.spark.sink.cluster_output import ClusterOutput
from rocketd.spark.sink.effectively_once.delivery import JOB, EffectivelyOnce, sink_folder
from rocketd.spark.sink.effectively_once.staging import StagedFile, Staging, check_reached, mark_folder
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.options import AT_LEAST_ONCE, EFFECTIVELY_ONCE, TRANSACTIONAL, WriteOptions
from rocketd.spark.sink.plain import AtLeastOnce
from rocketd.spark.sink.rows import RowReader
from rocketd.spark.sink.transactional import Prepared, Preparing
from rocketd.spark.sink.write_columns import check_columns
from rocketd.spark.wire.unique_keys import unique_keys

_KEYS_AT_ONCE = 256
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
"""Local properties that Spark gives the tasks of a stream."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of a partition. `sink` and `query` belong to effectively-once writes, `label` to transactional ones."""

    partition: int
    rows: int
    staged: StagedFile | None = None
    prepared: Prepared | None = None
    sink: str = ""
    query: str = ""
    label: str = ""


class _Writing:
    """The common part of both writers. `job` names a batch write, `mark` the staging folder."""

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
            plain = AtLeastOnce(options, ClusterOutput(options), partition)
            plain.deliver(messages)
            return Written(partition, plain.sent)
        if options.delivery == TRANSACTIONAL:
            label = self._job or f"{context.getLocalProperty(_QUERY_ID)}:{context.getLocalProperty(_BATCH_ID)}"
            prepared = Preparing(options, ClusterOutput(options), label, partition).deliver(messages)
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
            transactional.commit(self._options, prepared)
            self._roll_back_lost(written)
        elif self._options.delivery == EFFECTIVELY_ONCE and written:
            staged = [one.staged for one in written if one.staged is not None]
            self._sink(written[0]).commit(batch, staged)

    def _abort(self, messages: Sequence[WriterCommitMessage | None], batch: str) -> None:
        written = _in_order(messages)
        if self._options.delivery == TRANSACTIONAL:
            transactional.roll_back(self._options, [one.prepared for one in written if one.prepared is not None])
            self._roll_back_lost(written)
        elif self._options.delivery == EFFECTIVELY_ONCE and written:
            self._sink(written[0]).abort(batch, [one.staged for one in written if one.staged is not None])

    def _roll_back_lost(self, written: Sequence[Written]) -> None:
        if written:
            prepared = [one.prepared for one in written if one.prepared is not None]
            transactional.roll_back_lost(self._options, written[0].label, prepared)

    def _sink(self, one: Written) -> EffectivelyOnce:
        return EffectivelyOnce(self._options, one.sink, one.query, lambda: ClusterOutput(self._options))


class RocketdBatchWriter(_Writing, DataSourceArrowWriter):
    """Writes a data frame."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit or send the messages that the tasks have prepared."""
        self._commit(messages, self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the messages that the tasks have prepared."""
        self._abort(messages, self._job)


class RocketdStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit or send the messages that the tasks of a batch have prepared, once for each batch id."""
        self._commit(messages, str(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Drop the messages that the tasks of a batch have prepared."""
        self._abort(messages, str(batchId))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketdBatchWriter:
    """Return the writer of a data frame with this schema. Raises OptionError."""
    if overwrite:
        raise OptionError("a topic is only ever appended to: write with mode('append'), not 'overwrite'")
    return RocketdBatchWriter(WriteOptions.parse(options), schema)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RocketdStreamWriter:
    """Return the writer of a stream with this schema. Raises OptionError."""
    if overwrite:
        raise OptionError("a topic is only ever appended to: write with outputMode('append'), not 'complete'")
    return RocketdStreamWriter(WriteOptions.parse(options, stream=True), schema)


def _new_keys() -> Iterator[str]:
    while True:
        yield from unique_keys(_KEYS_AT_ONCE)


def _in_order(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return the messages of written partitions by partition number, because Spark passes them in order of completion."""
    written = sorted((one for one in messages if isinstance(one, Written)), key=lambda one: one.partition)
    if len({one.partition for one in written}) < len(written):
        raise SparkError(
            "Spark handed over two attempts of one partition as done: committing both would write rows twice"
        )
    return written


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # needs pyarrow, which the module above has

    return to_arrow_schema(schema, timezone="UTC")
