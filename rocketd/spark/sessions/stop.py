"""Ends the work in Spark without messages from Java."""

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cancel_all(session: "SparkSession") -> None:
    """Stop all streams and cancel all jobs. Never raises, because everything is ending anyway."""
    with contextlib.suppress(Exception):
        session.sparkContext.setLogLevel("OFF")
    _stop_streams(session, ())
    with contextlib.suppress(Exception):
        session.sparkContext.cancelAllJobs()


def cancel_ours(session: "SparkSession", tag: str, others: Collection[str]) -> None:
    """Stop the work of one job in a shared session. Never raises.

    Stops all streams except those with the run ids `others`, and cancels the jobs with this tag.
    """
    _stop_streams(session, others)
    with contextlib.suppress(Exception):
        session.sparkContext.cancelJobsWithTag(tag)


def _stop_streams(session: "SparkSession", spared: Collection[str]) -> None:
    with contextlib.suppress(Exception):
        for query in session.streams.active:
            with contextlib.suppress(Exception):
                if query.runId not in spared:
                    query.stop()


def stop_session(session: "SparkSession") -> None:
    """Stop Spark. Never raises."""
    with contextlib.suppress(Exception):
        session.sparkContext.setLogLevel("OFF")
    with contextlib.suppress(Exception):
        session.stop()
