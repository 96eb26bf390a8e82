"""The key index: finds messages of a topic by key and time.

- `file`: one index file, a hash table on disk.
- `service`: all files of the directory, one filled after another.
- `entries`: keys of dispatched messages as index entries.
- `layout`: sizes.

The dispatching thread writes; any thread searches at the same time. An entry is written before the slot that points to
it, and counted last, so a reader never follows an unfinished entry. Finished files are flushed in the background. Only
the checkpoint tells which files are flushed, so it must never pass a file that is not flushed. The format is described in
docs/formats/index_file.md.
"""
