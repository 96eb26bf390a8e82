"""The Python of Spark's workers: whether it has rocketd, and the remedy if it does not.

Spark starts ``python3`` from PATH unless PYSPARK_PYTHON names another one. A program run as ``venv/bin/python job.py``
often sets neither. Then the workers run another Python, without the packages of the program.
"""

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from rocketd.spark.errors import SparkError
from rocketd.spark.sessions.confs import read_master

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_VARIABLE = "PYSPARK_PYTHON"
_PROBE = "import rocketd.spark.datasource"
_PROBE_SECONDS = 120
_NO_MODULE = "No module named 'rocketd'"


def register_source(spark: "SparkSession") -> None:
    """Register the data source. Raises SparkError if the workers' Python does not have rocketd and cannot be replaced."""
    from rocketd.spark.datasource import RocketdDataSource

    if has_other_python(spark):
        _use_our_python(spark.sparkContext)
    try:
        spark.dataSource.register(RocketdDataSource)
    except Exception as error:
        if _NO_MODULE not in str(error):
            raise
        raise SparkError(
            f"the Python of Spark's workers has no rocketd: install it there, or set {_VARIABLE} to a Python that has it "
            "before Spark starts"
        ) from error


def has_other_python(spark: "SparkSession") -> bool:
    """Tell whether the workers of a session run another Python than this process. False for Spark Connect."""
    context = _context(spark)
    return context is not None and context.pythonExec != sys.executable


def plain_python() -> str:
    """Return the Python that workers of a plain local session run."""
    return os.environ.get(_VARIABLE, "python3")


def can_import_rocketd(python: str) -> bool:
    """Tell whether a Python can import the data source when started as Spark does, outside the current directory."""
    try:
        return not subprocess.run(
            [python, "-c", _PROBE],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def _context(spark: "SparkSession") -> "SparkContext | None":
    from pyspark.sql import SparkSession

    # With Spark Connect it is another class, and the server starts the workers.
    return spark.sparkContext if isinstance(spark, SparkSession) and hasattr(spark, "_jsparkSession") else None


def _use_our_python(context: "SparkContext") -> None:
    if not read_master(str(context.master)).local or can_import_rocketd(context.pythonExec):
        return
    if named := os.environ.get(_VARIABLE):
        raise SparkError(
            f"{_VARIABLE} is {named}, which has no rocketd: install it there, or unset {_VARIABLE} to use {sys.executable}"
        )
    context.pythonExec = sys.executable
