"""Consumes messages at once, whatever their queue, or one after the other only where they have the same key.

Answers to ConsumeMessageConcurrentlyService. Reactor thread.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.config import milliseconds
from rocketd.client.consumer.handler import Handler, Outcome, Verdict
from rocketd.client.consumer.keyed_order import KeyedOrder
from rocketd.client.consumer.offset_store import OffsetStore
from rocketd.client.consumer.options import ConsumerOptions, Order
from rocketd.client.consumer.outcome import DEAD_LETTER
from rocketd.client.consumer.pulled import AssignedQueue, Pulled
from rocketd.client.consumer.send_back import SendBack
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.properties import KEYS

AGAIN_HERE_SECONDS = 5.0
"""After which time a message is tried again that could not be given back."""

EXPIRED_LEVEL = 3
"""Delay level of messages that were handled for too long."""


class Consumes(Protocol):
    """The consumer, as this needs it."""

    instance: ClientInstance
    options: ConsumerOptions
    offsets: OffsetStore
    handler: Handler[Any]
    send_back: SendBack
    concurrency: int

    def finished(self, assigned: AssignedQueue, count: int, outcome: Outcome, took_ms: float) -> None:
        """Take note that messages are finished."""

    def stop_taking(self) -> None:
        """Take no more messages: the handler wants none."""


class _Run:
    """Messages that a handler has; ``done`` fires when it has ended, and what follows from that is done."""

    __slots__ = ("assigned", "began_ms", "done", "pulled")

    done: Deferred[Any]

    def __init__(self, assigned: AssignedQueue, pulled: list[Pulled], began_ms: int) -> None:
        self.assigned = assigned
        self.pulled = pulled
        self.began_ms = began_ms


class ConcurrentConsumption:
    """What waits for a handler, and what handlers have."""

    log = Logger()

    def __init__(self, consumer: Consumes) -> None:
        self._consumer = consumer
        self._waiting: deque[tuple[AssignedQueue, list[Pulled]]] = deque()
        self._running: set[_Run] = set()
        self._again: set[Deferred[None]] = set()
        self._halted = False
        self._filling = False
        self._idle: Deferred[None] | None = None

    def submit(self, assigned: AssignedQueue, new: Sequence[Pulled]) -> None:
        """Take messages that were pulled."""
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
        """Take a changed concurrency for all queues."""
        for assigned in queues:
            if assigned.order is not None:
                assigned.order.concurrency = self._consumer.concurrency
                self._take_keyed(assigned)
        self.fill()

    def fill(self) -> None:
        """Start as many handlers as there may be."""
        if self._filling:
            return  # a handler that ended at once: whoever started it goes on
        self._filling = True
        try:
            while self._waiting and len(self._running) < self._consumer.concurrency and not self._halted:
                assigned, pulled = self._waiting.popleft()
                if not assigned.held.dropped:
                    self._start(assigned, pulled)
        finally:
            self._filling = False

    def halt(self) -> None:
        """Start no more handlers until ``resume``."""
        self._halted = True

    def resume(self) -> None:
        """Start handlers again."""
        self._halted = False
        self.fill()

    async def stop(self, grace_ms: float) -> None:
        """Start no more handlers; wait for those that run, cancel them when the time is over."""
        self._halted = True
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
            run.done.cancel()
        # A plain function in a thread cannot be ended: its result will not count.
        self._end_of_all()

    # ------------------------------------------------------------ one after the other

    def _start(self, assigned: AssignedQueue, pulled: list[Pulled]) -> None:
        consumer = self._consumer
        run = _Run(assigned, pulled, int(consumer.instance.clock_ms()))
        assigned.held.begin(pulled, run.began_ms)
        self._running.add(run)  # before the handler begins: it may stop the consumer at once
        error = next((one.key_error for one in pulled if one.key_error is not None), None)
        if error is None:
            run.done = consumer.handler.consume(assigned.queue, pulled)
        else:
            run.done = succeed(consumer.handler.failed(error, assigned.queue, pulled, "the key"))
        run.done.addCallback(self._handled, run)
        run.done.addErrback(lambda failure: self.log.failure("consuming {queue} failed", failure, queue=assigned))
        run.done.addCallback(self._ended, run)

    def _ended(self, _: object, run: _Run) -> None:
        self._running.discard(run)
        if run.assigned.puller is not None:
            run.assigned.puller.wake()
        self.fill()
        if not self._running:
            self._end_of_all()

    def _end_of_all(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.callback(None)

    def _handled(self, outcome: Outcome, run: _Run) -> Deferred[None] | None:
        consumer = self._consumer
        now = int(consumer.instance.clock_ms())
        consumer.finished(run.assigned, len(run.pulled), outcome, now - run.began_ms)
        if outcome.verdict is Verdict.CONSUMED:
            self._remove(run.assigned, run.pulled, now)
        elif outcome.verdict is Verdict.LEFT:
            self._waiting.appendleft((run.assigned, run.pulled))
            consumer.stop_taking()
        else:
            return Deferred.fromCoroutine(self._take_back(run.assigned, run.pulled, outcome))
        return None

    async def _take_back(self, assigned: AssignedQueue, pulled: list[Pulled], outcome: Outcome) -> None:
        done = await self._give_back(assigned, pulled[outcome.done :], outcome)
        self._remove(assigned, [*pulled[: outcome.done], *done], int(self._consumer.instance.clock_ms()))

    def _remove(self, assigned: AssignedQueue, done: Sequence[Pulled], now_ms: int) -> None:
        """These are finished: the offset moves on."""
        offset = assigned.held.remove(done, now_ms)
        if assigned.held.dropped:
            return
        if offset is not None:
            self._consumer.offsets.update(assigned.queue, offset, True)
        if assigned.order is not None:
            for pulled in done:
                assigned.order.done(pulled)
            self._take_keyed(assigned)

    async def _give_back(self, assigned: AssignedQueue, pulled: list[Pulled], outcome: Outcome) -> list[Pulled]:
        """Give messages back; return those that are finished here."""
        if self._consumer.options.broadcast:
            self.log.warn("{queue}: {count} messages are left behind", queue=assigned, count=len(pulled))
            return pulled
        given: list[Pulled] = []
        kept: list[Pulled] = []
        dead: list[Pulled] = []
        for one in pulled:
            if assigned.held.dropped:
                return given
            # Tries that only this consumer knows of count, too.
            spent = outcome.delay_level == DEAD_LETTER or one.reconsume_times >= self._consumer.send_back.most
            level = DEAD_LETTER if spent else outcome.delay_level
            if await self._consumer.send_back.send_back(assigned.queue, one, level):
                given.append(one)
            elif spent:
                dead.append(one)
            else:
                one.reconsume_times += 1
                kept.append(one)
        if kept:
            self._later(self._try_again, assigned, kept)
        if dead:
            self._later(self._bury_again, assigned, dead)
        return given

    def _later(self, function: Callable[[AssignedQueue, list[Pulled]], object], *arguments: Any) -> None:
        again: Deferred[Any] = deferLater(self._consumer.instance.reactor, AGAIN_HERE_SECONDS, function, *arguments)
        self._again.add(again)
        again.addErrback(_unless_cancelled, self.log)
        again.addCallback(lambda _: self._again.discard(again))

    def _try_again(self, assigned: AssignedQueue, kept: list[Pulled]) -> None:
        self._waiting.append((assigned, kept))
        self.fill()

    def _bury_again(self, assigned: AssignedQueue, dead: list[Pulled]) -> Deferred[None]:
        """Give back once more what no handler is to have again."""
        return Deferred.fromCoroutine(self._take_back(assigned, dead, Outcome(Verdict.AGAIN, DEAD_LETTER)))

    # ------------------------------------------------------------ what takes too long

    async def give_back_expired(self, assigned: AssignedQueue) -> None:
        """Give back what was handled for longer than the timeout, so that its queue can go on."""
        consumer = self._consumer
        limit = milliseconds("consume_timeout", consumer.options.consume_timeout)
        for pulled in assigned.held.expired(limit, int(consumer.instance.clock_ms())):
            self.log.warn(
                "{queue} at {offset}: handled for more than {minutes:g} minutes, given back to the broker",
                queue=assigned,
                offset=pulled.queue_offset,
                minutes=limit / 60_000,
            )
            if consumer.options.broadcast or await consumer.send_back.send_back(assigned.queue, pulled, EXPIRED_LEVEL):
                self._remove(assigned, [pulled], int(consumer.instance.clock_ms()))

    # ------------------------------------------------------------ order by key

    def _key_of(self, assigned: AssignedQueue) -> Callable[[Pulled], Hashable | None]:
        given = self._consumer.options.key
        if given is None:
            return lambda pulled: pulled.record.properties_map().get(KEYS, "").split(" ")[0] or None

        def key_of(pulled: Pulled) -> Hashable | None:
            try:
                key = given(self._consumer.handler.messages(assigned.queue, [pulled])[0])
                hash(key)
            except Exception as error:
                # Without a key nobody knows whom it has to follow: the handler does not get it.
                pulled.key_error = error
                return None
            return key

        return key_of

    def _take_keyed(self, assigned: AssignedQueue) -> None:
        self._waiting.extend((assigned, [pulled]) for pulled in assigned.order.take())
        self.fill()


def _unless_cancelled(failure: Failure, log: Logger) -> None:
    if not failure.check(CancelledError):
        log.failure("trying again failed", failure)
