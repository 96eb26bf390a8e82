"""Ends what runs in Spark without a word of Java's about it."""

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cancel_all(session: "SparkSession") -> None:
    """Stop all streams and cancel all jobs. Never raises: whatever fails here was on its way out."""
    with contextlib.suppress(Exception):
        session.sparkContext.setLogLevel("OFF")
    with contextlib.suppress(Exception):
        for query in session.streams.active:
            with contextlib.suppress(Exception):
                query.stop()
    with contextlib.suppress(Exception):
        session.sparkContext.cancelAllJobs()


def stop_session(session: "SparkSession") -> None:
    """Stop Spark. Never raises."""
    with contextlib.suppress(Exception):
        session.sparkContext.setLogLevel("OFF")
    with contextlib.suppress(Exception):
        session.stop()
