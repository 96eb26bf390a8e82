"""Messages as Spark tables: a session that works, and reads of topics from brokers or from a store's files.

PySpark is imported when it is first needed: ``pip install 'rocketd[spark]'`` brings it.

    import rocketd.spark

    spark = rocketd.spark.session()
    orders = rocketd.spark.read(spark, columns=["queue_offset", "tags"], namesrv="127.0.0.1:9876", subscribe="orders")
    orders.groupBy("tags").count().show()
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
    """Start Spark, or return the session that is active. Raises SparkError in one sentence when that cannot be.

    `conf` are settings of Spark, which win over ours; `driver_memory` as ``4g``. On a cluster the executors get rocketd's
    sources, and `py_files` besides.
    """
    from rocketd.spark.sessions.build import build_session

    return build_session(master, app_name, conf, driver_memory=driver_memory, py_files=py_files)


def register(spark: "SparkSession") -> None:
    """Make ``format("rocketd")`` known to a session that was not started by `session`.

    A plain session starts ``python3`` of PATH for its workers. If that Python has no rocketd and Spark runs on this
    machine, the workers are started with this process's Python from now on. Raises SparkError if the workers have no
    rocketd otherwise: PYSPARK_PYTHON names another Python, or Spark runs on a cluster.
    """
    from rocketd.spark.sessions.workers import register_source

    register_source(spark)


def read(spark: "SparkSession", *, columns: Sequence[str] | None = None, **options: Any) -> "DataFrame":
    """Messages as a DataFrame. Fewer `columns` cost less: only these are made. Raises OptionError for an unknown one.

    Options are those of the data source, in camelCase or in snake_case; their values may be texts, numbers, truth values,
    lists of names, times with a zone, and mappings where JSON is expected.
    """
    _make_known(spark)
    frame: DataFrame = _prepared(spark.read, columns, options).load()
    return frame


def read_stream(spark: "SparkSession", *, columns: Sequence[str] | None = None, **options: Any) -> "DataFrame":
    """The same as a streaming DataFrame."""
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
