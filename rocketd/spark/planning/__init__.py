"""Planning: which queues, offsets and messages a read covers, computed from a `Catalog`.

`queues` chooses the queues and `offsets` turns positions of the options into offsets. `losses` finds messages that are
gone. `batch` combines them for a batch read. `follow` watches the ends of a stream's queues, `limits` bounds a
micro-batch, and `checkpoint` is the format of its offsets. `splits` cuts ranges into tasks.

Invariant: a range is fixed once, before any task runs. So every attempt of a task reads the same messages. All modules
are pure, apart from questions to the catalog and pauses in `follow`.
"""
