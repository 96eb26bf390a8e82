"""Delayed and timed messages: delay levels, and messages with a delivery time.

Both kinds wait in the log (docs/decisions/0015). `schedule` delivers the queues of the delay levels, which
`delay_levels` parses. For delivery times, `redirect` moves messages to the timer topic, `reader` reads it into the
SQLite table of `table`, and `service` delivers due messages; `records` is the format. The table can always be rebuilt
from the topic: a message counts as delivered only after its note in the topic.

Threads: the timer thread owns reader and table, the storage thread does every append. `schedule` runs in the storage
thread. docs/howto/timer-messages.md describes the behaviour for users.
"""
