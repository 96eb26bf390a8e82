"""Runs a job of ``rocketd spark`` in the session of the tests, and hands back its report."""

from rocketd.spark.cli import JOBS, load_job
from rocketd.spark.errors import SparkError
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.sessions.unwrap import unwrapped


def run_job(spark, name: str, *words: object) -> Report:
    """Return the report of ``rocketd spark NAME WORDS…``; its error message is raised as a SparkError."""
    assert name in JOBS
    job = load_job(name)
    args = job.read([*map(str, words), "--quiet"])
    context = JobContext(name, spark=spark)
    try:
        return job.run(context, args)
    except SparkError:
        raise
    except Exception as error:
        raise unwrapped(error) from error
    finally:
        context.close()
