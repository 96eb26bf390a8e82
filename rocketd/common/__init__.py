"""Values and helpers shared by all layers: settings, names, properties, clocks, logs, command lines.

This package imports nothing of the other packages. Most modules are pure functions. Those with threads or files say so:
`log_files`, `table_writer`, `daemon`, `memory_return`, `log_throttle` and `stamp_clock`.
"""
