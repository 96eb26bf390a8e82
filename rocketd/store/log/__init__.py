"""The commit log: one run of bytes in fixed-length files, appended to by one thread and read by many.

**Parts**

- `mapped_file`: one file of the log, which is appended to with pwrite.
- `queue_file`: one file of a consume queue, which is appended to through its mapping; how many are mapped.
- `mapped_file_queue`: the files of one directory as one run of bytes; `multi_path` those of several directories.
- `log_paths`: the directories, and the place of the next file.
- `allocate`: creates the next file ahead of its use.
- `commit_log`: the log for readers: records and views by offset.
- `append`: composes groups of messages and writes each group with one pwrite per file.
- `flush`: calls fdatasync and answers senders that wait for the disk.
- `replica_log`, `replicated`, `transfer`: a slave's copy of the log, the progress of slaves, and the frames between.

**Threads**

- The storage thread (`send-0` of the broker) is the only one that appends. It owns `append`, `replica_log`,
  `CommitLog.next_file` and `ReplicatedOffset.when_replicated`.
- `rocketd-store-flush` flushes; `rocketd-store-flush-watch` answers overdue senders under SYNC_FLUSH.
- `rocketd-store-allocate` creates files.
- Any thread reads below `wrote_position`.
- The thread of the replication connections owns the rest of `replicated`.

**Invariants**

1. A record is written before `wrote_position` moves past it, so a reader never sees part of a record.
2. A view keeps its mapping alive. A file is never unmapped under a reader, even if its name is removed.
3. Bytes after the end of the log are zero. A failed write is cleared, because its remains could become valid when a
   later record ends where they begin.
4. The name of a file is on disk before the file is used. Names disappear from the oldest file on, so no gap appears in
   the middle of the log.
5. After a failed fdatasync nothing is flushed again: the kernel forgets the failed pages and would report success the
   next time. FLUSH_ERROR then refuses appends until a restart.
6. Store times never decrease, because searches by time rely on it.
7. The log of a slave always ends after a whole record (docs/decisions/0014).

Do not hold a lock over disk access on the append path, do not call `msync` (it does not release the GIL), and do not
write a record in pieces. Reasons: docs/decisions/0019 and 0024; recovery of the log is in `rocketd.store.recovery`.
"""
