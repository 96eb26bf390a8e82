"""The settings that our sessions differ in from Spark's defaults, each with its reason.

One table: `rocketd spark doctor --settings` prints it. What a user sets wins over it, in code or in spark-defaults.conf.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocketd.common.properties_file import decode, parse
from rocketd.spark.errors import SparkError

LOOPBACK = "127.0.0.1"
DEFAULT_MASTER = "local[*,4]"
"""All cores of this machine. A task is tried four times, as on a cluster: with ``local[*]`` one worker that the system kills
ends a streaming query."""
LOG_FILE = str(Path(__file__).with_name("log4j2.properties"))
_LOCAL = re.compile(r"local(?:\[(\*|[1-9]\d*)(?:,\s*[1-9]\d*)?\])?")
_HOST_AND_PORT = r"(?:\[[0-9A-Fa-f:.]+\]|[^:/,\[\]\s]+):\d+"
_REMOTE = re.compile(rf"(spark://{_HOST_AND_PORT}(?:,{_HOST_AND_PORT})*|yarn|k8s://\S+|local-cluster\[\d+,\d+,\d+\])")
_THIS_MACHINE = ("local-cluster", "spark://127.", "spark://localhost:", "spark://[::1]:")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark checks each value for null itself, and never reads behind a batch: Arrow's own looks at every value cost a fifth."""
_MEMORY = re.compile(r"[1-9]\d*[kmgtKMGT]")


@dataclass(frozen=True, slots=True)
class Conf:
    """One of Spark's settings, our value, and why it is not Spark's own."""

    key: str
    value: str
    why: str


EVERYWHERE: tuple[Conf, ...] = (
    Conf("spark.ui.enabled", "false", "no web server that nobody asked for"),
    Conf("spark.ui.showConsoleProgress", "false", "its bar would be written over ours"),
    Conf("spark.sql.session.timeZone", "UTC", "times of messages are UTC; shown alike on every machine"),
    Conf("spark.network.timeout", "600s", "a loaded machine is not a dead one"),
    Conf("spark.executor.heartbeatInterval", "60s", "belongs to the timeout above"),
    Conf("spark.python.authenticate.socketTimeout", "300s", "a worker that starts slowly is not a failure"),
    Conf("spark.python.worker.faulthandler.enabled", "true", "a worker that crashes tells where"),
    Conf("spark.sql.execution.pyspark.udf.faulthandler.enabled", "true", "the same for queries"),
    Conf("spark.sql.parquet.compression.codec", "zstd", "smaller than snappy, which is Spark's"),
)
LOCAL: tuple[Conf, ...] = (
    Conf("spark.driver.host", LOOPBACK, "nothing outside this machine is needed, or let in"),
    Conf("spark.driver.bindAddress", LOOPBACK, "the same"),
)


@dataclass(frozen=True, slots=True)
class Master:
    """Where Spark runs: its URL, whether that is this process alone, how many cores it names, and whether all of it is on
    this machine.
    """

    url: str
    local: bool
    cores: int
    loopback: bool


def read_master(text: str) -> Master:
    """The master that `text` names. Raises SparkError for what Spark does not know."""
    if found := _LOCAL.fullmatch(text):
        cores = found[1]
        here = len(os.sched_getaffinity(0))
        return Master(text, True, 1 if cores is None else here if cores == "*" else int(cores), True)
    if _REMOTE.fullmatch(text):
        return Master(text, False, 0, text.startswith(_THIS_MACHINE))
    raise SparkError(
        f"{text!r} is no master of Spark: accepted are local[N], local[*], local[N,ATTEMPTS], spark://HOST:PORT, yarn and "
        "k8s://URL"
    )


def machine_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What whoever looks after this machine has set in spark-defaults.conf, if there is one."""
    directory = environment.get("SPARK_CONF_DIR") or os.path.join(environment.get("SPARK_HOME", ""), "conf")
    try:
        with open(os.path.join(directory, "spark-defaults.conf"), "rb") as file:
            entries = parse(decode(file.read()))
    except (OSError, ValueError):
        # Where there is none. One that is wrong is Spark's to complain about.
        return {}
    return {entry.key: entry.value.strip() for entry in entries}


def session_confs(
    master: Master,
    given: Mapping[str, str] | None = None,
    driver_memory: str | None = None,
    machine: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """All settings of a session: the table, but for what the `machine` says, then what was given.

    Raises SparkError for a wrong amount of memory, and for what is no name of a setting.
    """
    machine = {} if machine is None else machine
    given = {key: _text(value) for key, value in (given or {}).items()}
    for key in given:
        if not key.startswith("spark.") or key != key.strip():
            raise SparkError(f"{key!r} is no setting of Spark: their names begin with spark.")
    confs = {conf.key: conf.value for conf in (*EVERYWHERE, *(LOCAL if master.loopback else ()))}
    if master.local:
        # Spark's 200 partitions are for a cluster: each costs a task, and a file of state in a stream.
        confs["spark.sql.shuffle.partitions"] = str(max(2, master.cores))
    confs = {key: value for key, value in confs.items() if key not in machine}
    if driver_memory is not None:
        if not _MEMORY.fullmatch(driver_memory):
            raise SparkError(f"{driver_memory!r} is no amount of memory: accepted are for instance 800m and 4g")
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
    """Options of a Java process: each of ours, unless the user has some that contain its key."""
    return " ".join([*(option for key, option in ours.items() if key not in given), given]).strip()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
