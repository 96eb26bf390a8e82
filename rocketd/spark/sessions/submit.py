"""``rocketd spark submit``: a job through spark-submit, with this package shipped and the right environment."""

import os
import sys
from collections.abc import Sequence

from rocketd.common.suggest import did_you_mean
from rocketd.spark.errors import OptionError
from rocketd.spark.sessions.build import prepare_environment, require_pyspark
from rocketd.spark.sessions.confs import DEFAULT_MASTER, LOCAL, Master, machine_settings, read_master, session_confs
from rocketd.spark.sessions.java import cache_directory
from rocketd.spark.sessions.ship import package_zip

_FLAGS = ("--supervise", "--verbose", "-v", "--version", "--help", "-h", "--usage-error")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_HELP = """\
Usage: rocketd spark submit [options of spark-submit] JOB [options of the job]

Runs a job through the spark-submit of the installed PySpark: --master, --deploy-mode, --conf and so on are its own. This
package goes with the job, as a zip; NumPy, PyArrow and PySpark have to be on the cluster. --conf spark.pyspark.python=PATH
names the interpreter there."""
_MAIN = """\
import sys

from rocketd.spark.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def submit(arguments: Sequence[str]) -> int:
    """Become spark-submit. Raises OptionError when no job is named, SparkError when there is no Java."""
    from rocketd.spark.cli import JOBS

    options, job = split(arguments)
    if not job and {"--help", "-h"} & {*options}:
        print(_HELP)
        return 0
    if not job:
        raise OptionError(f"submit: a job is missing behind spark-submit's options: {', '.join(JOBS)}")
    if job[0] not in JOBS:
        raise OptionError(f"submit: there is no job {job[0]!r}{did_you_mean(job[0], JOBS)}")
    require_pyspark()
    from pyspark.find_spark_home import _find_spark_home

    master = read_master(value_of(options, "--master") or DEFAULT_MASTER)
    prepare_environment(master, conf_of(options, "spark.pyspark.python"))
    command = [os.path.join(_find_spark_home(), "bin", "spark-submit"), *ours(options, master), main_script(), *job]
    sys.stdout.flush()
    sys.stderr.flush()
    return os.execv(command[0], command)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """spark-submit's options, and the job with its own."""
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        word = arguments[position]
        alone = word in _FLAGS or (word.startswith("--") and "=" in word)
        position += 1 if alone else 2
    return list(arguments[:position]), list(arguments[position:])


def ours(options: Sequence[str], master: Master) -> list[str]:
    """The options with the package added to what is shipped, and quiet logs where the driver runs here."""
    result = list(options)
    if not any((value_of(options, "--master"), conf_of(options, "spark.master"), "spark.master" in _machine())):
        result += ["--master", DEFAULT_MASTER]
    if master.loopback:
        for conf in LOCAL:
            if conf_of(options, conf.key) is None:
                result += ["--conf", f"{conf.key}={conf.value}"]
    package = package_zip()
    for position, word in enumerate(result):
        if word == "--py-files" and position + 1 < len(result):
            result[position + 1] += f",{package}"
            break
        if word.startswith("--py-files="):
            result[position] += f",{package}"
            break
    else:
        result += ["--py-files", package]
    if value_of(options, "--deploy-mode") != "cluster" and conf_of(options, _DRIVER_OPTIONS) is None:
        quiet = session_confs(read_master("local[1]"), machine=_machine())[_DRIVER_OPTIONS]
        result += ["--conf", f"{_DRIVER_OPTIONS}={quiet}"]
    return result


def _machine() -> dict[str, str]:
    return machine_settings(os.environ)


def value_of(options: Sequence[str], name: str) -> str | None:
    """The value of an option, given as one word or as two; the last one counts."""
    found = None
    for position, word in enumerate(options):
        if word == name and position + 1 < len(options):
            found = options[position + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def conf_of(options: Sequence[str], key: str) -> str | None:
    """The value of a setting given with --conf or -c."""
    found = None
    for position, word in enumerate(options):
        pair = (
            options[position + 1]
            if word in ("--conf", "-c") and position + 1 < len(options)
            else word.partition("=")[2]
        )
        if pair.startswith(f"{key}=") and (word in ("--conf", "-c") or word.startswith("--conf=")):
            found = pair.partition("=")[2]
    return found


def main_script() -> str:
    """Path of the program that spark-submit runs: alone in its directory, which Python puts before all others."""
    directory = os.path.join(cache_directory(os.environ), "submit")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "rocketd_job.py")
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(_MAIN)
    os.replace(temporary, path)
    return path
