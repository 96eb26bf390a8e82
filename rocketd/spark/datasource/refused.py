"""What stands in for the reader of a stream whose options are wrong.

Were the error raised where the reader is made, Spark's process would hide it behind a fault of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from rocketd.spark.errors import SparkError


class RefusedStream(DataSourceStreamReader):
    """Raises the error at whatever is asked of it."""

    def __init__(self, error: SparkError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the names are Spark's
        """Raises the error."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises the error."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raises the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises the error."""
        raise self._error
