"""The remoting layer: theory of operation.

Apache's remoting protocol on Twisted, used by name server, broker and clients alike. A request takes four steps from
the socket to its answer:

1. Framing. `wire.frame` cuts the byte stream into frames `(serialize type, header, body)`, without I/O. A frame is
   never parsed while it is incomplete, and bytes that are not a frame close the connection.
2. Dispatch. `serving.dispatch` peeks at the request code without decoding, and maps it to its target: a pool and a
   handler. All frames of one read for one target become one job. Headers of an unusual form go through the decode pool
   first.
3. Pools. `serving.pools` runs jobs on named threads. Only there are headers decoded (`wire.command`, `headers`), hooks
   called and processors run.
4. Answers. The pool's thread encodes the answer and writes it to the socket itself if nothing else is pending
   (docs/decisions/0004). Otherwise the reactor writes it.

Our own requests take the opposite way: `calling.client` and `calling.invoke` send them, `calling.rpc` matches answers
by opaque, `calling.permits` bounds their number, and each ends exactly once.

**Threads**

- The reactor thread owns timers, and everything in `calling` unless a docstring says otherwise.
- Connections, with their frames and dispatch, belong to the reactor thread, or to the thread of a pool that reads its
  connections itself (`serving.lane`).
- Pool threads own decoding, hooks and processors. They may call `Connection.write`, `RequestContext.answer` and methods
  named `*from_thread`.

A pool thread never waits for the reactor thread, and the reactor thread never waits for a lock that a pool thread holds
for long.

**Pools**

Each kind of request has a pool, so slow requests of one kind do not delay others. A pool with one thread keeps the order
of a connection's requests (docs/decisions/0009). In pools with turns, each connection gets one job per turn
(docs/decisions/0026).

**Limits**

Memory is bounded per peer and in total (`limits`, docs/security.md):

- connections in total and per address, and TLS handshakes by time (`admission`),
- incomplete frames by bytes and by speed (`frame_budget`),
- queued requests by number and bytes in each pool: at half of a bound the connection is paused, above it requests are
  refused with SYSTEM_BUSY, and one-way requests are held,
- unsent answers per connection and in total (`unsent_budget`): a peer that does not read is not served.

Each limit is counted, and logged at most once a minute (`limit_log`). A change must not add a queue without a bound.

Subpackages: `wire` (bytes), `headers` and `bodies` (typed content), `fastjson` (Apache's JSON dialect, docs/decisions/0007),
`tls`, `limits`, `calling` (client side), `serving` (server side). The formats are in docs/formats/remoting.md.
"""
