"""A broker's store as a data source, read from its files without the broker.

`tree` is the store as a `Catalog`. `files` opens log and queue files beside a broker that may be writing them.
`reading` turns a range of offsets into batches: entries first, then records. `log_directories` locates the commit log.

Invariants: nothing in the store is ever changed. Every offset of a range is accounted for: it is returned, filtered
out, or reported as lost. A record is compared with its entry before it is used.
"""
