"""Starts Spark, or returns the existing session."""

import os
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from rocketd.spark.errors import SparkError
from rocketd.spark.sessions.confs import (
    DEFAULT_MASTER,
    LOOPBACK,
    SparkMaster,
    machine_settings,
    read_master,
    session_confs,
)
from rocketd.spark.sessions.gateway import gateway_is_given, start_gateway
from rocketd.spark.sessions.java import choose_java
from rocketd.spark.sessions.package_zip import package_zip
from rocketd.spark.sessions.unwrap import unwrapped

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_WORKERS_PYTHON = "spark.pyspark.python"


def build_session(
    master: str = DEFAULT_MASTER,
    app_name: str = "rocketd",
    conf: Mapping[str, str] | None = None,
    *,
    driver_memory: str | None = None,
    py_files: Sequence[str] = (),
    log_level: str | None = None,
) -> "SparkSession":
    """Return a Spark session with the settings of `rocketd.spark.sessions.confs`, or the active session.

    On a cluster the executors get this package, and the files in `py_files`. `log_level` is one of Spark's. Raises
    SparkError with a one-sentence message if Java is missing or Spark does not start.
    """
    active = active_session()
    # The warning does not apply: rocketd does not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    given = dict(conf or {})
    if active is not None:
        for key, value in given.items():
            if active.conf.isModifiable(key):
                active.conf.set(key, value)
        return active
    where = read_master(master)
    session = _start(where, app_name, session_confs(where, given, driver_memory, machine_settings(os.environ)))
    try:
        if log_level is not None:
            session.sparkContext.setLogLevel(log_level)
        # If spark-submit started this process, it has already shipped the package.
        ours = [] if where.local or gateway_is_given() else [package_zip()]
        for path in [*ours, *py_files]:
            if not os.path.exists(path):
                raise SparkError(f"{path} is not there, so it cannot be shipped to the executors")
            session.sparkContext.addPyFile(path)
    except BaseException:
        session.stop()
        raise
    return session


def active_session() -> "SparkSession | None":
    """Return the existing session, or None. Raises SparkError without PySpark."""
    require_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active: SparkSession | None = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # It belongs to another thread.
        active = SparkSession.builder.getOrCreate()
    return active


def require_pyspark() -> None:
    """Raise SparkError with the remedy if the packages of the extra are not installed."""
    for package in ("numpy", "pyarrow", "pyspark"):
        try:
            import_module(package)
        except ImportError as error:
            raise SparkError(f"{package} is not installed ({error}): run: pip install 'rocketd[spark]'") from None


def prepare_environment(where: SparkMaster, workers_python: str | None = None) -> None:
    """Set the environment variables that Spark's programs read. Raises SparkError if a program is missing."""
    if shutil.which("bash") is None:
        raise SparkError("Spark's scripts need bash, and PATH has no bash: install it")
    os.environ["JAVA_HOME"] = choose_java().home
    # Spark would start "python3" from PATH: possibly another interpreter, without the needed packages, which fails
    # silently. On a cluster PYSPARK_PYTHON may name an interpreter under another path.
    named = workers_python or (None if where.local else os.environ.get("PYSPARK_PYTHON"))
    os.environ["PYSPARK_PYTHON"] = named or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if where.loopback:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _start(where: SparkMaster, app_name: str, confs: Mapping[str, str]) -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if gateway_is_given():
        # spark-submit has read the master and its settings: these override ours.
        SparkContext(conf=_with_defaults(SparkConf(), confs, app_name))
    else:
        prepare_environment(where, confs.get(_WORKERS_PYTHON))
        gateway = None
        if SparkContext._gateway is None:
            gateway = start_gateway({**confs, "spark.master": where.url, "spark.app.name": app_name})
            SparkContext._ensure_initialized(gateway=gateway)
        settings = SparkConf().setMaster(where.url).setAppName(app_name)
        settings.setAll(list(confs.items()))
        try:
            SparkContext(conf=settings)
        except Exception as error:
            raise SparkError(f"Spark did not start with master {where.url}: {unwrapped(error)}") from error
    session: SparkSession = SparkSession.builder.getOrCreate()
    return session


def _with_defaults(settings: "SparkConf", confs: Mapping[str, str], app_name: str) -> "SparkConf":
    settings.setIfMissing("spark.app.name", app_name)
    for key, value in confs.items():
        if not settings.contains(key):
            settings.set(key, value)
    return settings
