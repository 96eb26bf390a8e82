"""Found by Spark through the package name: makes `format("rocketd")` available without a register call."""

from rocketd.spark.datasource import RocketdDataSource as DefaultSource

__all__ = ["DefaultSource"]
