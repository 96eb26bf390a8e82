"""Consumers: theory of operation.

A consumer is one member of a group. The members share the queues of their topics. Each pulls its queues, has the messages
handled or hands them out, and stores per queue the offset of the next message to consume.

**Parts**, from the kinds of consumers down

- `push_consumer`: pulls by itself and calls a handler. `lite_pull_consumer`: pulls ahead for `poll`. `pull_consumer`:
  pulls only on request; the application chooses queues and offsets.
- `membership`: `group_member.GroupMember`, the base of all consumers, holds subscriptions, assigned queues, offsets and
  timers. The positions of a `seekable_member.SeekableMember` can be read, changed and stored. `rebalance` computes this
  member's share every 20 s (by default) and after each change of the group. Then queues are taken and given up;
  `rebalance_listener` tells the application.
- `handling`: `concurrent` (orders `none` and `key`, with `keyed_order`) and `orderly` (order `queue`) start handlers.
  `handler` calls the application, with the hooks of `hook_calls` around it, and makes an `Outcome` of the result.
  `chunks`: several messages for one thread, if the handler is a fast plain function. See below.
- `retries`: `send_back` and `retry_sender` return messages that are to come again to their broker, or else to any broker.
  `dead_letter_reader` reads those that will not, and `redrive` sends them again.
- `pulling`: `assigned_queue.AssignedQueue` is one queue of the share. It has a `process_queue.ProcessQueue` (`held`) with
  the messages pulled but not finished, and a `queue_puller.QueuePuller`, which runs long polls one after the other.
  `queue_locks` asks the brokers for exclusive queues (order `queue`).
- `offsets`: the first offset of a queue, and the stored offsets: at the brokers (clustering) or in a file (broadcasting).
- `options`: what an application chooses. Above a limit of `flow_limits` the puller waits; it is woken when messages are
  finished. `allocation` has the strategies that share queues.

**Way of a message**

`QueuePuller` pulls it, filters it by tag and hooks, and puts it into `held`. `GroupMember.pulled` passes it to the
consumption. A handler runs. If the message is consumed, it is removed from `held`, the offset moves on in memory, and the
puller is woken. If it is to come again, it is first given back to a broker and then removed. If no broker takes it, it
stays in `held` and is tried again here. With order `queue` it always stays and holds its queue, until its tries are used up
and a broker takes it as a dead letter. With order `key` it holds only its key. Offsets are stored every 5 s (by default),
at once after a queue has run empty (`early_commits` of `offsets`, at most twice per second), when a queue is given up, and
when the consumer stops.

**Reconnects**

A broker forgets a member with its connection, and the others take its queues. So a member that has lost its connection
sends a heartbeat before its next pull. If a list of members lacks this member, its broker gets a heartbeat and is asked
again; without a confirmation the share stays. For one heartbeat interval after a loss, members missing in the list still
count: a broker that has begun again learns of them one heartbeat after the other.

**Chunks**

A hand-off to a thread and back costs more than a short handler. So a plain function gets as many messages of one queue at
once as it probably handles in 1 ms, 32 at most. The thread calls the handler for one after the other, and reports the
results together. This must not be noticed from outside:

- A chunk takes one of the `concurrency` places. It ends with the first result that is not a success, which is then
  processed as that of a single message.
- Messages that the thread has not begun can be taken back at any time: if the handler has not ended for 5 ms, other
  threads get them, or the same one later with order `queue`. If the consumer stops or the queue is given up, they are not
  handled here.
- The start of a message is noted for `consume_timeout` at its hand-off, or when it is found running for 5 ms.
- With hooks around the handler, messages are handed over one by one: hooks run in the reactor thread.

**Threads**

Everything belongs to the reactor thread, without locks. In this package only two things run elsewhere: plain
functions of the application, in `GroupMember.threads`, and reads and writes of the offset file, in a thread of that store.
A chunk is shared with its thread through two deques, whose single steps need no lock. Hooks run in the reactor thread. A
coroutine may find the consumer stopped or the queue dropped after each `await`, and must check again.

**Invariants**

- A message leaves `held` only if it is finished: consumed, polled, taken by a broker, or left behind by a broadcasting
  consumer.
- Unless the application sets it, the remembered offset is never above the lowest offset in `held`. After a crash messages
  come twice, but none is lost.
- After `held.dropped` is set, results of handlers no longer count: the queue may belong to another member. With order
  `queue`, that of the running handler counts, because the lock is kept until it has ended.
- A reset or a seek replaces the `AssignedQueue` by a fresh one. Late answers and results find the old one dropped.
  A reset drops a queue that is being given up, without a fresh one.
- Giving up has a fixed order: stop the puller, wait for the handler (order `queue` only), store the offset, unlock.
  Unlocking earlier would let the next member begin before this one has ended.
- Taking has the reverse order: lock, then read the stored offset. An offset read before the lock may be out of date.
- The refusal of a broker never means "no offset": the queue would begin at its end or beginning. The queue is taken later.
- All members must compute the same shares: same strategy, lists sorted as in Java, each member counted once.
- Without `oneway`, one request per queue stores an offset at a time. Otherwise an older offset might arrive last.
- A pull commits an offset on its way only if nothing of the queue is under way, for the same reason.

Decisions: docs/decisions/0017 (engine and faces), 0020 (threads of the client).
"""
