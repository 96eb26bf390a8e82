"""Concurrent consumption: messages are handled at once, or one after the other only within a key.

Counterpart: `ConsumeMessageConcurrentlyService` (Apache). Reactor thread.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.consumer.handling.chunks import (
    CHUNK_CHECK_SECONDS,
    CHUNK_SECONDS,
    Chunk,
    ChunkSize,
    has_consequences,
)
from rocketd.client.consumer.handling.coroutine_chunks import CoroutineChunk
from rocketd.client.consumer.handling.handler import CONSUMED, Handler, Outcome, Verdict
from rocketd.client.consumer.handling.keyed_order import KeyedOrder
from rocketd.client.consumer.offsets.offset_store import OffsetStore
from rocketd.client.consumer.options.kind_options import ConsumerOptions, Order
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue, PulledMessage
from rocketd.client.consumer.retries.handler_results import DEAD_LETTER
from rocketd.client.consumer.retries.send_back import SendBack
from rocketd.client.instance.all_of import all_of, end_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.settings.config import milliseconds
from rocketd.common.event_loop import timers
from rocketd.common.message_properties import KEYS

AGAIN_HERE_SECONDS = 5.0
"""Delay before a message is tried again here after no broker took it back."""

MAX_REST_SECONDS = 60.0
"""Greatest pause of a key after a failure, unless the handler or ``suspend_time`` says more."""

EXPIRED_LEVEL = 3
"""Delay level of messages handled for too long."""


class Consumes(Protocol):
    """The methods of a consumer needed here."""

    instance: ClientInstance
    options: ConsumerOptions
    offsets: OffsetStore
    handler: Handler[Any]
    send_back: SendBack
    concurrency: int

    def finished(self, assigned: AssignedQueue, count: int, outcome: Outcome, took_ms: float, calls: int = 1) -> None:
        """Count finished messages of ``calls`` calls of the handler."""

    def ran_empty(self, assigned: AssignedQueue) -> None:
        """Store the offset of a queue soon, because all messages held are finished."""

    def stop_taking(self) -> None:
        """Take no more messages, on the handler's request."""


class _Run:
    """Messages passed to a handler. ``ended`` fires after the handler has ended and its outcome is processed.

    ``done`` is the handler's work. It exists only after the handler's first wait.
    """

    __slots__ = ("assigned", "began_ms", "checked", "chunk", "done", "ended", "pulled", "result", "seen")

    done: Deferred[Any]

    def __init__(
        self, assigned: AssignedQueue, pulled: list[PulledMessage], began_ms: int, chunk: Chunk | None = None
    ) -> None:
        self.assigned = assigned
        self.pulled = pulled
        self.began_ms = began_ms
        self.chunk = chunk
        self.ended: Deferred[None] = Deferred()
        self.result: object = None  # the last result of the chunk, if it has consequences
        self.checked = False  # the chunk has no further messages or results before its end
        self.seen: PulledMessage | None = None  # the message that ran at the last check


class ConcurrentConsumption:
    """Messages waiting for a handler, and messages in handlers."""

    log = Logger()

    def __init__(self, consumer: Consumes) -> None:
        self._consumer = consumer
        self._waiting: deque[tuple[AssignedQueue, list[PulledMessage]]] = deque()
        self._running: set[_Run] = set()
        self._again: set[Deferred[None]] = set()
        self._halted = False
        self._stopped = False
        self._filling = False
        self._idle: Deferred[None] | None = None
        self._chunk_size = ChunkSize()
        self._successors: set[AssignedQueue] = set()  # waiting for handlers that began before a seek
        self._checking: IDelayedCall | None = None

    def submit(self, assigned: AssignedQueue, new: Sequence[PulledMessage]) -> None:
        """Accept pulled messages."""
        if self._consumer.options.order is Order.KEY:
            if assigned.order is None:
                assigned.order = KeyedOrder(self._key_of(assigned), self._consumer.concurrency)
            assigned.order.put(new)
            self._take_keyed(assigned)
        else:
            size = self._consumer.options.batch
            for begin in range(0, len(new), size):
                self._waiting.append((assigned, list(new[begin : begin + size])))
        self.fill()

    def take_concurrency(self, queues: Iterable[AssignedQueue]) -> None:
        """Apply a changed concurrency to all queues."""
        for run in self._running:
            self._take_back_rest(run)
        for assigned in queues:
            if assigned.order is not None:
                assigned.order.concurrency = self._consumer.concurrency
                self._take_keyed(assigned)
        self.fill()

    def fill(self) -> None:
        """Start handlers up to the concurrency."""
        if self._filling:
            return  # a handler ended at once: the outer call continues
        self._filling = True
        try:
            while self._waiting and len(self._running) < self._consumer.concurrency and not self._halted:
                assigned, pulled = self._waiting.popleft()
                if assigned.is_ending:
                    continue
                if self._consumer.handler.in_chunks and pulled[0].key_error is None:
                    self._start_chunk(assigned, pulled)
                else:
                    self._start(assigned, pulled)
        finally:
            self._filling = False

    def halt(self) -> None:
        """Start no more handlers until ``resume``."""
        self._halted = True
        for run in self._running:
            self._take_back_rest(run)

    def withdraw(self, assigned: AssignedQueue) -> None:
        """Start no more handlers for a queue that is dropped now. The results so far still count."""
        filling, self._filling = self._filling, True  # a finished key must not start the next message of the queue
        for run in list(self._running):
            if run.assigned is assigned and run.chunk is not None:
                run.chunk.take_back()
                self._take_results(run, run.chunk)
        self._filling = filling

    async def let_end(self, queues: Collection[AssignedQueue], seconds: float) -> None:
        """Wait for the running handlers of queues, at most for this time."""
        running = [run.ended for run in self._running if run.assigned in queues]
        if not running:
            return
        ended = Deferred.fromCoroutine(all_of(map(end_of, running)))
        try:
            await ended.addTimeout(seconds, self._consumer.instance.reactor)
        except DeferredTimeoutError:
            return

    def resume(self) -> None:
        """Start handlers again."""
        self._halted = False
        self.fill()

    async def stop(self, grace_ms: float) -> None:
        """Start no more handlers. Wait for the running ones, and cancel them after ``grace_ms``."""
        self._halted = self._stopped = True
        for run in self._running:
            self._take_back_rest(run)
        self._waiting.clear()
        for again in list(self._again):
            again.cancel()
        if not self._running:
            return
        self._idle = Deferred()
        reactor = self._consumer.instance.reactor
        limit = reactor.callLater(grace_ms / 1000, self._cancel_all)
        await self._idle
        if limit.active():
            limit.cancel()

    def _cancel_all(self) -> None:
        self.log.warn("{count} handlers are cancelled, as the grace time is over", count=len(self._running))
        for run in list(self._running):
            if run.chunk is not None:
                self._take_results(run, run.chunk)
            run.done.cancel()
        # A plain function in a thread cannot be ended: its result is ignored.
        self._end_of_all()

    # ------------------------------------------------------------ one handler

    def _start(self, assigned: AssignedQueue, pulled: list[PulledMessage]) -> None:
        consumer = self._consumer
        run = _Run(assigned, pulled, int(consumer.instance.clock_ms()))
        assigned.held.begin(pulled, run.began_ms)
        self._running.add(run)  # before the handler begins, because it may stop the consumer at once
        error = next((one.key_error for one in pulled if one.key_error is not None), None)
        if error is None:
            run.done = consumer.handler.consume(assigned.queue, pulled)
        else:
            run.done = consumer.handler.failed(error, assigned.queue, pulled, "the key")
        run.done.addCallback(self._handled, run)
        run.done.addErrback(lambda failure: self.log.failure("consuming {queue} failed", failure, queue=assigned))
        run.done.addCallback(self._ended, run)

    def _ended(self, _: object, run: _Run) -> None:
        self._running.discard(run)
        if run.assigned.puller is not None:
            run.assigned.puller.wake()
        for successor in [one for one in self._successors if one.queue == run.assigned.queue]:
            self._successors.discard(successor)
            self._take_keyed(successor)
        self.fill()
        run.ended.callback(None)
        if not self._running:
            self._end_of_all()

    def _end_of_all(self) -> None:
        idle, self._idle = self._idle, None
        if idle is None:
            return
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None
        idle.callback(None)

    # ------------------------------------------------------------ chunks

    def _start_chunk(self, assigned: AssignedQueue, pulled: list[PulledMessage]) -> None:
        """Give these messages, and more of the queue for a fast handler, to one thread or coroutine."""
        consumer, waiting = self._consumer, self._waiting
        messages = []
        began_ms = int(consumer.instance.clock_ms())
        size = self._chunk_size.size
        while True:
            try:
                messages.append((consumer.handler.messages(assigned.queue, pulled)[0], pulled[0]))
            except Exception:
                if not messages:
                    self._start(assigned, pulled)  # it fails, and the message comes again
                    return
                waiting.appendleft((assigned, pulled))
                break
            if len(messages) >= size or not waiting or waiting[0][0] is not assigned:
                break
            if waiting[0][1][0].key_error is not None:
                break
            pulled = waiting.popleft()[1]
        chunk = consumer.handler.chunk(messages)
        first = [messages[0][1]]
        assigned.held.begin(first, began_ms)
        run = _Run(assigned, first, began_ms, chunk)
        self._running.add(run)
        run.checked = len(messages) == 1 or isinstance(chunk, CoroutineChunk)
        run.done = consumer.handler.work_off(chunk, lambda: self._rest_waits(run, chunk, len(messages)))
        run.done.addCallbacks(lambda _: self._worked_off(run, chunk), lambda failure: failure.trap(CancelledError))
        run.done.addErrback(lambda failure: self.log.failure("consuming {queue} failed", failure, queue=assigned))
        run.done.addCallback(self._ended, run)
        if not run.checked and self._checking is None:
            self._check_later()

    def _worked_off(self, run: _Run, chunk: Chunk) -> Deferred[None] | None:
        """Process the results of a chunk, whose thread has ended."""
        self._take_results(run, chunk)
        self._take_back_rest(run)
        run.chunk = None
        if run.result is None:
            return None
        handled = self._consumer.handler.outcome(run.result, run.assigned.queue, run.pulled)
        run.result = None
        return handled.addCallback(self._handled, run)

    def _rest_waits(self, run: _Run, chunk: Chunk, count: int) -> None:
        """Pass the rest of a chunk with ``count`` messages on, because the coroutine of one of them waits."""
        self._chunk_size.add_endless(CHUNK_SECONDS)
        if count == 1:
            return
        self._take_results(run, chunk)
        self._take_back_rest(run)
        running = chunk.running()
        if running is not None:
            run.assigned.held.begin([running[0]], int(self._consumer.instance.clock_ms() - running[1] * 1000))
        self.fill()

    def _take_results(self, run: _Run, chunk: Chunk) -> None:
        """Finish the consumed messages of a chunk, and keep a result with consequences for the chunk's end."""
        results = chunk.results()
        if not results:
            return
        consumer = self._consumer
        now = int(consumer.instance.clock_ms())
        seconds = sum(took for _, _, took in results)
        self._chunk_size.add(len(results), seconds)
        last, result, took = results[-1]
        if result is not None and has_consequences(result):
            run.result = result
            run.pulled, run.began_ms = [last], now - int(took * 1000)
            run.assigned.held.begin(run.pulled, run.began_ms)
            results.pop()
            seconds -= took
        if results:
            count = len(results)
            consumer.finished(run.assigned, count, CONSUMED, seconds * 1000, count)
            self._remove(run.assigned, _finished([pulled for pulled, _, _ in results]), now)
            if run.assigned.puller is not None:
                run.assigned.puller.wake()

    def _take_back_rest(self, run: _Run) -> None:
        """Let the messages that a chunk has not begun wait for any thread again."""
        if run.chunk is not None:
            rest = run.chunk.take_back()
            self._waiting.extendleft((run.assigned, [pulled]) for pulled in reversed(rest))

    def _check_later(self) -> None:
        self._checking = self._consumer.instance.reactor.callLater(CHUNK_CHECK_SECONDS, self._check_chunks)

    def _check_chunks(self) -> None:
        """Take messages back from chunks whose handler is slow, and take their results so far."""
        self._checking = None
        unchecked = False
        for run in list(self._running):
            chunk = run.chunk
            if chunk is None or run.checked:
                continue
            self._take_results(run, chunk)
            running = chunk.running()
            if running is not None and running[0] is run.seen:
                if not chunk.has_more:
                    began_ms = int(self._consumer.instance.clock_ms() - running[1] * 1000)
                    run.assigned.held.begin([running[0]], began_ms)
                    run.checked = True
                    continue
                self._chunk_size.add_endless(running[1])
                self._take_back_rest(run)
            run.seen = None if running is None else running[0]
            unchecked = True
        if unchecked:
            self._check_later()
        self.fill()

    # ------------------------------------------------------------ outcomes

    def _handled(self, outcome: Outcome, run: _Run) -> Deferred[None] | None:
        consumer = self._consumer
        now = int(consumer.instance.clock_ms())
        consumer.finished(run.assigned, len(run.pulled), outcome, now - run.began_ms)
        if outcome.verdict is Verdict.CONSUMED:
            self._remove(run.assigned, _finished(run.pulled), now)
        elif outcome.verdict is Verdict.LEFT:
            self._waiting.appendleft((run.assigned, run.pulled))
            consumer.stop_taking()
        else:
            return Deferred.fromCoroutine(self._take_back(run.assigned, run.pulled, outcome))
        return None

    async def _take_back(self, assigned: AssignedQueue, pulled: list[PulledMessage], outcome: Outcome) -> None:
        if assigned.order is not None and self._keeps_place(assigned, pulled[0], outcome):
            return
        for one in pulled:
            if not _is_given_back(one):
                assigned.held.rest(one)  # it does not expire, even if brokers take minutes to answer
        done = await self._give_back(assigned, pulled[outcome.done :], outcome)
        self._remove(assigned, [*_finished(pulled[: outcome.done]), *done], int(self._consumer.instance.clock_ms()))

    def _remove(self, assigned: AssignedQueue, done: Sequence[PulledMessage], now_ms: int) -> None:
        """Remove finished messages and move the offset on."""
        offset = assigned.held.remove(done, now_ms)
        if assigned.held.dropped:
            return
        if offset is not None:
            self._consumer.offsets.update(assigned.queue, offset, True)
            if not assigned.held.count:
                self._consumer.ran_empty(assigned)
        if assigned.order is not None:
            for pulled in done:
                assigned.order.done(pulled)
            self._take_keyed(assigned)

    def _keeps_place(self, assigned: AssignedQueue, pulled: PulledMessage, outcome: Outcome) -> bool:
        """Have a failed message wait for its next try here, in front of the others of its key.

        Return False if it has no key, cannot be read, is to become a dead letter, or was given back as expired.
        """
        if _is_given_back(pulled):
            return False
        spent = outcome.delay_level == DEAD_LETTER or pulled.reconsume_times >= self._consumer.send_back.limit
        if spent or outcome.is_unreadable or assigned.held.dropped or not assigned.order.rest(pulled):
            return False
        assigned.held.rest(pulled)
        seconds = outcome.wait_seconds
        if seconds is None:
            tries = pulled.reconsume_times - pulled.record.reconsume_times
            seconds = rest_seconds(self._consumer.options, tries)
        pulled.reconsume_times += 1
        self._later(seconds, self._try_in_place, assigned, pulled)
        self._take_keyed(assigned)
        return True

    def _try_in_place(self, assigned: AssignedQueue, pulled: PulledMessage) -> None:
        assigned.order.again(pulled)
        self._take_keyed(assigned)

    async def _give_back(
        self, assigned: AssignedQueue, pulled: list[PulledMessage], outcome: Outcome
    ) -> list[PulledMessage]:
        """Give messages back. Return the messages finished here."""
        if self._consumer.options.broadcast:
            return self._left_behind(assigned, pulled, outcome)
        given: list[PulledMessage] = []
        kept: list[PulledMessage] = []
        dead: list[PulledMessage] = []
        for one in pulled:
            if assigned.held.dropped:
                return given
            if _is_given_back(one):
                continue  # if no broker takes it, it stays held, and expires again
            # Tries known only to this consumer count, too.
            spent = outcome.delay_level == DEAD_LETTER or one.reconsume_times >= self._consumer.send_back.limit
            level = DEAD_LETTER if spent else outcome.delay_level
            if await self._consumer.send_back.send_back(assigned.queue, one, level, outcome.error):
                given.append(one)
            elif spent:
                dead.append(one)
            else:
                one.reconsume_times += 1
                kept.append(one)
        if kept:
            self._later(AGAIN_HERE_SECONDS, self._try_again, assigned, kept)
        if dead:
            self._later(AGAIN_HERE_SECONDS, self._bury_again, assigned, dead, outcome.error)
        return given

    def _left_behind(
        self, assigned: AssignedQueue, pulled: list[PulledMessage], outcome: Outcome
    ) -> list[PulledMessage]:
        """Have failed messages wait for their next try here, since no broker takes them back. Return those without one."""
        options = self._consumer.options
        final = outcome.is_unreadable or outcome.delay_level == DEAD_LETTER
        kept: list[PulledMessage] = []
        left: list[PulledMessage] = []
        for one in pulled:
            again = not final and one.reconsume_times < options.max_reconsume_times and not _is_given_back(one)
            (kept if again else left).append(one)
        if left:
            self.log.warn("{queue}: {count} messages are left behind", queue=assigned, count=len(left))
        if kept:
            tries = kept[0].reconsume_times
            pause = rest_seconds(options, tries) if outcome.wait_seconds is None else outcome.wait_seconds
            for one in kept:
                one.reconsume_times += 1
            self._later(pause, self._try_again, assigned, kept)
        return left

    def _later(self, seconds: float, function: Callable[..., object], *arguments: Any) -> None:
        if self._stopped:
            return  # the messages stay in place
        again: Deferred[Any] = timers.deferLater(self._consumer.instance.reactor, seconds, function, *arguments)
        self._again.add(again)
        again.addErrback(_unless_cancelled, self.log)
        again.addCallback(lambda _: self._again.discard(again))

    def _try_again(self, assigned: AssignedQueue, kept: list[PulledMessage]) -> None:
        self._waiting.append((assigned, kept))
        self.fill()

    def _bury_again(
        self, assigned: AssignedQueue, dead: list[PulledMessage], error: BaseException | None
    ) -> Deferred[None]:
        """Give messages back once more that no handler may get again."""
        outcome = Outcome(Verdict.AGAIN, DEAD_LETTER, error=error)
        return Deferred.fromCoroutine(self._take_back(assigned, dead, outcome))

    # ------------------------------------------------------------ timeouts

    async def give_back_expired(self, assigned: AssignedQueue) -> None:
        """Give back messages handled for longer than the timeout, so that the queue can continue."""
        consumer = self._consumer
        limit = milliseconds("consume_timeout", consumer.options.consume_timeout)
        now_ms = int(consumer.instance.clock_ms())

        def has_more_time(pulled: PulledMessage) -> bool:
            return pulled.lease is not None and pulled.lease.is_extended(now_ms)

        for pulled in assigned.held.expired(limit, now_ms, has_more_time):
            # Giving back the message before may have taken seconds.
            now_ms = int(consumer.instance.clock_ms())
            if assigned.held.dropped:
                return
            if not assigned.held.has_expired(pulled, limit, now_ms):
                continue
            lease = pulled.lease
            if lease is not None and not lease.end(now_ms):
                continue
            self.log.warn(
                "{queue} at {offset}: handled for more than {minutes:g} minutes, given back to the broker",
                queue=assigned,
                offset=pulled.queue_offset,
                minutes=limit / 60_000,
            )
            if consumer.options.broadcast or await consumer.send_back.send_back(assigned.queue, pulled, EXPIRED_LEVEL):
                self._remove(assigned, [pulled], int(consumer.instance.clock_ms()))
            elif lease is not None:
                lease.is_over = False  # the message stays with its handler until the next check

    # ------------------------------------------------------------ order by key

    def _key_of(self, assigned: AssignedQueue) -> Callable[[PulledMessage], Hashable | None]:
        given = self._consumer.options.key
        if given is None:
            return lambda pulled: pulled.record.properties_map().get(KEYS, "").split(" ")[0] or None

        def key_of(pulled: PulledMessage) -> Hashable | None:
            try:
                key = given(self._consumer.handler.messages(assigned.queue, [pulled])[0])
                hash(key)
            except Exception as error:
                # Without a key the order is unknown, so the handler does not get the message.
                pulled.key_error = error
                return None
            return key

        return key_of

    def _take_keyed(self, assigned: AssignedQueue) -> None:
        if assigned.is_successor:
            if any(run.assigned is not assigned and run.assigned.queue == assigned.queue for run in self._running):
                self._successors.add(assigned)
                return
            assigned.is_successor = False
        self._waiting.extend((assigned, [pulled]) for pulled in assigned.order.take())
        self.fill()


def rest_seconds(options: ConsumerOptions, tries: int) -> float:
    """Return the pause before the next try here, if ``tries`` failures of the message came before."""
    first = milliseconds("suspend_time", options.suspend_time) / 1000
    return max(first, min(first * float(2 ** min(tries, 16)), MAX_REST_SECONDS))


def _finished(consumed: Sequence[PulledMessage]) -> list[PulledMessage]:
    """Return the messages that handlers have consumed indeed.

    A handler that was told of a give-back may have left its work undone. If no broker takes the message, it must come again.
    """
    return [each for each in consumed if each.lease is None or not each.lease.is_refused]


def _is_given_back(pulled: PulledMessage) -> bool:
    """Whether a message was given back, or is being given back, because its handler took too long."""
    return pulled.lease is not None and pulled.lease.is_over


def _unless_cancelled(failure: Failure, log: Logger) -> None:
    if not failure.check(CancelledError):
        log.failure("trying again failed", failure)
