"""Consume queues, and the dispatch that fills them and the key index from the log.

- `consume_queue`: the entries of one topic and queue id. `consume_queue_ext`: their extension for filters.
- `consume_queue_table`: all queues of the store.
- `dispatch`: the dispatching thread `rocketd-store-reput`. It takes groups from the storage thread without parsing, or
  reads the log if it has fallen behind.
- `multi_dispatch`: messages with further queues, such as light queues.
- `record_run`: the records of consecutive entries, for reads of all messages or of some tags. Compiled if a C compiler is
  present.
- `entry_finder`: records of damaged entries, while the broker runs.

The dispatching thread alone adds entries; any thread reads them. The log is the truth: an entry can always be made
again from its record, so a failed or repeated dispatch must be harmless. `ConsumeQueue.put` therefore skips records
that have their entry already. Dispatch must follow the order of the log, and entries must never be on disk before the
records they point to count as flushed (see `rocketd.store.upkeep.maintenance`).
"""
