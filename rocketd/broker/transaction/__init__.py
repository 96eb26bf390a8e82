"""Transactional messages: theory of operation.

A producer sends a half message, invisible to consumers, runs its local transaction, and ends it with END_TRANSACTION.
If the end never arrives, the broker checks back: it asks a producer of the group about the outcome. Everything is in
two system topics of one queue each, in Apache's form:

- RMQ_SYS_TRANS_HALF_TOPIC holds half messages. The package `send` writes them (`send.half_messages`, `send.processor`).
- RMQ_SYS_TRANS_OP_HALF_TOPIC holds op messages. Each one names the queue offset of a half message that has ended.

Parts:

- `processor` handles END_TRANSACTION. It reads the half message from the log, compares it with the request, and for a
  commit builds the message for consumers. It also handles the renewed check of a message that was given up.
- `service` stores ends, schedules the passes, sends the checks to producers, and keeps the progress.
- `check` is one pass over the half messages: each one is skipped, checked, renewed or given up.
- `op_messages` reads the ends that a pass needs. `half_copies` and `copy_search` know which half messages are copies.

Every check leaves a trace: before a producer is asked, the half message is stored again at the end of its queue, with
its number of checks. The copy replaces the original, so a pass only ever moves forward. After ``transactionCheckMax``
checks, or ``fileReservedTime``, the message goes to TRANS_CHECK_MAX_TIME_TOPIC.

Invariants:

1. The message for consumers and its op message share one write. So after a crash there are both or neither. A message
   for several queues does not fit into a batch. It is written first, and its op message second; if the second write
   fails, the commit is remembered, and the next end stores the op message only.
2. A producer is checked only after every op message stored by this broker has been read. Op messages are read in small
   pieces, and the newest may not be dispatched yet. After a start, the first pass waits until the whole log of that
   time is visible.
3. A message is committed once, even if a producer answers checks about two copies. `half_copies` remembers commits by the
   first copy. After a crash, `copy_search` finds copies between the saved progress and the end of the queue.
4. Progress is written only after a flush of everything it rests on. It is a pair of offsets: half messages before the
   first are done, and so are op messages before the second.
5. A record is committed only if it is in the topic of half messages. Otherwise a visible message could be shown twice.
6. A check that cannot store its copy ends the pass. The next pass tries the same message again.

Threads:

- The storage thread (`send-0`) stores ends and runs the passes, in slices of 10 ms between sends.
- The reactor thread calls `TransactionService.tick`, which only queues the next slice.
- `TransactionService.publish` waits for a flush. It runs in the admin pool's thread, and at the stop in a helper
  thread. It must not run in the storage thread, which would stop all sends, nor in the reactor thread.
- A lock guards the progress between `publish` and the start of a pass. Everything else belongs to the storage thread.
- Requests are answered in the thread that knows last: storage, flush, reactor or table writer.

A slave runs no passes and refuses ends. Its copies of both topics and of the offsets let it continue as a master.

See docs/howto/transactions.md for the behaviour, docs/decisions/0009 for the one storage thread, docs/decisions/0004
for answers from other threads, and docs/decisions/0011 for topics missing after a crash.
"""
