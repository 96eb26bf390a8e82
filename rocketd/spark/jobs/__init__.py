"""The jobs of ``rocketd spark``: each a module with a class `Job`, found by the table in `rocketd.spark.cli`."""
