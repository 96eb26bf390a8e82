"""The reader of a stream. It lives in one process beside the driver as long as the query; tasks get pickled copies."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketd.spark.datasource.arrow_schema import columns_of
from rocketd.spark.datasource.partition import RangesPartition, read_partition
from rocketd.spark.errors import SparkError
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.checkpoint import batch_ranges, decode, encode, stored_times
from rocketd.spark.planning.follow import Limits, QueueFollower
from rocketd.spark.planning.losses import log
from rocketd.spark.ranges import Offsets, QueueRange
from rocketd.spark.source import Source

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new messages, each once: the range of a micro-batch is in the checkpoint before the micro-batch runs."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Raises OptionError for wrong options and for unknown columns."""
        self._given = dict(given)
        # The follower does the waiting, for all brokers at once.
        self._source = Source(ReadOptions.parse(given, stream=True), patience=0)
        self._schema = schema
        self._columns = columns_of(schema, given)
        self._follower: QueueFollower | None = None
        self._target: Offsets | None = None
        self._planned: dict[str, Any] | None = None
        """The end of the batch planned last, None before the first one after a start."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_follower": None, "_target": None}

    @property
    def _options(self) -> ReadOptions:
        return self._source.options

    def _follow(self) -> QueueFollower:
        if self._follower is None:
            self._follower = QueueFollower(lambda: self._source.catalog, self._options, self._size)
        return self._follower

    def _size(self, part: QueueRange) -> int | None:
        # A few messages may be large: an estimate from their number would exceed maxBytesPerTrigger.
        return self._source.size(part, worth_asking=0)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - this and the following names are Spark's
        """Return the start of a new query. Raises OptionError, DataLossError, ClusterError, StoreFilesError."""
        return encode(self._follow().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set for micro-batches. Spark may still ask for everything available."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch, or `start` if there is nothing new.

        Raises DataLossError for messages that are gone, and ClusterError if a server is unreachable for too long.
        """
        positions, _ = decode(start)
        stored = stored_times(start)
        news = self._follow().news(positions, self._limits(limit), self._target, stored)
        if news.ends == positions == news.starts:
            return start
        started = {queue: at for queue, at in news.starts.items() if positions.get(queue) != at}
        unchanged = {
            queue: time for queue, time in stored.items() if news.starts[queue] == news.ends[queue] == positions[queue]
        }
        self._planned = encode(news.ends, started, self._follow().stored_before(news.ends, unchanged))
        return self._planned

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        options = self._options
        return Limits(
            limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets_per_trigger,
            limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.max_bytes_per_trigger,
            limit.min_rows if isinstance(limit, ReadMinRows) else options.min_offsets_per_trigger,
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the last known ends, for the progress report of the query."""
        seen = self._follow().seen
        return encode(seen) if seen else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the present ends: the query stops once it has read up to them."""
        self._target = self._follow().target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition for each task of the micro-batch. Missing messages are detected while reading.

        Raises DataLossError if a batch planned before a restart names a topic that was recreated meanwhile.
        """
        if end != self._planned:
            self._follow().check_same(decode(end)[0], stored_times(end))
        return [RangesPartition(task) for task in self._source.tasks(batch_ranges(start, end))]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of a partition."""
        yield from read_partition(self._source, self._schema, self._columns, self._given, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the finished offsets for the group of commitGroup. A failure only affects tools that show the lag."""
        group = self._options.commit_group
        if not group:
            return
        try:
            self._source.catalog.commit_group(group, decode(end)[0])
        except SparkError as error:
            log.warning("the offsets of group %s were not committed, and will be with a later batch: %s", group, error)

    def stop(self) -> None:
        """Close files and connections."""
        self._source.close()
