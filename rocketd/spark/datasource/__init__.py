"""The data source `rocketd` of Spark: reads and writes, batch and streaming."""

from rocketd.spark.datasource.source import RocketdDataSource

__all__ = ["RocketdDataSource"]
