"""Starts Spark, or takes the session that is there."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from rocketd.spark.errors import SparkError
from rocketd.spark.sessions.confs import LOOPBACK, read_master, session_confs
from rocketd.spark.sessions.java import choose_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL = "PySpark is not installed: run: pip install 'rocketd[spark]'"


def build_session(
    master: str = "local[*]",
    app_name: str = "rocketd",
    conf: Mapping[str, str] | None = None,
    *,
    driver_memory: str | None = None,
) -> "SparkSession":
    """A Spark session with the settings of `rocketd.spark.sessions.confs`; the active one, where there is one.

    Raises SparkError, in one sentence, when Java is missing or does not start.
    """
    try:
        sql = import_module("pyspark.sql")
    except ImportError:
        raise SparkError(INSTALL) from None
    active: SparkSession | None = sql.SparkSession.getActiveSession()
    if active is not None:
        for key, value in (conf or {}).items():
            active.conf.set(key, value)
        return active
    where = read_master(master)
    confs = session_confs(where, conf, driver_memory)
    prepare_environment(where.local)
    builder = sql.SparkSession.builder.master(where.url).appName(app_name)
    for key, value in confs.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def prepare_environment(local: bool) -> None:
    """Set what Spark's programs read from the environment. Raises SparkError when something is missing."""
    if shutil.which("bash") is None:
        raise SparkError("Spark is started by bash scripts, and there is no bash on PATH: install it")
    os.environ["JAVA_HOME"] = choose_java().home
    # Spark would start "python3" from PATH: another interpreter, without our packages, and fail without a word.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
