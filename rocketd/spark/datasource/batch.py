"""The reader of a batch: planned once, in a process of its own; its tasks get their ranges by pickle."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketd.spark.datasource.partition import RangesPartition, read_partition
from rocketd.spark.datasource.shape import columns_of
from rocketd.spark.options import ReadOptions
from rocketd.spark.source import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from rocketd.spark.datasource.filters import Narrowing


class BatchReader(DataSourceReader):
    """Reads what the options name; Spark applies all filters to it."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Raises OptionError for wrong options, and for columns that there are not."""
        self._given = dict(given)
        self._source = Source(ReadOptions.parse(given))
        self._schema = schema
        self._columns = columns_of(schema, given)
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[InputPartition]:
        """One partition for each task. Raises OptionError, DataLossError, BrokerError, StoreFilesError."""
        source, tags = self._source, None
        try:
            ranges = source.plan()
            if self._narrowing is not None:
                ranges, tags = self._narrowing.apply(ranges, source.catalog)
            return [RangesPartition(task, tags) for task in source.tasks(ranges)]
        finally:
            source.close()

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a partition."""
        yield from read_partition(self._source, self._schema, self._columns, self._given, partition)


class FilteringBatchReader(BatchReader):
    """The same, but it leaves out ranges in which no row can pass Spark's filters."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - the name is Spark's
        """Take filters; return those that Spark has to apply all the same."""
        from rocketd.spark.datasource.filters import Narrowing, may_have_light_queues

        self._narrowing = Narrowing(filters, exact=not may_have_light_queues(self._source.options))
        return self._narrowing.remaining
