"""The job that measures the lag of consumer groups.

`sample` reads committed offsets and queue bounds, from brokers or from a store's files. `table` computes lag, rates and
remaining time from samples. `job` is the command; it does not start Spark.
"""
