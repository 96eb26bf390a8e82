"""Command line tools: the commands of ``rocketd``, except those of Spark.

`cli` lists the commands, and `command_groups` those below ``rocketd broker``, ``topic`` and other groups. `base` has the
client of the commands for a cluster, with its options, and runs them on the reactor.
"""
