"""The common part of the three faces, for Twisted, asyncio and blocking programs.

A face is a client's options and its lifecycle; the work is done by an engine in the reactor thread. `push`, `pull` and
`admin` have the options, `lifecycle` the opening and closing. `twisted_lifecycle`, `aio_lifecycle` and `sync_lifecycle`
differ only in the reactor and in how a call is made. Nothing is opened before ``open``: no thread, socket or reactor.

Decision: docs/decisions/0017.
"""
