"""The job that rebuilds queues and index from the commit log.

`parts` reads each file of the log once and keeps its entries, by queue, in two files. `queue` makes the files of one
queue from them, and `index` the files of the index. `job` runs these steps, resumes an interrupted run, and puts the
result in place.

Invariant: nothing is deleted. Replaced files are kept in a directory within the store.
"""
