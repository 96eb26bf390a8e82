"""The entry point of the data source.

Spark pickles it, sends it around, and rebuilds it in a new process for every query.

So it holds only the options, and imports everything else on use.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter


class RocketdDataSource(DataSource):
    """Messages of RocketMQ-compatible clusters and stores as a table: ``format("rocketd")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rocketd"

    def schema(self) -> str:
        """Return the columns of a read without an explicit schema, as DDL. Raises OptionError for wrong options."""
        from rocketd.spark.columns import DEFAULT_COLUMNS, ddl
        from rocketd.spark.options import ReadOptions

        ReadOptions.check(self.options)
        return ddl(DEFAULT_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises OptionError."""
        from rocketd.spark.datasource.batch import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the name is Spark's
        """Return the reader of a stream. With wrong options, it is one whose methods all raise OptionError."""
        from rocketd.spark.datasource.refused import RefusedStream
        from rocketd.spark.datasource.stream import StreamReader
        from rocketd.spark.errors import OptionError

        try:
            return StreamReader(self.options, schema)
        except OptionError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """Return the writer of a batch: to an archive if option `archive` or `path` names one, else to a topic."""
        if archive := _archive_options(self.options):
            from rocketd.spark.archive import sink

            return sink.batch_writer(archive, schema, overwrite)
        from rocketd.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802
        """Return the writer of a stream, chosen in the same way."""
        if archive := _archive_options(self.options):
            from rocketd.spark.archive import sink

            return sink.stream_writer(archive, schema, overwrite)
        from rocketd.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _archive_options(options: "Mapping[str, str]") -> dict[str, str]:
    """Return the options of a write to an archive, or an empty dict for other writes.

    `start(path)` names an archive too.
    """
    given = dict(options)
    root = given.get("archive") or given.get("path")
    return {**given, "archive": root} if root else {}
