"""The jobs of an archive: `job` writes it, `restore` makes a store from it, and `replay` sends its messages again.

The logic is in `rocketd.spark.archive`. Here are the arguments, the order of steps, and the reports.
"""
