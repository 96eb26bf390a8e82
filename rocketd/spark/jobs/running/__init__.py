"""The frame of every job: its arguments, context, tasks, progress and report.

`command` turns a function into a command, with options declared by `options` and shared ones from `arguments` and
`targets`. `context` starts Spark on first use and stops it. `tasks` runs a function over items in Spark's tasks.
`frames` reads messages as DataFrames. `progress` draws the bar, `report` prints the result, and `interrupts` turns
signals into an orderly end.
"""
