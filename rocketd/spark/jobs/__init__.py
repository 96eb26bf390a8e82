"""The jobs of ``rocketd spark``, one module or folder for each; `rocketd.spark.cli` has their names.

`running` is the frame of every job: arguments, context, tasks, progress and report. `stopped_store` reads the files of
a stopped store for `verify`, `rebuild` and `restore`. A job is a function under `@job`, and its docstring is the help
text of the command.
"""
