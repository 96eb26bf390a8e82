"""Requests of administrators: changes, state, statistics and searches.

`changes` and `accounts` modify tables, settings and accounts, and `clean_up` deletes queues and log files. `state`,
`statistics`, `runtime_info`, `consume_queue` and `query` only read. Most processors run in the admin pool, in which
connections take turns (docs/decisions/0026); `query` and `consume_queue` use the query pool, and `clean_up` runs in the
storage thread. A change is answered after its table is on disk.
"""
