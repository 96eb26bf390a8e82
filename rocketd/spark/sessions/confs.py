"""The settings of our sessions that differ from Spark's defaults, each with its reason.

`rocketd spark doctor --settings` prints this table. User settings, in code or in spark-defaults.conf, override it.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketd.common.settings.properties_file import decode, parse
from rocketd.spark.errors import SparkError

LOOPBACK = "127.0.0.1"
DEFAULT_MASTER = "local[*,4]"
"""All cores of this machine.

A task is tried four times, as on a cluster: with ``local[*]`` one worker killed by the system would end a streaming
query.
"""
LOG_FILE = str(Path(__file__).with_name("log4j2.properties"))
_LOCAL = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:,\s*[1-9]\d*)?\])?")
_HOST_AND_PORT = r"(?:\[[0-9A-Fa-f:.]+\]|[^:/,\[\]\s]+):\d+"
_REMOTE = re.compile(rf"(spark://{_HOST_AND_PORT}(?:,{_HOST_AND_PORT})*|yarn|k8s://\S+|local-cluster\[\d+,\d+,\d+\])")
_THIS_MACHINE = ("local-cluster", "spark://127.", "spark://localhost:", "spark://[::1]:")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark checks each value for null itself, and never reads beyond a batch.

Arrow's checks of every value would cost a fifth.
"""
_MEMORY = re.compile(r"[1-9]\d*[kmgtKMGT]")


@dataclass(frozen=True, slots=True)
class Conf:
    """One of Spark's settings, with our value and the reason."""

    key: str
    value: str
    why: str


EVERYWHERE: tuple[Conf, ...] = (
    Conf("spark.ui.enabled", "false", "a web server only on request"),
    Conf("spark.ui.showConsoleProgress", "false", "Spark's bar would overwrite the job's bar"),
    Conf("spark.sql.session.timeZone", "UTC", "times of messages are UTC, the same on every machine"),
    Conf("spark.network.timeout", "600s", "a loaded machine may answer late"),
    Conf("spark.executor.heartbeatInterval", "60s", "must match the timeout above"),
    Conf("spark.python.authenticate.socketTimeout", "300s", "a worker may start slowly"),
    Conf("spark.python.worker.faulthandler.enabled", "true", "a crashed worker prints its stack"),
    Conf("spark.sql.execution.pyspark.udf.faulthandler.enabled", "true", "as above, for queries"),
    Conf("spark.sql.parquet.compression.codec", "zstd", "smaller files than with Spark's default, snappy"),
)
LOCAL: tuple[Conf, ...] = (
    Conf("spark.driver.host", LOOPBACK, "no connections from or to other machines"),
    Conf("spark.driver.bindAddress", LOOPBACK, "as above"),
)


@dataclass(frozen=True, slots=True)
class SparkMaster:
    """The place where Spark runs: its URL, and three facts about it.

    `local` means this process alone, `cores` is the number of cores named, and `loopback` means all of Spark is on this
    machine.
    """

    url: str
    local: bool
    cores: int
    loopback: bool


def read_master(text: str) -> SparkMaster:
    """Parse the name of a master. Raises SparkError for a name unknown to Spark."""
    if found := _LOCAL.fullmatch(text):
        cores = found[1]
        here = len(os.sched_getaffinity(0))
        return SparkMaster(text, True, 1 if cores is None else here if cores == "*" else int(cores), True)
    if _REMOTE.fullmatch(text):
        return SparkMaster(text, False, 0, text.startswith(_THIS_MACHINE))
    raise SparkError(
        f"{text!r} is not a master of Spark: accepted are local[N], local[*], local[N,ATTEMPTS], spark://HOST:PORT, "
        "yarn and k8s://URL"
    )


def machine_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of spark-defaults.conf on this machine, if the file exists."""
    directory = environment.get("SPARK_CONF_DIR") or os.path.join(environment.get("SPARK_HOME", ""), "conf")
    try:
        with open(os.path.join(directory, "spark-defaults.conf"), "rb") as file:
            entries = parse(decode(file.read()))
    except (OSError, ValueError):
        # There is no such file, or it is invalid; Spark reports an invalid one.
        return {}
    return {entry.key: entry.value.strip() for entry in entries}


def session_confs(
    master: SparkMaster,
    given: Mapping[str, str] | None = None,
    driver_memory: str | None = None,
    machine: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return all settings of a session: the table, overridden by `machine`, and that by `given`.

    Raises SparkError for a wrong amount of memory, and for an invalid name of a setting.
    """
    machine = {} if machine is None else machine
    given = {key: _text(value) for key, value in (given or {}).items()}
    for key in given:
        if not key.startswith("spark.") or key != key.strip():
            raise SparkError(f"{key!r} is not a setting of Spark: their names begin with spark.")
    confs = {conf.key: conf.value for conf in (*EVERYWHERE, *(LOCAL if master.loopback else ()))}
    if master.local:
        # Spark's default of 200 partitions is meant for clusters: each costs a task, and in a stream a state file.
        confs["spark.sql.shuffle.partitions"] = str(max(2, master.cores))
    confs = {key: value for key, value in confs.items() if key not in machine}
    if driver_memory is not None:
        if not _MEMORY.fullmatch(driver_memory):
            raise SparkError(f"{driver_memory!r} is not an amount of memory: accepted are for instance 800m and 4g")
        confs["spark.driver.memory"] = driver_memory
    confs.update(given)
    for key, ours in (
        (
            _DRIVER_OPTIONS,
            {"log4j": f"-Dlog4j2.configurationFile={Path(LOG_FILE).as_uri()}", "-Darrow.": _ARROW_OPTIONS},
        ),
        (_EXECUTOR_OPTIONS, {"-Darrow.": _ARROW_OPTIONS}),
    ):
        confs[key] = _java_options(given.get(key, machine.get(key, "")), ours)
    return confs


def _java_options(given: str, ours: Mapping[str, str]) -> str:
    """Return options for a Java process: ours, unless a user's option contains the key of one."""
    return " ".join([*(option for key, option in ours.items() if key not in given), given]).strip()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
