"""An archive of messages in a directory, and its restore and replay: theory of operation.

An archive is a set of Parquet files, and a manifest that says which of them count. Spark's Parquet sink leaves files of
unfinished batches behind, and every reader except Spark takes them for data. Here only files named by a numbered commit
are in the archive, for every reader that asks the manifest (`reader.archive_files`).

Parts:

- `format` has the files of an archive. Among them, `layout` has the names of directories and files, `settings` the
  columns of an archive, `manifest` the content of a commit.
- `archive.Archive` holds the commits of one archive in memory, makes new ones, and sweeps files without a commit.
- `format.journal` is a directory of numbered JSON files, used for the commits and for the progress of restore and replay.
- `format.durable` writes files that exist completely or not at all, and has the lock between writers.
- `parquet` and `output` write Parquet files in tasks, with checksums (`crc32`) taken on the way.
- `planning` and `filling` fill an archive by the archive job. `sink` fills it by a write of Spark, `overlaps` finds
  duplicates.
- `broker_facts` collects the settings and tables of brokers for a later restore.
- `reader` and `selection` read messages back.
- `restore` makes a store from an archive. `replaying` sends the messages to topics again.

Life of a file:

1. A task writes it into the writer's directory below `staging`, and syncs it. It does not count yet.
2. The driver takes the lock (`lock`), and reads commits made by others since.
3. Under the lock, the file is renamed to its place below `data`, and the directories are synced.
4. The commit is written under another name, synced, and linked to the next number. Linking fails if the number is
   taken. Then the directory is synced. From here on the file counts.

A crash at any moment leaves only files that do not count. In `staging` they belong to their writer: a stream removes
those of its batch after the commit, and a week without a change makes them abandoned. Below `data` they belong to
nothing, and a later holder of the lock removes them.

Invariants:

- Files and commits are added, never changed. Only summaries of commits are rewritten; a missing summary only costs
  time.
- Numbers of commits have no gap. A missing number is an error, because its content is unknown.
- An archive of messages has each offset of a queue at most once. `Archive.commit` refuses ranges that overlap committed
  ones, and `overlaps` refuses duplicates within one write.
- The archive job commits the ranges of a queue in the order of their offsets. So an unknown hole is never left behind,
  whenever the job ends. Lost messages are recorded as gaps.
- The batch number of a stream is in its commit. A repeated batch finds it, and its new files are removed. If that batch
  has other messages than before, the commit is refused.
- All columns of `settings.NEEDED_COLUMNS` are present in an archive of messages. Without them a record cannot be
  restored to its place. Any other column can be parsed from `raw`.
- Checksums cover the whole file, and the records of a file one after the other. `reader.check_file` compares both.

Restore: each record returns to its old offset of the commit log, because messages are found by that offset. `fillers`
covers the space between records with rolled-back records, which both brokers skip. One task writes one log file.
Everything is made in a work directory below the target and renamed into place at the end, the commit log last. So no
broker can open half a store. The journal there lets a killed run resume. `checking` compares the result with the
archive byte for byte.

Replay: a batch takes the next offsets of every queue, cut in the same way each time. `rocketd.spark.sink.effectively_once`
delivers it, so each message is sent once. The target queues are fixed in the journal before the first send.

Threads and processes: tasks only write into `staging`. Commits are made by the driver, or by Spark's process beside it.
An `Archive` belongs to one thread and holds no file open between calls. `job.lock` keeps a second archive job out.

Do not break: the order rename, sync, commit. Do not remove a file below `data` without holding the lock. Do not use
flock for the lock, because a child process would inherit it.

Format: docs/formats/archive.md. Decision: docs/decisions/0018-spark-without-a-jar.md.
"""
