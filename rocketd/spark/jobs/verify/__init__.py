"""The job that checks every byte of a store.

`log_file` checks one file of the log with its queue and index entries, many records at a time. It only proves that all
is well. If it cannot, `closely` runs the store's examination for that part, record by record, and returns the findings.
`tasks` checks single queues and index files, `extension` the extensions of queues. `task_values` are the values sent to and
from tasks, and `job` combines them.
"""
