"""What goes wrong with a write, beside bad options and servers that refuse."""

from rocketd.spark.errors import SparkError


class RowError(SparkError):
    """A row that cannot be a message: the text names the row and what is wrong with it."""


class SinkError(SparkError):
    """The staging folder or the ledger of a sink is damaged, in use or another's: the text says what to do."""
