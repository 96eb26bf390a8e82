"""The data source `rocketd` of Spark: reads and writes, in batches and streams.

`source` is the entry point, which Spark pickles and rebuilds for every query. `batch` and `stream` are the readers,
`arrow_schema` checks the requested columns, and `partition` runs in the tasks. `refused` delays an option error of a stream
until Spark can show it. The writers are in `rocketd.spark.sink` and `rocketd.spark.archive`.
"""

from rocketd.spark.datasource.source import RocketdDataSource

__all__ = ["RocketdDataSource"]
