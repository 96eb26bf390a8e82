"""The broker: theory of operation.

The broker keeps messages of producers in one store and serves them to consumers. Each subpackage has one subject. An
import only goes down this list, which import-linter enforces (setup.cfg):

- `service`, `tap`: composition, start and stop, the command. `parts` wires the parts without reactor or sockets.
- `registration`, `name_server_addresses`: name servers. `fast_failure`: refusals of requests that waited too long.
  `start_fault`: trial of changed settings.
- `admin`: requests of administrators.
- `transaction`: ends of transactions and checks. `timer`: delayed and timed messages.
- `lag`: lag of consumer groups, and their problems.
- `clients`: connected producers and consumers. `pull`: pulls, long polling.
- `send`: sends, batches, retries.
- `replication`: master and slave. `stats`: counters.
- `tables`: topics, groups, offsets, filters. `access`: accounts and permissions.
- `base`: settings, interfaces, refusals.

Request path:

1. The reactor thread, or the pool's thread if it reads its connections itself, reads a connection and cuts frames
   (`rocketd.remoting`). The dispatcher peeks at the request code and finds its target, a pool and a handler. All frames
   of one read for one target become one job.
2. twisted/plugins/rocketd_broker_processors.py declares the processors: name, pool, codes, class. Third parties add
   processors in the same way. `Broker.startService` loads them.
3. The pool's thread decodes the header, calls the hooks (`access`), and calls the processor. A processor returns its
   answer, a Deferred of it, or None: then it calls ``context.answer`` later, from any thread.
4. The processors of sends, pulls and ends of transactions take whole jobs instead, so that one call handles many
   requests (docs/decisions/0009).

Pools have one thread each, named ``<pool>-0``:

- ``send``: the storage thread. Sends, ends of transactions, deliveries of delayed messages, replicated data.
- ``pull``: pulls, held pulls. ``query``: searches by key and id.
- ``consumer``: offsets and members of groups. ``client``: closed and silent connections. ``heartbeat``, and
  ``heartbeat-long`` for long ones.
- ``reply``: request-reply. ``lag``: measurements of lag. ``admin``: tables and settings; here connections take turns
  (docs/decisions/0026).

Other threads: the store's (`rocketd.store`), the timer thread (`timer`), the writer of tables (`rocketd-tables`), and
the callback executor, which decodes clients' answers.

Invariants:

- Only the storage thread appends. Every other thread hands over a function with ``dispatcher.pool("send").call``. The
  exception is a slave without TLS: the thread `rocketd-replica` appends its master's log.
- A processor never blocks on a client, a slave or a flush: it answers later.
- A send is answered with success only after the steps that the settings ask for: flush, replication, and the entry of an
  auto-created topic (`send.durability`, `tables.new_name_durability`).
- Each class says which thread owns which method. Tables read by several threads are locked, or their entries replaced.
- A subpackage sees the broker through the protocol in its ``parts.py``, which names no type of a subpackage above.
- The start opens parts in the order of their dependencies, and the stop closes them in the opposite order. Acknowledged
  messages survive both.

A master with name servers serves only after it has asked them for another master of its name
(`replication.single_master`). docs/architecture.md draws the path of a message; docs/decisions has the reasons.
"""
