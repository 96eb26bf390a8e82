"""Pulls: reading messages for consumers, and long polling.

`processor` answers pulls. `pull_check` validates them and builds their filters. `long_polling` holds a pull without
messages until one arrives or its time is over. `slow_readers` disables groups too far behind, and `offset_moved` builds
the event stored when a group is moved to another offset.

All of it runs in the pull pool's one thread (docs/decisions/0009), with three exceptions. The dispatching thread
announces new messages to `LongPolling.arrived`. The storage thread stores the events of moved offsets, and answers a few
held pulls itself after it has made their messages visible. `LongPolling.guard` keeps pulls in one thread at a time.

Pulls run in the order of arrival. If many held ones are woken at once, connections take turns.
"""
