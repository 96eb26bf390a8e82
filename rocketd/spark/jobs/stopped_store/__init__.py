"""The files of a stopped store as the jobs see them: log, queues, index, and the entries they should hold.

`arguments` has the shared options and the lock of the store. `log_scan` finds and checks records, many at a time.
`dispatched` computes the queue entries of records, and `index_keys` the index entries. `files` maps queue and index
files as arrays. All modules except `arguments` work on arrays and follow the rules of the store's code, which handles
records one by one.
"""
