"""Counters of a broker.

`broker_stats_manager` counts per topic and group, over a minute, an hour and a day, for VIEW_BROKER_STATS_DATA;
`stats_item` is one such counter, and `names` has the keys. `store_stats` counts stored and read messages in total, and
`put_times` the durations of puts, for brokerStatus.

The counters per topic and group take no lock: the storage thread or the pull pool's thread owns each of them.
"""
