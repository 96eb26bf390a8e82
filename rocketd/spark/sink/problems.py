"""Errors of writes, apart from wrong options and refusals of servers."""

from rocketd.spark.errors import SparkError


class RowError(SparkError):
    """A row that cannot become a message: the text names the row and the fault."""


class SinkError(SparkError):
    """The staging folder or the ledger of a sink is damaged, in use or another's: the text names the remedy."""
