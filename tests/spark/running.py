"""Runs a job of ``rocketd spark`` in the session of the tests, and hands back its report."""

import argparse

from rocketd.spark.cli import JOBS, job_parser, load_job
from rocketd.spark.errors import SparkError
from rocketd.spark.jobs.job import JobContext
from rocketd.spark.jobs.report import Report
from rocketd.spark.jobs.unwrap import unwrapped


def run_job(spark, name: str, *words: object) -> Report:
    """What ``rocketd spark NAME WORDS…`` would print; what it would say of an error is raised as a SparkError."""
    assert name in JOBS
    job = load_job(name)
    args: argparse.Namespace = job_parser(job).parse_args([*map(str, words), "--quiet"])
    context = JobContext(name, spark=spark)
    try:
        return job.run(context, args)
    except SparkError:
        raise
    except Exception as error:
        raise unwrapped(error) from error
    finally:
        context.close()
