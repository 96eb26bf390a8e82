"""A process for the tests of Ctrl-C: `rocketd spark` with one more job, which would take for ever.

Usage: slow_driver.py tasks|stream MARK; it makes the file MARK when the work is under way.
"""

import os
import sys
import threading
from pathlib import Path

from rocketd.spark import cli
from rocketd.spark.jobs.job import Job as BaseJob
from rocketd.spark.jobs.report import Report
from rocketd.spark.jobs.tasks import run_tasks


class Job(BaseJob):
    """Waits in tasks, or for a stream."""

    def add_arguments(self, parser):
        parser.add_argument("kind")
        parser.add_argument("mark")

    def run(self, context, args):
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
    cli.JOBS["slow"] = ("__main__", "Wait.")
    sys.exit(cli.main(["slow", *sys.argv[1:], "--master", "local[2]"]))
