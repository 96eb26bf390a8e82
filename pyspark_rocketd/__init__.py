"""Found by Spark, which looks for packages of such names: makes `format("rocketd")` known without a register call."""

from rocketd.spark.datasource import RocketdDataSource as DefaultSource

__all__ = ["DefaultSource"]
