"""Periodic work of an open store, on one thread: `rocketd-store-maintenance`.

- `maintenance`: the thread, and the task that flushes consume queues and writes the checkpoint.
- `disk_watch`: measures the disks and refuses writes if one is too full.
- `clean`: deletes expired log files, then the queue and index files for them.
- `log_begin`: records where the log begins, so a start notices missing old files (docs/decisions/0024).

A task runs in short steps, so the other tasks get their turn. Two orders must be kept. The beginning of the log is noted
before a log file is deleted. Queues are flushed before the checkpoint calls them durable, and only up to the end of the
flushed log.
"""
