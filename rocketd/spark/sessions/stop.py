"""Ends what runs in Spark without a word of Java's about it."""

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cancel_all(session: "SparkSession") -> None:
    """Stop all streams and cancel all jobs. Never raises: whatever fails here was on its way out."""
    with contextlib.suppress(Exception):
        session.sparkContext.setLogLevel("OFF")
    _stop_streams(session, ())
    with contextlib.suppress(Exception):
        session.sparkContext.cancelAllJobs()


def cancel_ours(session: "SparkSession", tag: str, others: Collection[str]) -> None:
    """In a session that others use, too: stop all streams but those with the run ids `others`, and cancel the jobs that
    have this tag. Never raises.
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
