"""The broker's tables: topics, groups, offsets and filters, and their files in ``config/``.

`topics`, `groups`, `offsets` and `filters.consumer_filters` each keep one table in memory and in one file, in Apache's
form. A change takes effect in memory at once. The thread `rocketd-tables` writes it, together with other waiting changes.
Administrators are answered after the write, as are senders to a topic created by their send (`durability`).

Look-ups take no lock: a topic, group or filter in a table is never changed, only replaced. `new_names` limits the names
that clients may create. `implied_topics` and `missing_tables` deal with tables that lack topics of the log
(docs/decisions/0011, 0008).
"""
