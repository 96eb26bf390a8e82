"""Reactors for engines if the application runs none: on an asyncio loop or in a background thread.

`asyncio_host` and `thread_host` own these reactors, which are never installed as the global one (`reactors`). `listeners`
and `worker_threads` run functions of the application. `fork` and `gevent_patches` refuse processes in which a client would
hang. `logs` passes log events to the standard ``logging``.

A reactor ends with its last client. A forked child uses nothing of its parent, and sends nothing to the parent's peers.
"""
