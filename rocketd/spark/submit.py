"""``rocketd spark submit``: run a job through spark-submit, with this package shipped and the environment prepared."""

import os
import sys
from collections.abc import Sequence

import click

from rocketd.common.suggest import did_you_mean
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.running.command import complain_of
from rocketd.spark.sessions.build import prepare_environment, require_pyspark
from rocketd.spark.sessions.confs import (
    DEFAULT_MASTER,
    LOCAL,
    SparkMaster,
    machine_settings,
    read_master,
    session_confs,
)
from rocketd.spark.sessions.java import cache_directory
from rocketd.spark.sessions.package_zip import package_zip

_FLAGS = ("--supervise", "--verbose", "-v", "--version", "--help", "-h", "--usage-error")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_MAIN = """\
import sys

from rocketd.spark.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


class SubmitCommand(click.Command):
    """A command that passes its arguments on to spark-submit and to the job."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments unparsed. Without a job, --help shows the help of this command."""
        _, job = split(args)
        if not job and set(args) & set(ctx.help_option_names):
            click.echo(self.get_help(ctx))
            ctx.exit()
        ctx.params["words"] = list(args)
        return []

    def invoke(self, ctx: click.Context) -> int:
        """Replace this process with spark-submit. An error becomes a line on standard error."""
        group = ctx.parent
        assert group is not None
        assert isinstance(group.command, click.Group)
        jobs = group.command.list_commands(group)
        try:
            return become_spark_submit(ctx.params["words"], [name for name in jobs if name != self.name])
        except (SparkError, OSError) as error:
            return complain_of(error, ctx.command_path, debug=False)


submit = SubmitCommand(
    "submit",
    help="""Run a job through spark-submit, on a cluster.

    The options of spark-submit are those of the installed PySpark: --master, --deploy-mode, --conf and so on. This
    package is shipped with the job, as a zip. The cluster needs NumPy, PyArrow and PySpark. --conf
    spark.pyspark.python=PATH names the interpreter there.""",
    params=[click.Argument(["words"], metavar="JOB [options of the job]", nargs=-1)],
    options_metavar="[options of spark-submit]",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def become_spark_submit(arguments: Sequence[str], jobs: Sequence[str]) -> int:
    """Replace this process with spark-submit.

    Raises OptionError if the arguments name none of the jobs, and SparkError without Java.
    """
    options, job = split(arguments)
    if not job:
        raise OptionError(f"a job is missing behind spark-submit's options: {', '.join(jobs)}")
    if job[0] not in jobs:
        raise OptionError(f"there is no job {job[0]!r}{did_you_mean(job[0], jobs)}")
    require_pyspark()
    from pyspark.find_spark_home import _find_spark_home

    master = read_master(value_of(options, "--master") or DEFAULT_MASTER)
    prepare_environment(master, conf_of(options, "spark.pyspark.python"))
    command = [os.path.join(_find_spark_home(), "bin", "spark-submit"), *ours(options, master), main_script(), *job]
    sys.stdout.flush()
    sys.stderr.flush()
    return os.execv(command[0], command)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into the options of spark-submit, and the job with its options."""
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        word = arguments[position]
        alone = word in _FLAGS or (word.startswith("--") and "=" in word)
        position += 1 if alone else 2
    return list(arguments[:position]), list(arguments[position:])


def ours(options: Sequence[str], master: SparkMaster) -> list[str]:
    """Return the options with the package added to the shipped files, and with quiet logs if the driver runs here."""
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
    """Return the last value of an option, given as ``NAME VALUE`` or ``NAME=VALUE``; None without one."""
    found = None
    for position, word in enumerate(options):
        if word == name and position + 1 < len(options):
            found = options[position + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def conf_of(options: Sequence[str], key: str) -> str | None:
    """Return the value of a setting given with --conf or -c."""
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
    """Write the program that spark-submit runs, and return its path.

    The program stands alone in its directory, because Python puts that directory first on the module path.
    """
    directory = os.path.join(cache_directory(os.environ), "submit")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "rocketd_job.py")
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(_MAIN)
    os.replace(temporary, path)
    return path
