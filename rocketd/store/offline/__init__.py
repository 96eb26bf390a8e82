"""Examining and repairing a store that is not open. The commands are in `rocketd.tools.store.commands`.

- `stopped_store`: the files of the store, for reading. File sizes are taken from the files, without settings.
- `examine`, `examine_log`, `examine_queues`, `examine_index`: compare log, queues and index in one pass over the log.
- `repair`, `repair_log`, `repair_queues`: carry out the remedies.
- `summary`: a quick overview without checks.

An examination only reads. A repair never deletes: replaced files and bytes are kept in a directory `rocketd-repair-…`
of the store. A readable record is never overwritten, and queues and index are built from the log. The caller must hold
the store's lock or be certain that no broker writes.
"""
