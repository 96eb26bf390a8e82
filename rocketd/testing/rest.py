"""Waiting until everything in a cluster and its clients has come to rest, and stepping from rest to rest through time.

No counterpart in Apache. A thread is at rest when it has nothing left to do at this time. Each reactor and each pool of the
servers is asked, again and again, until nothing has happened between two rounds. The application's handlers are waited
for too, but not for ever.
"""

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event, get_ident
from time import monotonic, sleep
from typing import Any, NamedTuple

from twisted.logger import Logger

from rocketd.broker.service import DELIVERY_SECONDS, Broker
from rocketd.client.errors import UsageError
from rocketd.client.face import Arrivals
from rocketd.client.instance import registry
from rocketd.common.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketd.common.table_writer import TableWriter
from rocketd.store.message_store import MessageStore
from rocketd.testing.virtual_time import Look, VirtualReactor, VirtualTime

STEP_SECONDS = 8.0
"""Time that passes at once at most: less than pulls that wait and their timeouts differ by, 10 s."""
STEP_WITHOUT_CLIENTS_SECONDS = 45.0
"""The same where there are servers only: brokers are forgotten after 120 s, and tell that they live every 30."""
LEAST_STEP_SECONDS = 0.01
QUIET_ROUNDS = 2
ANSWER_SECONDS = 30.0
"""How long a reactor may take to look, in real time."""
HANDLER_SECONDS = 2.0
"""How long handlers are waited for, in real time."""
RESTLESS_SECONDS = 60.0
"""How long it may take until all is at rest, in real time."""
POLL_SECONDS = 0.0005

_log = Logger()


class _Answer(NamedTuple):
    look: Look
    handlers: int


class Rest:
    """``reactors``, ``pools`` and ``writers`` of tables say which there are, ``broker`` the broker while it lives,
    ``with_clients`` whether anybody else is connected, ``flushes`` whether what is stored is to be on the disk soon,
    ``sockets_rest`` whether those that are connected by sockets rest, who were asked first at a time. ``passed`` is told of
    each step of time.
    """

    def __init__(
        self,
        virtual: VirtualTime,
        reactors: Callable[[], Sequence[VirtualReactor]],
        pools: Callable[[], Sequence[Any]],
        writers: Callable[[], Sequence[TableWriter]],
        broker: Callable[[], Broker | None],
        with_clients: Callable[[], bool],
        flushes: Callable[[], bool],
        sockets_rest: Callable[[float], bool],
        passed: Callable[[float], None],
    ) -> None:
        self._virtual = virtual
        self._reactors = reactors
        self._pools = pools
        self._writers = writers
        self._broker = broker
        self._with_clients = with_clients
        self._flushes = flushes
        self._sockets_rest = sockets_rest
        self._passed = passed
        self._patience = 0

    # ------------------------------------------------------------ time

    def advance(self, seconds: float) -> None:
        """Let so much time pass; meanwhile it passes by no other way, so that nothing begins at rest."""
        with self._virtual.standing():
            self._step_to(self._virtual.seconds() + seconds)

    def _step_to(self, target: float) -> None:
        answers = self.settle()
        while (now := self._virtual.seconds()) < target:
            longest = STEP_SECONDS if self._with_clients() else STEP_WITHOUT_CLIENTS_SECONDS
            step = min(target, now + longest, *self._dues(now, answers))
            self._passed(self._virtual.jump_to(min(target, max(step, now + LEAST_STEP_SECONDS))))
            for reactor in self._reactors():
                reactor.wake()
            answers = self.settle()

    def _dues(self, now: float, answers: Sequence[_Answer]) -> list[float]:
        """When something single is due, after now."""
        dues = [answer.look.next_due for answer in answers]
        broker = self._broker()
        if broker is not None:
            now_ms = self._virtual.now_ms()
            for due_ms in _message_dues(broker):
                ahead = (due_ms - now_ms + 1) / 1000
                # What is due already goes with the next round of deliveries, unless it cannot be delivered.
                dues.append(now + (DELIVERY_SECONDS if -1 < ahead <= 0 else ahead))
        return [due for due in dues if due is not None and due > now]

    # ------------------------------------------------------------ rest

    def settle(self) -> list[_Answer]:
        """Return when all is at rest, with what the reactors then said. Raises TimeoutError when that does not happen."""
        before: list[int] = []
        quiet = -1
        begun = monotonic()
        handlers_until = begun + HANDLER_SECONDS
        while True:
            if monotonic() - begun > RESTLESS_SECONDS:
                raise TimeoutError(
                    f"servers and clients of this cluster do not come to rest within {RESTLESS_SECONDS:g} s: perhaps each "
                    "message makes a handler send another one"
                )
            answers = self._ask_reactors()
            after = [answer.look.activity for answer in answers]
            pending = any(answer.look.pending for answer in answers)
            broker = self._broker()
            if broker is not None:
                after.append(broker.store.max_physical_offset())
            handlers = sum(answer.handlers for answer in answers)
            if handlers <= self._patience:
                self._patience = handlers
            elif monotonic() < handlers_until:
                before, quiet = after, -1
                sleep(POLL_SECONDS)
                continue
            else:
                _log.warn("{count} handlers do not end: time goes on without them", count=handlers)
                self._patience = handlers
            quiet = quiet + 1 if after == before and not pending else -1
            if quiet >= QUIET_ROUNDS:
                if self._sockets_rest(begun):
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
                "this is the thread in which clients of the cluster live, which could do nothing meanwhile: call it in "
                "another one, as by `await asyncio.to_thread(cluster.advance, ...)` or Twisted's deferToThread"
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
        passed = []
        for pool in self._pools():
            done = Event()
            pool.call(done.set)
            passed.append(done)
        for done in passed:
            done.wait(ANSWER_SECONDS)

    def _write_tables(self) -> None:
        until = monotonic() + ANSWER_SECONDS
        for writer in self._writers():
            while not writer.hurry() and monotonic() < until:
                sleep(POLL_SECONDS)

    def _wait_for_store(self) -> None:
        broker = self._broker()
        if broker is None:
            return
        until = monotonic() + ANSWER_SECONDS
        while not self._store_rests(broker) and monotonic() < until:
            sleep(POLL_SECONDS)

    @staticmethod
    def wait_for_dispatch(store: MessageStore) -> None:
        """Return when what is stored now can be read from its queues."""
        until = monotonic() + ANSWER_SECONDS
        while store.dispatch_behind_bytes() and monotonic() < until:
            sleep(POLL_SECONDS)

    def _store_rests(self, broker: Broker) -> bool:
        store = broker.store
        if store.dispatch_behind_bytes():
            return False
        if self._flushes() and store.flushed_offset() < store.max_physical_offset():
            return False
        end = store.get_max_offset(TIMER_TOPIC, 0)
        if not end or broker.timers.rests(end):
            return True
        broker.timers.wake()
        return False


def _answer(reactors: list[VirtualReactor], answers: "SimpleQueue[list[_Answer]]") -> None:
    answers.put([_Answer(reactor.look(), _handlers(reactor)) for reactor in reactors])


def _handlers(reactor: VirtualReactor) -> int:
    """Count the application's functions that run; those who iterate over messages take their time."""
    count = 0
    for instance in registry.instances_on(reactor):
        for member in (*instance.producers.values(), *instance.consumers.values()):
            threads = getattr(member, "threads", None)
            if threads is not None:
                count += sum(not isinstance(getattr(one, "__self__", None), Arrivals) for one in threads.running)
    return count


def _message_dues(broker: Broker) -> list[int]:
    """When the next messages are due that wait for their time, in Unix ms."""
    dues = []
    offsets = broker.delay_offsets().offset_table
    for level in range(1, broker.delay_levels.highest + 1):
        entries = broker.store.queue_entries(SCHEDULE_TOPIC, level - 1, offsets.get(level, 0), 1)
        dues += [due for _, _, due in entries if due > 0]
    due = broker.timers.next_due_ms
    return dues if due is None else [*dues, due]
