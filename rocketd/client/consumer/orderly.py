"""Consumes each queue in order, one handler at a time, while the broker has it locked for this consumer.

Answers to ConsumeMessageOrderlyService. Reactor thread.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketd.client.config import milliseconds
from rocketd.client.consumer.concurrent import Consumes
from rocketd.client.consumer.handler import Outcome, Verdict
from rocketd.client.consumer.outcome import DEAD_LETTER
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.slots import Slots
from rocketd.client.gathering import all_of

LOCK_AGAIN_SECONDS = 3.0
"""After which time a queue is tried again that another consumer has locked."""


class ConsumesInOrder(Consumes, Protocol):
    """The consumer, as this needs it."""

    def is_locked(self, assigned: AssignedQueue) -> bool:
        """Whether the queue is this consumer's alone now."""

    async def lock(self, assigned: AssignedQueue) -> bool:
        """Ask the broker for the queue."""


class OrderlyConsumption:
    """What handlers have, a queue each."""

    log = Logger()

    def __init__(self, consumer: ConsumesInOrder) -> None:
        self._consumer = consumer
        self._slots = Slots(consumer.concurrency)
        self._running: dict[Deferred[None], AssignedQueue] = {}
        self._sleeping: set[Deferred[None]] = set()
        self._halted = False

    def submit(self, assigned: AssignedQueue, new: Sequence[Pulled]) -> None:
        """Go on with a queue of which messages were pulled."""
        if self._halted or not assigned.held.take_turn():
            return
        begin: Deferred[None] = Deferred()
        running = Deferred.fromCoroutine(self._consume_queue(begin, assigned))
        self._running[running] = assigned
        running.addErrback(lambda failure: self.log.failure("consuming {queue} failed", failure, queue=assigned))
        running.addCallback(lambda _: self._running.pop(running, None))
        begin.callback(None)  # only now: a handler may stop the consumer at once

    def take_concurrency(self, queues: Iterable[AssignedQueue]) -> None:
        """Take a changed concurrency, which is for all queues together."""
        self._slots.limit = self._consumer.concurrency

    async def give_back_expired(self, assigned: AssignedQueue) -> None:
        """Do nothing: what is consumed in order keeps its place, however long it takes."""

    def halt(self) -> None:
        """Start no more handlers until ``resume``."""
        self._halted = True
        self._wake()

    def resume(self) -> None:
        """Start handlers again, as queues are submitted anew."""
        self._halted = False

    async def finish(self, assigned: AssignedQueue) -> None:
        """Wait for what a handler has of a queue that was dropped."""
        self._wake()
        await all_of(_outcome_of(running) for running, queue in self._running.items() if queue is assigned)

    async def stop(self, grace_ms: float) -> None:
        """Start no more handlers; wait for those that run, cancel them when the time is over."""
        self._halted = True
        self._wake()
        if not self._running:
            return
        reactor = self._consumer.instance.reactor
        limit = reactor.callLater(grace_ms / 1000, self._cancel_all)
        await all_of(_outcome_of(running) for running in self._running)
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
        while not held.dropped and not self._halted:
            if not consumer.is_locked(assigned) and not await consumer.lock(assigned):
                await self._sleep(LOCK_AGAIN_SECONDS)
                continue
            pulled = held.take_messages(consumer.options.batch, int(consumer.instance.clock_ms()))
            if not pulled:
                return
            outcome = await self._handle(assigned, pulled)
            if held.dropped or outcome.verdict is Verdict.LEFT:
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
            wait = outcome.wait_seconds
            await self._sleep(
                milliseconds("suspend_time", consumer.options.suspend_time) / 1000 if wait is None else wait
            )
        held.take_messages(0, int(consumer.instance.clock_ms()))  # it is no longer under way

    def _commit(self, assigned: AssignedQueue) -> None:
        """What is taken out is consumed: the offset moves on."""
        offset = assigned.held.commit()
        if offset is None:
            return
        self._consumer.offsets.update(assigned.queue, offset, False)
        if assigned.puller is not None:
            assigned.puller.wake()

    async def _handle(self, assigned: AssignedQueue, pulled: list[Pulled]) -> Outcome:
        consumer = self._consumer
        await self._slots.acquire()
        try:
            began = consumer.instance.clock_ms()
            outcome = await consumer.handler.consume(assigned.queue, pulled)
            consumer.finished(assigned, len(pulled), outcome, consumer.instance.clock_ms() - began)
            return outcome
        finally:
            self._slots.release()

    async def _given_up(self, assigned: AssignedQueue, pulled: list[Pulled], outcome: Outcome) -> bool:
        """Whether these messages come no more: they were too often tried, and are dead letters now."""
        if self._consumer.options.broadcast:
            return outcome.delay_level == DEAD_LETTER
        most = self._consumer.options.max_reconsume_times
        given_up = True
        for one in pulled:
            if outcome.delay_level == DEAD_LETTER or 0 <= most <= one.reconsume_times:
                given_up &= await self._consumer.send_back.send_back(assigned.queue, one, DEAD_LETTER)
            else:
                one.reconsume_times += 1
                given_up = False
        return given_up

    async def _sleep(self, seconds: float) -> None:
        sleeping: Deferred[Any] = deferLater(self._consumer.instance.reactor, seconds, lambda: None)
        self._sleeping.add(sleeping)
        try:
            await sleeping
        except CancelledError:
            return
        finally:
            self._sleeping.discard(sleeping)


def _outcome_of(running: Deferred[Any]) -> Deferred[None]:
    """Fires when it has ended, however."""
    ended: Deferred[None] = Deferred()

    def tell(result: Any) -> Any:
        ended.callback(None)
        return result

    running.addBoth(tell)
    return ended
