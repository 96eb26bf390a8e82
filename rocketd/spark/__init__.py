"""Messages as Spark tables: a session that works, and reads of topics from brokers or from a store's files.

PySpark is imported when it is first needed: ``pip install 'rocketd[spark]'`` brings it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]


def session(
    master: str = "local[*]",
    app_name: str = "rocketd",
    conf: Mapping[str, str] | None = None,
    *,
    driver_memory: str | None = None,
) -> "SparkSession":
    """Start Spark, or return the session that is active. Raises SparkError in one sentence when that cannot be.

    `conf` are settings of Spark, which win over ours; `driver_memory` as ``4g``.
    """
    from rocketd.spark.sessions.build import build_session

    return build_session(master, app_name, conf, driver_memory=driver_memory)
