"""The entry of the data source. It is pickled and sent about, and made in a fresh process for every query.

So it holds nothing but the options, and imports the rest where it is used.
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
        """The format's name."""
        return "rocketd"

    def schema(self) -> str:
        """The columns of a read without a schema of its own, as DDL. Raises OptionError for an unknown option."""
        from rocketd.spark.columns import DEFAULT_COLUMNS, ddl
        from rocketd.spark.options import ReadOptions

        ReadOptions.check(self.options)
        return ddl(DEFAULT_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises OptionError."""
        from rocketd.spark.datasource.batch import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the name is Spark's
        """The reader of a stream: with wrong options, one whose methods all raise OptionError."""
        from rocketd.spark.datasource.refused import RefusedStream
        from rocketd.spark.datasource.stream import StreamReader
        from rocketd.spark.errors import OptionError

        try:
            return StreamReader(self.options, schema)
        except OptionError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """The writer of a batch: into an archive where option `archive` or `path` names one, else into a topic."""
        if archive := _archive_options(self.options):
            from rocketd.spark.archive import sink

            return sink.batch_writer(archive, schema, overwrite)
        from rocketd.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802
        """The writer of a stream, likewise."""
        if archive := _archive_options(self.options):
            from rocketd.spark.archive import sink

            return sink.stream_writer(archive, schema, overwrite)
        from rocketd.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _archive_options(options: "Mapping[str, str]") -> dict[str, str]:
    """The options of a write into an archive; nothing where it is none. `start(path)` names one as well."""
    given = dict(options)
    root = given.get("archive") or given.get("path")
    return {**given, "archive": root} if root else {}
