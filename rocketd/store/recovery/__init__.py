"""Opening a store after a stop, a crash or a loss of files: theory of operation.

The log is the truth. Queues and index can be rebuilt from it; the log itself cannot. Recovery therefore answers two
questions: where does the log end, and which part of queues and index must be rebuilt?

**Three stops**

`state.last_stop` tells three stops apart by the file `abort`:

- CLEAN: the file is missing. All data is present. The last 64 MiB of the log are read as a check.
- KILLED: the file has the boot id of this run of the system. All written bytes can be read, flushed or not. Recovery
  begins where dispatch was, at most a second before the kill.
- CRASHED: anything else. Bytes not flushed may be missing or torn. Recovery begins where log and queues are known to be
  on disk (`state.checkpoint`), or as Apache does if the checkpoint is not ours.

The time of a start depends on the data in doubt, never on the size of the store.

**Order of a start (`MessageStore._recover`)**

1. `lost_log` refuses a store whose log, or its beginning, is gone.
2. `Recovery.plan` lists the work: `missing_files` compares file names with the notes (`file_notes`), and `queue_tails`
   compares the last entry of each queue with its record.
3. `Recovery.find_end` walks the log to its end. Nothing has been changed so far: a damaged log stops the start here.
4. The plan is written to the notes, then `abort` is marked as in doubt. From here on files are changed.
5. `Rebuild.cut_queues` cuts the queues of the plan, and `Recovery.apply` cuts log and queues to the end of the log.
   Kept bytes of the log are flushed, because it is unknown whether they reached the disk.
6. `Rebuild.carry_out` rebuilds the planned data, and `catch_up` dispatches the rest of the log. On a full disk the
   rest is left to the dispatching thread, and the store opens without it.
7. Queues are flushed, the plan is dropped from the notes, and `abort` gets the boot id (`mark_open`).

**Invariants**

- A whole record is never cut. Bytes that are not a record end the log only at a place that a crash can explain, after
  everything flushed. Otherwise the start fails with the place and the repair command, and nothing is changed.
- Everything after the end is zeroed, so old bytes never become valid again.
- The plan of a rebuild is on disk before anything is removed, and stays until all is rebuilt. A kill in between
  leaves the work to the next start.
- The plan is dropped only after the flush of its queues. The checkpoint names nothing as flushed before its flush.
- A start that fails leaves no thread behind: the index's flush thread writes the checkpoint. A stop waits for a start.
- Only cut queues are rebuilt. Otherwise messages of deleted topics would come back; `state.deletions` prevents it
  for records after a cut.
- An offset once given to a message is not given to another one, unless its topic was deleted.
- Holes of sparse files are never read through a mapping: a full memory file system answers with SIGBUS.

Everything here belongs to the thread that starts the store, except `FileNotes.note` (maintenance thread and others) and
`CatchUp.run` (dispatching thread).

Decisions: docs/decisions/0010 (data in doubt), 0011 (missing files), 0024 (the beginning of the log).
"""
