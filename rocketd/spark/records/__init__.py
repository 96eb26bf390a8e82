"""Commit-log records as Arrow columns, many records at a time.

`record_starts` finds the records of a buffer, size by size. `frames` reads their fixed fields with numpy and checks every
position. `properties`, `hosts` and `bodies` each build some columns, and `arrays` makes Arrow arrays from pieces of a
buffer. `parse` puts the columns together.

Invariants: no Python code runs for a single message, except to decompress a body or to check its CRC. Only the
requested columns are built. A record with wrong lengths raises StoreFilesError instead of giving wrong values. Damaged
bodies are detected only if their CRC is checked.
"""
