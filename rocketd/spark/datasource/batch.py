"""The reader of a batch: planned once, in a separate process. Its tasks receive their ranges by pickle."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketd.spark.datasource.arrow_schema import columns_of
from rocketd.spark.datasource.partition import RangesPartition, read_partition
from rocketd.spark.options import ReadOptions
from rocketd.spark.source import Source

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads the messages named by the options. Spark applies all filters to the rows.

    The reader accepts no pushed filters. With ``pushFilters``, Spark 4.3 keeps the state after one query's filters, and
    reads only those rows for every other query over the same frame or view.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Raises OptionError for wrong options and for unknown columns."""
        self._given = dict(given)
        self._source = Source(ReadOptions.parse(given))
        self._schema = schema
        self._columns = columns_of(schema, given)

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task. Raises OptionError, DataLossError, ClusterError, StoreFilesError."""
        source = self._source
        try:
            return [RangesPartition(task) for task in source.tasks(source.plan())]
        finally:
            source.close()

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of a partition."""
        yield from read_partition(self._source, self._schema, self._columns, self._given, partition)
