"""``rocketd spark JOB``: finds the job and runs it.

A job's module is imported when it is asked for. Exit status: 0; 1 when it failed or found problems; 2 when it was asked
wrongly; 130 when it was interrupted.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from rocketd.common.suggest import did_you_mean
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs import interrupts
from rocketd.spark.jobs.arguments import add_output_arguments, add_spark_arguments
from rocketd.spark.jobs.interrupts import interruptible
from rocketd.spark.jobs.job import Job, JobContext
from rocketd.spark.jobs.progress import Progress
from rocketd.spark.jobs.report import Report
from rocketd.spark.jobs.unwrap import unwrapped

JOBS: dict[str, tuple[str, str]] = {
    "archive": ("rocketd.spark.jobs.archive", "Write topics to Parquet files, each message exactly once."),
    "restore": ("rocketd.spark.jobs.restore", "Make a store's files from an archive, byte for byte."),
    "replay": ("rocketd.spark.jobs.replay", "Send an archive's messages to topics again."),
    "verify": ("rocketd.spark.jobs.verify", "Read every byte of a store and say what is wrong."),
    "rebuild": ("rocketd.spark.jobs.rebuild", "Make queues and indexes anew from the commit log."),
    "trace": ("rocketd.spark.jobs.trace", "Latencies and failures out of the message traces."),
    "lag": ("rocketd.spark.jobs.lag", "How far consumer groups are behind, and when they will be done."),
    "dlq": ("rocketd.spark.jobs.dlq", "Group the messages that were given up, and send them again."),
    "compact": ("rocketd.spark.jobs.compact", "Keep the newest message of each key."),
    "sql": ("rocketd.spark.jobs.sql", "Run a file of Spark SQL over topics, once or for good."),
    "anonymise": ("rocketd.spark.jobs.anonymise", "Copy messages with fields hashed or left out."),
    "doctor": ("rocketd.spark.sessions.doctor", "Say what Spark runs on, and prove that it does."),
}
"""The jobs by name: the module whose class `Job` it is, and one line that says what it does."""

SUBMIT = "submit"
_SUBMIT_SUMMARY = "Run a job through spark-submit, on a cluster."
_PROGRAM = "rocketd spark"
_FAILED, _WRONG = 1, 2


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message: str) -> NoReturn:
        """Print it and exit."""
        self.exit(_WRONG, f"{self.prog}: {message}; try {self.prog} --help\n")


def main(arguments: Sequence[str]) -> int:
    """Run a job and return the exit status."""
    words = list(arguments)
    if words[:1] in (["--help"], ["-h"], ["help"]):
        print(overview())
        return 0
    try:
        if not words:
            raise OptionError(f"a job is missing: {', '.join([*JOBS, SUBMIT])}; try {_PROGRAM} --help")
        name, rest = words[0], words[1:]
        if name == SUBMIT:
            from rocketd.spark.sessions.submit import submit

            return submit(rest)
        if name not in JOBS:
            known = [*JOBS, SUBMIT]
            raise OptionError(f"there is no job {name!r}{did_you_mean(name, known)}; try {_PROGRAM} --help")
    except OptionError as error:
        return _complain("", error, _WRONG)
    except BrokenPipeError:
        raise
    except (SparkError, OSError) as error:
        return _complain(f" {words[0]}", _sentence(error), _FAILED)
    try:
        return run_job(name, rest)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else _FAILED


def overview() -> str:
    """The help of ``rocketd spark``."""
    width = max(map(len, [*JOBS, SUBMIT]))
    lines = [f"  {name:{width}}  {summary}" for name, (_, summary) in JOBS.items()]
    return "\n".join(
        [
            f"Usage: {_PROGRAM} JOB [options]",
            "",
            "Jobs:",
            *lines,
            f"  {SUBMIT:{width}}  {_SUBMIT_SUMMARY}",
            "",
            f"{_PROGRAM} JOB --help tells more. Spark comes with: pip install 'rocketd[spark]'",
        ]
    )


def run_job(name: str, arguments: Sequence[str]) -> int:
    """Parse the arguments of one job, run it, print its report; return the exit status. Raises SystemExit for --help."""
    with interruptible() as signals:
        progress = None
        context = None
        debug = "--debug" in arguments
        try:
            job = load_job(name)
            args = job_parser(job).parse_args(list(arguments))
            progress = Progress(quiet=args.quiet)
            context = JobContext(
                name,
                master=args.master,
                conf=dict(args.conf),
                driver_memory=args.driver_memory,
                py_files=tuple(args.py_files),
                progress=progress,
                interrupts=signals,
            )
            report = job.run(context, args)
            progress.end()
            _publish(report, args)
            return report.status
        except KeyboardInterrupt:
            _end(progress)
            print(f"{_PROGRAM} {name}: interrupted", file=sys.stderr)
            if context is not None:
                context.cancel()
            return interrupts.STATUS
        except BrokenPipeError:
            raise
        except Exception as error:
            _end(progress)
            if debug:
                traceback.print_exc()
            said = _sentence(error)
            return _complain(f" {name}", said, _WRONG if isinstance(said, OptionError) else _FAILED)
        finally:
            if context is not None:
                context.close()


def load_job(name: str) -> Job:
    """The job of this name. Raises SparkError when packages of the extra are missing."""
    module, _ = JOBS[name]
    if name != "doctor":
        from rocketd.spark.sessions.build import require_pyspark

        require_pyspark()
    job: Job = import_module(module).Job(name)
    return job


def job_parser(job: Job) -> argparse.ArgumentParser:
    """The command line of a job: its own arguments and those of all."""
    parser = Parser(
        prog=f"{_PROGRAM} {job.name}",
        description=JOBS[job.name][1],
        epilog=job.description or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    job.add_arguments(parser)
    add_spark_arguments(parser)
    add_output_arguments(parser)
    return parser


def _publish(report: Report, args: argparse.Namespace) -> None:
    try:
        if args.report:
            with open(args.report, "w", encoding="utf-8") as file:
                file.write(report.as_json() + "\n")
    finally:
        # The work is done: a file that cannot be written should not take its report away.
        text = report.as_json() if args.json else report.as_text()
        if text:
            encoding = sys.stdout.encoding or "utf-8"
            print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _sentence(error: Exception) -> Exception | str:
    """What to say: ours as it is, Spark's unwrapped, anything else with its class."""
    if isinstance(error, SparkError):
        return error
    if type(error).__module__.startswith(("py4j", "pyspark")) or isinstance(error, ConnectionError):
        return unwrapped(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error} (--debug prints where)"


def _end(progress: Any) -> None:
    if progress is not None:
        progress.end()


def _complain(job: str, error: Exception | str, status: int) -> int:
    print(f"{_PROGRAM}{job}: {' '.join(str(error).split())}", file=sys.stderr)
    return status
