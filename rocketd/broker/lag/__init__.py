"""The lag of consumer groups, and problems within groups.

`measure` computes the lag with `counter`, which counts the messages a filter accepts. `group_guard` finds problems such
as differing subscriptions or unread queues. `processor` and `group_problems` answer administrators, with request codes
of rocketd (30001, 30002).

Counting may take seconds, so it runs in a separate pool. The guard may be used from any thread.
"""
