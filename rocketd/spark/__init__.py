"""Messages as Spark tables: start a session, and read topics from brokers or from a store's files.

PySpark is imported on first use. Install it with ``pip install 'rocketd[spark]'``.

    import rocketd.spark

    spark = rocketd.spark.session()
    orders = rocketd.spark.read(spark, columns=["queue_offset", "tags"], namesrv="127.0.0.1:9876", subscribe="orders")
    orders.groupBy("tags").count().show()

Subpackages: `records` parses commit-log records into columns. `store` reads store files, `wire` talks to brokers.
`planning` turns options into ranges and tasks. `datasource` is the entry point of Spark, `sink` writes messages to
topics, `archive` keeps them in Parquet files. `sessions` starts Spark, `jobs` holds the commands. See
docs/decisions/0018-spark-without-a-jar.md.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketd.spark.sessions.confs import DEFAULT_MASTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read", "read_stream", "register", "session"]

FORMAT = "rocketd"
"""The data source's name: ``spark.read.format("rocketd")``."""


def session(
    master: str = DEFAULT_MASTER,
    app_name: str = "rocketd",
    conf: Mapping[str, str] | None = None,
    *,
    driver_memory: str | None = None,
    py_files: Sequence[str] = (),
) -> "SparkSession":
    """Start Spark, or return the active session. Raises SparkError with a one-sentence message if Spark cannot start.

    `conf` holds Spark settings; they override the defaults of rocketd. `driver_memory` is a text such as ``4g``. On a
    cluster the executors get the sources of rocketd, and the files in `py_files`.
    """
    from rocketd.spark.sessions.build import build_session

    return build_session(master, app_name, conf, driver_memory=driver_memory, py_files=py_files)


def register(spark: "SparkSession") -> None:
    """Register ``format("rocketd")`` in a session that was not started by `session`.

    A plain session starts its workers with the ``python3`` found on PATH. If that Python does not have rocketd, and
    Spark runs on this machine, workers start with this process's Python from now on. Raises SparkError if that is not
    possible: PYSPARK_PYTHON names another Python, or Spark runs on a cluster.
    """
    from rocketd.spark.sessions.workers import register_source

    register_source(spark)


def read(spark: "SparkSession", *, columns: Sequence[str] | None = None, **options: Any) -> "DataFrame":
    """Return messages as a DataFrame. Only the named `columns` are built, so fewer columns cost less.

    Options are those of the data source, in camelCase or snake_case. Values may be texts, numbers, booleans, lists of
    names, datetimes with a time zone, and mappings for options in JSON. Raises OptionError for an unknown column.
    """
    _make_known(spark)
    frame: DataFrame = _prepared(spark.read, columns, options).load()
    return frame


def read_stream(spark: "SparkSession", *, columns: Sequence[str] | None = None, **options: Any) -> "DataFrame":
    """Return messages as a streaming DataFrame; otherwise like `read`."""
    _make_known(spark)
    frame: DataFrame = _prepared(spark.readStream, columns, options).load()
    return frame


def _make_known(spark: "SparkSession") -> None:
    from rocketd.spark.sessions.workers import has_other_python

    if has_other_python(spark):
        register(spark)


def _prepared(reader: Any, columns: Sequence[str] | None, options: Mapping[str, Any]) -> Any:
    from rocketd.spark.columns import check_columns, ddl
    from rocketd.spark.options.texts import option_texts

    reader = reader.format(FORMAT).options(**option_texts(options))
    return reader if columns is None else reader.schema(ddl(check_columns(columns)))
