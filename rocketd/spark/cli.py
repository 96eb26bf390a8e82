"""``rocketd spark JOB``: find the job and run it.

The module of a job is imported only when the job is requested. Exit status: 0 on success, 1 if the job failed or found
problems, 2 for a usage error, 130 after an interrupt.
"""

from collections.abc import Sequence

import click

from rocketd.common.command_line.commands import LazyGroup, run_command_line
from rocketd.common.command_line.output import complain
from rocketd.spark.jobs.running.command import JobCommand, complain_of
from rocketd.spark.jobs.running.interrupts import STATUS, interruptible
from rocketd.spark.sessions.build import require_pyspark

JOBS: dict[str, tuple[str, str]] = {
    "archive": ("rocketd.spark.jobs.archive.job:archive", "Write topics to Parquet files, each message exactly once."),
    "restore": (
        "rocketd.spark.jobs.archive.restore:restore",
        "Restore a store's files from an archive, byte for byte.",
    ),
    "replay": ("rocketd.spark.jobs.archive.replay:replay", "Send an archive's messages to topics again."),
    "verify": ("rocketd.spark.jobs.verify.job:verify", "Read every byte of a store and report the damage."),
    "rebuild": ("rocketd.spark.jobs.rebuild.job:rebuild", "Rebuild the queues and indexes from the commit log."),
    "trace": ("rocketd.spark.jobs.trace.job:trace", "Report latencies and failures from the message traces."),
    "lag": ("rocketd.spark.jobs.lag.job:lag", "Report the lag of consumer groups, and the time to catch up."),
    "dlq": ("rocketd.spark.jobs.dlq.job:dlq", "Group dead letters by cause, and send them again."),
    "compact": ("rocketd.spark.jobs.compact:compact", "Keep the newest message of each key."),
    "sql": ("rocketd.spark.jobs.sql.job:sql", "Run a file of Spark SQL over topics, once or continuously."),
    "anonymise": ("rocketd.spark.jobs.anonymise.job:anonymise", "Copy messages with fields hashed or left out."),
    "doctor": ("rocketd.spark.jobs.doctor:doctor", "Report the installation used by Spark, and test it."),
    "submit": ("rocketd.spark.submit:submit", "Run a job through spark-submit, on a cluster."),
}
"""Jobs by name: the import path of the command, and one sentence about the job."""

_WITHOUT_PYSPARK = ("doctor", "submit")
"""Jobs that report missing packages themselves."""

_PROGRAM = "rocketd spark"


class JobGroup(LazyGroup):
    """The command group of the jobs. Ctrl-C and SIGTERM end a job in order, even before its module is imported."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the group's options into the context. The word ``help`` stands for --help. Raises UsageError."""
        return super().parse_args(ctx, ["--help"] if args[:1] == ["help"] else args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a job, or None if the name is unknown. Raises SparkError if a package is missing."""
        if cmd_name in self._lazy and cmd_name not in _WITHOUT_PYSPARK:
            require_pyspark()
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the job and its arguments.

        If the job's module fails to import, the command ends with one line of text.
        """
        path = f"{ctx.command_path} {args[0]}"
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            raise
        except KeyboardInterrupt:
            complain("interrupted", path)
            raise click.exceptions.Exit(STATUS) from None
        except Exception as error:
            raise click.exceptions.Exit(complain_of(error, path, debug="--debug" in args)) from None

    def invoke(self, ctx: click.Context) -> int:
        """Run the job and return its exit status."""
        with interruptible() as ctx.obj:
            status: int = super().invoke(ctx)
            return status


spark = JobGroup(
    "spark",
    JOBS,
    help="Archive, replay, query and check messages with Spark.",
    epilog="See also JOB --help. To install Spark: pip install 'rocketd[spark]'",
    noun="job",
)


def main(arguments: Sequence[str]) -> int:
    """Run a job and return the exit status."""
    return run_command_line(spark, _PROGRAM, arguments)


def load_job(name: str) -> JobCommand:
    """Return the job of this name. Raises SparkError if packages of the extra are missing."""
    found = spark.get_command(click.Context(spark), name)
    assert isinstance(found, JobCommand)
    return found
