"""Consumption in order: one handler at a time per queue, while the broker's lock on the queue is held.

Counterpart: `ConsumeMessageOrderlyService` (Apache). Reactor thread.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rocketd.client.consumer.handling.chunks import CHUNK_CHECK_SECONDS, Chunk, ChunkSize, has_consequences
from rocketd.client.consumer.handling.concurrent import Consumes
from rocketd.client.consumer.handling.handler import CONSUMED, Outcome, Verdict
from rocketd.client.consumer.handling.handler_slots import HandlerSlots
from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue, PulledMessage
from rocketd.client.consumer.retries.handler_results import DEAD_LETTER
from rocketd.client.instance.all_of import all_of, end_of
from rocketd.client.settings.config import milliseconds
from rocketd.common.event_loop import timers

LOCK_AGAIN_SECONDS = 3.0
"""Delay before a queue locked by another consumer is tried again."""


class ConsumesInOrder(Consumes, Protocol):
    """The methods of a consumer needed here."""

    def is_locked(self, assigned: AssignedQueue) -> bool:
        """Whether this consumer has the queue exclusively now."""

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask the broker for the queue. Return whether it is locked for this consumer."""


class _ChunkRun:
    """A chunk in a thread. ``last`` is its last result, if it has consequences: message, value or Failure, and seconds."""

    __slots__ = ("assigned", "checking", "chunk", "last", "seen")

    def __init__(self, assigned: AssignedQueue, chunk: Chunk) -> None:
        self.assigned = assigned
        self.chunk = chunk
        self.last: tuple[PulledMessage, Any, float] | None = None
        self.seen: PulledMessage | None = None  # the message that ran at the last check
        self.checking: IDelayedCall | None = None


class OrderlyConsumption:
    """The running handlers, one per queue."""

    log = Logger()

    def __init__(self, consumer: ConsumesInOrder) -> None:
        self._consumer = consumer
        self._slots = HandlerSlots(consumer.concurrency)
        self._running: dict[Deferred[None], AssignedQueue] = {}
        self._sleeping: set[Deferred[None]] = set()
        self._halted = False
        self._chunk_size = ChunkSize()
        self._chunks: set[_ChunkRun] = set()

    def submit(self, assigned: AssignedQueue, new: Sequence[PulledMessage]) -> None:
        """Continue with a queue after messages were pulled."""
        if self._halted or not assigned.held.take_turn():
            return
        begin: Deferred[None] = Deferred()
        running = Deferred.fromCoroutine(self._consume_queue(begin, assigned))
        self._running[running] = assigned
        running.addErrback(lambda failure: self.log.failure("consuming {queue} failed", failure, queue=assigned))
        running.addCallback(lambda _: self._running.pop(running, None))
        begin.callback(None)  # only now, because a handler may stop the consumer at once

    def take_concurrency(self, queues: Iterable[AssignedQueue]) -> None:
        """Apply a changed concurrency, which limits all queues together."""
        self._slots.limit = self._consumer.concurrency

    async def give_back_expired(self, assigned: AssignedQueue) -> None:
        """Do nothing: a message consumed in order keeps its place for as long as its handler runs."""

    def halt(self) -> None:
        """Start no more handlers until ``resume``."""
        self._halted = True
        for run in self._chunks:
            self._take_back(run)
        self._wake()

    def withdraw(self, assigned: AssignedQueue) -> None:
        """Start no more handlers for a queue that is dropped now."""
        for run in self._chunks:
            if run.assigned is assigned:
                self._take_back(run)

    def resume(self) -> None:
        """Allow handlers again. They start when queues are submitted again."""
        self._halted = False

    async def finish(self, assigned: AssignedQueue) -> None:
        """Wait for the handlers of a dropped queue, also for one that began before a seek."""
        self._wake()
        running = [running for running, other in self._running.items() if other.queue == assigned.queue]
        await all_of(map(end_of, running))

    async def stop(self, grace_ms: float) -> None:
        """Start no more handlers. Wait for the running ones, and cancel them after ``grace_ms``."""
        self.halt()
        if not self._running:
            return
        reactor = self._consumer.instance.reactor
        limit = reactor.callLater(grace_ms / 1000, self._cancel_all)
        await all_of(end_of(running) for running in self._running)
        if limit.active():
            limit.cancel()

    def _cancel_all(self) -> None:
        self.log.warn("{count} handlers are cancelled, as the grace time is over", count=len(self._running))
        for running in list(self._running):
            running.cancel()

    def _wake(self) -> None:
        for sleeping in list(self._sleeping):
            sleeping.cancel()

    # ------------------------------------------------------------ one queue

    async def _consume_queue(self, begin: Deferred[None], assigned: AssignedQueue) -> None:
        await begin
        consumer, held = self._consumer, assigned.held
        if assigned.is_successor:
            await self._former_handler(assigned)
        while not assigned.is_ending and not self._halted:
            if not consumer.is_locked(assigned) and not await consumer.lock(assigned):
                await self._sleep(LOCK_AGAIN_SECONDS)
                continue
            in_chunks = consumer.handler.in_chunks
            size = self._chunk_size.size if in_chunks else consumer.options.batch
            pulled = held.take_messages(size, int(consumer.instance.clock_ms()))
            if not pulled:
                return
            if in_chunks:
                pulled, outcome = await self._handle_chunk(assigned, pulled)
            else:
                outcome = await self._handle(assigned, pulled)
            if self._is_lost(assigned) or outcome.verdict is Verdict.LEFT:
                held.rollback()
                if outcome.verdict is Verdict.LEFT:
                    consumer.stop_taking()
                break
            again = pulled[outcome.done :]
            if outcome.verdict is Verdict.CONSUMED or await self._given_up(assigned, again, outcome):
                self._commit(assigned)
                continue
            held.make_to_consume_again(again)
            self._commit(assigned)
            if assigned.is_ending:
                break
            wait = outcome.wait_seconds
            await self._sleep(
                milliseconds("suspend_time", consumer.options.suspend_time) / 1000 if wait is None else wait
            )
        held.take_messages(0, int(consumer.instance.clock_ms()))  # no longer under way

    async def _former_handler(self, assigned: AssignedQueue) -> None:
        """Wait for the handler that began before a seek in the queue."""
        former = [
            running
            for running, other in self._running.items()
            if other is not assigned and other.queue == assigned.queue
        ]
        try:
            await all_of(map(end_of, former))
        except CancelledError:
            return  # the consumer stops
        assigned.is_successor = False

    def _is_lost(self, assigned: AssignedQueue) -> bool:
        """Whether results no longer count. A queue given up stays locked until its handler has ended."""
        if assigned.is_reset:
            return True
        return assigned.held.dropped and not (assigned.given_up and self._consumer.is_locked(assigned))

    def _commit(self, assigned: AssignedQueue) -> None:
        """Forget the messages taken out, which are consumed, and move the offset on."""
        offset = assigned.held.commit()
        if offset is not None:
            self._move(assigned, offset)

    def _move(self, assigned: AssignedQueue, offset: int) -> None:
        self._consumer.offsets.update(assigned.queue, offset, False)
        if not assigned.held.count:
            self._consumer.ran_empty(assigned)
        if assigned.puller is not None:
            assigned.puller.wake()

    async def _handle(self, assigned: AssignedQueue, pulled: list[PulledMessage]) -> Outcome:
        consumer = self._consumer
        await self._slots.acquire()
        try:
            began = consumer.instance.clock_ms()
            outcome = await consumer.handler.consume(assigned.queue, pulled)
            consumer.finished(assigned, len(pulled), outcome, consumer.instance.clock_ms() - began)
            return outcome
        finally:
            self._slots.release()

    # ------------------------------------------------------------ chunks

    async def _handle_chunk(
        self, assigned: AssignedQueue, pulled: list[PulledMessage]
    ) -> tuple[list[PulledMessage], Outcome]:
        """Have one thread handle messages taken out, up to the first result that is not a success.

        Those consumed before are committed, those not begun are put back. Return the message with the last result, if
        it was not a success, and its outcome.
        """
        consumer, held = self._consumer, assigned.held
        messages: list[tuple[Any, PulledMessage]] = []
        try:
            for one in pulled:
                message = consumer.handler.messages(assigned.queue, [one])[0]
                messages.append((message, one))
        except Exception:
            held.put_back_untried(pulled[max(1, len(messages)) :])
            if not messages:
                return pulled[:1], await self._handle(assigned, pulled[:1])  # which fails
        await self._slots.acquire()
        run = _ChunkRun(assigned, consumer.handler.chunk(messages))
        self._chunks.add(run)
        if assigned.is_ending or self._halted:
            self._take_back(run)
        elif len(messages) > 1:
            self._check_later(run)
        try:
            await consumer.handler.work_off(run.chunk)
            self._take_results(run)
            self._take_back(run)
            if run.last is None:
                return [], CONSUMED
            last, result, seconds = run.last
            outcome = await consumer.handler.outcome(result, assigned.queue, [last])
            consumer.finished(assigned, 1, outcome, seconds * 1000)
            return [last], outcome
        except CancelledError as error:
            # A function in a thread cannot be ended: the result of the running one is ignored.
            self._take_results(run)
            self._take_back(run)
            return [], Outcome(Verdict.LEFT, error=error)
        finally:
            self._chunks.discard(run)
            self._slots.release()
            if run.checking is not None:
                run.checking.cancel()

    def _take_back(self, run: _ChunkRun) -> None:
        """Put back the messages that the thread has not begun."""
        run.assigned.held.put_back_untried(run.chunk.take_back())

    def _take_results(self, run: _ChunkRun) -> None:
        """Commit the consumed messages, and keep a result with consequences for the chunk's end."""
        results = run.chunk.results()
        if not results:
            return
        self._chunk_size.add(len(results), sum(took for _, _, took in results))
        if results[-1][1] is not None and has_consequences(results[-1][1]):
            run.last = results.pop()
        if results and not self._is_lost(run.assigned):
            count, seconds = len(results), sum(took for _, _, took in results)
            self._consumer.finished(run.assigned, count, CONSUMED, seconds * 1000, count)
            self._move(run.assigned, run.assigned.held.commit_first(pulled for pulled, _, _ in results))

    def _check_later(self, run: _ChunkRun) -> None:
        run.checking = self._consumer.instance.reactor.callLater(CHUNK_CHECK_SECONDS, self._check, run)

    def _check(self, run: _ChunkRun) -> None:
        """Commit the results before a slow message, and let the messages behind it wait for a new chunk."""
        run.checking = None
        self._take_results(run)
        running = run.chunk.running()
        if running is not None and running[0] is run.seen:
            if not run.chunk.has_more:
                return
            self._chunk_size.add_endless(running[1])
            self._take_back(run)
        run.seen = None if running is None else running[0]
        self._check_later(run)

    # ------------------------------------------------------------ failures

    async def _given_up(self, assigned: AssignedQueue, pulled: list[PulledMessage], outcome: Outcome) -> bool:
        """Send exhausted messages to the dead letters. Return whether all of these messages are finished."""
        if self._consumer.options.broadcast:
            return outcome.delay_level == DEAD_LETTER
        limit = self._consumer.options.max_reconsume_times
        given_up = True
        for one in pulled:
            if outcome.delay_level == DEAD_LETTER or 0 <= limit <= one.reconsume_times:
                given_up &= await self._consumer.send_back.send_back(assigned.queue, one, DEAD_LETTER, outcome.error)
            else:
                one.reconsume_times += 1
                given_up = False
        return given_up

    async def _sleep(self, seconds: float) -> None:
        sleeping: Deferred[Any] = timers.deferLater(self._consumer.instance.reactor, seconds, lambda: None)
        self._sleeping.add(sleeping)
        try:
            await sleeping
        except CancelledError:
            return
        finally:
            self._sleeping.discard(sleeping)
