"""A process for the tests of Ctrl-C: `rocketd spark` with one more job, which would take for ever.

Usage: slow_driver.py tasks|stream MARK; it makes the file MARK when the work is under way.
"""

import os
import sys
import threading
from pathlib import Path

import click

from rocketd.spark import cli
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.tasks import run_tasks


@job("slow", arguments=[click.Argument(["kind"]), click.Argument(["mark"])])
def slow(context, args):
    """Wait in tasks, or for a stream."""
    spark = context.spark()
    mark = Path(args.mark)
    if args.kind == "tasks":
        list(run_tasks(spark, [str(mark)], _wait))
    else:
        rows = spark.readStream.format("rate").load()
        query = rows.writeStream.foreachBatch(lambda frame, number: mark.write_text(str(os.getpid()))).start()
        query.awaitTermination()
    return Report({"ended": "by itself"})


def _wait(mark):
    Path(mark).write_text(str(os.getpid()))
    threading.Event().wait()


if __name__ == "__main__":
    cli.JOBS["slow"] = ("__main__:slow", "Wait.")
    sys.exit(cli.main(["slow", *sys.argv[1:], "--master", "local[2]"]))
