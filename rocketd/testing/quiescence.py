"""Waits until a cluster and its clients are quiescent, and steps through time from one quiescent state to the next.

A thread is quiescent if it has no work at the present time. Each reactor and each pool of the servers is polled until
nothing has happened between two rounds. Dispatch, flushes with waiting senders, written tables and callbacks are waited
for, too. So are the application's handlers, but for a limited time.

Some threads wake up by the machine's time, for example to flush. They may begin right before the time jumps. So all
threads of the servers measure their work with `VirtualTime.stopwatch`, which does not count jumps.
"""

from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Event, get_ident
from time import monotonic, sleep
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.broker.service import DELIVERY_SECONDS
from rocketd.client.errors import UsageError
from rocketd.client.faces.push import Arrivals
from rocketd.client.instance import registry
from rocketd.common.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketd.remoting.serving.pools import Pool
from rocketd.store.interfaces import IMessageStore
from rocketd.testing.client_environment import ClusterEnvironment
from rocketd.testing.machines import Machines
from rocketd.testing.servers import BrokerProcess
from rocketd.testing.simulated.virtual_time import Look, VirtualReactor, VirtualTime
from rocketd.testing.sockets import Sockets

STEP_SECONDS = 8.0
"""Longest step of time. It is shorter than the difference between a held pull and its timeout, 10 s."""
STEP_WITHOUT_CLIENTS_SECONDS = 45.0
"""The same without clients and slaves. Brokers expire after 120 s, and send a heartbeat every 30 s."""
LEAST_STEP_SECONDS = 0.01
BEFORE_SECONDS = 0.05
"""With slaves, there is a step so long before a single timer: masters answer held questions about tables in a
repeating timer, and the timeouts of these questions are single ones.
"""
NEAR_SECONDS = 2.5
"""Distance of a single timer without such a step. It is shorter than the time between such an answer and its timeout."""
QUIET_ROUNDS = 2
ANSWER_SECONDS = 30.0
"""Real time that a reactor may take to answer."""
HANDLER_SECONDS = 2.0
"""Real time to wait for handlers."""
RESTLESS_SECONDS = 60.0
"""Real time until all must be quiescent."""
POLL_SECONDS = 0.0005

_log = Logger()


class _Answer(NamedTuple):
    look: Look
    handlers: int


class Quiescence:
    """Waits for quiescence and advances the time."""

    def __init__(
        self, virtual: VirtualTime, machines: Machines, environment: ClusterEnvironment, sockets: Sockets
    ) -> None:
        """``environment`` is that of the clients in this process, ``sockets`` knows the others."""
        self._virtual = virtual
        self._machines = machines
        self._environment = environment
        self._sockets = sockets
        self._patience = 0

    def _reactors(self) -> list[VirtualReactor]:
        return [*self._machines.reactors(), *self._environment.reactors()]

    def _with_slaves(self) -> bool:
        return any(process.is_slave for process in self._machines.processes())

    def _longest_step(self) -> float:
        is_eventful = self._environment.reactors() or self._with_slaves()
        return STEP_SECONDS if is_eventful else STEP_WITHOUT_CLIENTS_SECONDS

    # ------------------------------------------------------------ time

    def advance(self, seconds: float) -> None:
        """Advance the time by ``seconds``. Meanwhile the clock stands still otherwise, so no work starts on its own."""
        with self._virtual.standing():
            self._step_to(self._virtual.seconds() + seconds)

    def _step_to(self, target: float) -> None:
        answers = self.settle()
        while (now := self._virtual.seconds()) < target:
            step = min(target, now + self._longest_step(), *self._dues(now, answers))
            passed = self._virtual.jump_to(min(target, max(step, now + LEAST_STEP_SECONDS)))
            self._sockets.time_passes(passed, self._machines.servers())
            for reactor in self._reactors():
                reactor.wake()
            answers = self.settle()

    def _dues(self, now: float, answers: Sequence[_Answer]) -> list[float]:
        """Return the due times of single events after now."""
        dues = [answer.look.next_due for answer in answers if answer.look.next_due is not None]
        if self._with_slaves():
            dues += [due - BEFORE_SECONDS for due in dues if due > now + NEAR_SECONDS]
        now_ms = self._virtual.now_ms()
        for process in self._machines.processes():
            for due_ms in _message_dues(process):
                ahead = (due_ms - now_ms + 1) / 1000
                # A message already due goes with the next round of deliveries, unless it cannot be delivered.
                dues.append(now + (DELIVERY_SECONDS if -1 < ahead <= 0 else ahead))
        return [due for due in dues if due > now]

    # ------------------------------------------------------------ rest

    def settle(self) -> list[_Answer]:
        """Return the last answers of the reactors when all are quiescent. Raises TimeoutError if that takes too long."""
        before: list[int] = []
        quiet = -1
        begun = monotonic()
        handlers_until = begun + HANDLER_SECONDS
        while True:
            if monotonic() - begun > RESTLESS_SECONDS:
                raise TimeoutError(
                    f"servers and clients of this cluster are still busy after {RESTLESS_SECONDS:g} s: perhaps each "
                    "message makes a handler send another one"
                )
            answers = self._ask_reactors()
            after = [answer.look.activity for answer in answers]
            pending = any(answer.look.pending for answer in answers)
            after += [process.server.store.max_physical_offset() for process in self._machines.processes()]
            handlers = sum(answer.handlers for answer in answers)
            if handlers <= self._patience:
                self._patience = handlers
            elif monotonic() < handlers_until:
                before, quiet = after, -1
                sleep(POLL_SECONDS)
                continue
            else:
                _log.warn("{count} handlers do not end: time advances without waiting for them", count=handlers)
                self._patience = handlers
            quiet = quiet + 1 if after == before and not pending else -1
            if quiet >= QUIET_ROUNDS:
                if self._sockets.rest(begun, self._machines.servers()):
                    return answers
                sleep(POLL_SECONDS)
            before = after
            if quiet >= 0:
                self._pass_pools()
                self._write_tables()
                self._wait_for_store()

    def _ask_reactors(self) -> list[_Answer]:
        reactors = [reactor for reactor in self._reactors() if reactor.in_use]
        if any(reactor.thread == get_ident() for reactor in reactors):
            raise UsageError(
                "this thread runs clients of the cluster and would block them: call it in "
                "another thread, for example by `await asyncio.to_thread(cluster.advance, ...)` or Twisted's deferToThread"
            )
        threads: dict[int, list[VirtualReactor]] = {}
        for reactor in reactors:
            threads.setdefault(id(reactor.base), []).append(reactor)
        asked = []
        for together in threads.values():
            answers: SimpleQueue[list[_Answer]] = SimpleQueue()
            together[0].base.callFromThread(_answer, together, answers)
            asked.append(answers)
        try:
            return [answer for answers in asked for answer in answers.get(timeout=ANSWER_SECONDS)]
        except Empty:
            raise TimeoutError(
                f"a thread with clients or servers of this cluster did nothing for {ANSWER_SECONDS:g} s: it is blocked, "
                "or its loop has ended with clients still open"
            ) from None

    def _pass_pools(self) -> None:
        dispatchers = [server.dispatcher for server in self._machines.servers()]
        # Its thread submits requests to the others.
        _pass(dispatcher.decode_pool for dispatcher in dispatchers)
        _pass(pool for dispatcher in dispatchers for pool in dispatcher.pools.values())

    def _write_tables(self) -> None:
        until = monotonic() + ANSWER_SECONDS
        for server in self._machines.servers():
            while not server.table_writer.hurry() and monotonic() < until:
                sleep(POLL_SECONDS)

    def _wait_for_store(self) -> None:
        until = monotonic() + ANSWER_SECONDS
        for process in self._machines.processes():
            while not _store_rests(process) and monotonic() < until:
                sleep(POLL_SECONDS)


def wait_for_dispatch(store: IMessageStore) -> None:
    """Return when all data stored so far can be read from its queues."""
    until = monotonic() + ANSWER_SECONDS
    while store.dispatch_behind_bytes() and monotonic() < until:
        sleep(POLL_SECONDS)


def _pass(pools: Iterable[Pool]) -> None:
    """Return when the pools have done all queued jobs."""
    passed = []
    for pool in pools:
        done = Event()
        pool.call(done.set)
        passed.append(done)
    for done in passed:
        done.wait(ANSWER_SECONDS)


def _store_rests(process: BrokerProcess) -> bool:
    store, timers = process.server.store, process.server.timers
    if store.dispatch_behind_bytes():
        return False
    if process.is_flushing or (process.flushes and store.flushed_offset() < store.max_physical_offset()):
        return False
    if process.server.callbacks.are_busy():
        return False
    end = 0 if process.is_slave else store.get_max_offset(TIMER_TOPIC, 0)
    if not end or timers.rests(end):
        return True
    timers.wake()
    return False


def _answer(reactors: list[VirtualReactor], answers: "SimpleQueue[list[_Answer]]") -> None:
    answers.put([_Answer(reactor.look(), _handlers(reactor)) for reactor in reactors])


def _handlers(reactor: VirtualReactor) -> int:
    """Return the number of running functions of the application, except iterations over messages."""
    count = 0
    for instance in registry.instances_on(reactor.as_reactor()):
        for member in (*instance.producers.values(), *instance.consumers.values()):
            threads = getattr(member, "threads", None)
            if threads is not None:
                count += sum(not isinstance(getattr(one, "__self__", None), Arrivals) for one in threads.running)
            listener = getattr(member, "listener", None)
            if listener is not None:
                count += len(listener.running)
    return count


def _message_dues(process: BrokerProcess) -> list[int]:
    """Return the due times of the next delayed and timed messages, in Unix ms. Slaves deliver none."""
    if process.is_slave:
        return []
    broker = process.server
    dues = []
    offsets = broker.delay_offsets().offset_table
    for level in range(1, broker.delay_levels.highest + 1):
        entries = broker.store.queue_entries(SCHEDULE_TOPIC, level - 1, offsets.get(level, 0), 1)
        dues += [due for _, _, due in entries if due > 0]
    due = broker.timers.next_due_ms
    return dues if due is None else [*dues, due]
