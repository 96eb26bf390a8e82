"""Values and helpers shared by all layers: settings, names, properties, clocks, logs, command lines.

This package imports nothing of the other packages. Most modules are pure functions. Those with threads or files say so:
`logs`, `table_writer`, `process.daemon`, `process.memory_return` and `stamp_clock`.
"""
