"""Connected producers and consumers, and requests relayed to them.

`heartbeats` fills the tables of `producers` and `consumers`; `last_subscriptions` remembers the subscriptions of
offline groups. `consumer_requests` answers consumers, and `queue_lock_requests` with `queue_lock_table` serves ordered
consumption. `broker_to_client` sends requests to clients; `relay`, `offset_reset` and `reply` use it.

The tables are locked and may be used from any thread. No thread waits for a client: its answer arrives as a Deferred,
and the request behind it is answered then. Heartbeats over 16 KB run in steps, connections taking turns
(`base.interleaved_work`).
"""
