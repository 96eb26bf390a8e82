"""Lanes: a pool's thread reads the connections that it serves.

Without a lane, the reactor thread reads requests and hands them over to the pool's thread. Both share the GIL,
so each hand-off costs more than the request itself. With a lane, the pool's thread has an event loop. It takes
over each plain connection whose first request belongs to its pool.

An iteration of the loop reads all ready connections, and then handles what it has read as one group:

1. The calls of other threads run (``call``).
2. The ready connections are read. ``takes`` gathers the requests of this pool. Requests of other pools go to their
   queues.
3. The gathered jobs are handled, or the jobs in the pool's own queue if there are any: calls, requests of connections
   without a lane, and the overload.

Requests go through the pool's queue as before if it is not empty, or if an iteration has read too many of them. So its
limits, refusals and pauses hold under overload.

A disk may hold the thread up in step 3. Reading must go on meanwhile, since connections also carry heartbeats,
and sends must be refused in time. So the reactor thread stands in: it does steps 1 and 2 in the lane's place
(``stand_in``). Only one thread holds the lane's lock at a time. In docstrings, the owner's thread of a connection is
the thread that holds the lock of its lane, or the reactor thread if it has no lane.

When its pool stops, the lane gives the connections back to the reactor. TLS connections and those without a descriptor
never come to a lane, and without epoll there are no lanes. See docs/decisions/0029.
"""

import select
from collections.abc import Callable
from threading import Lock, get_ident
from time import monotonic
from typing import Any

from twisted.logger import Logger

from rocketd.common.event_loop.loop_lag import LagHistogram
from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.serving.connection import Connection
from rocketd.remoting.serving.pools import DRAIN_LIMIT, Job, Pool

STAND_IN_SECONDS = 0.02
"""How long a lane may handle requests before the reactor thread reads its connections."""

HOLD_SECONDS = 0.001
"""How long a lane waits for further requests before it does the work left by ``after_jobs``."""

HAS_LANES = hasattr(select, "epoll")
"""Whether the system has the event loop of lanes."""


class Lane:
    """The event loop of a pool with one thread.

    ``run`` and ``takes`` belong to the pool's thread, ``attract`` and ``stand_in`` to the reactor thread, the rest to any.
    """

    _log = Logger()

    def __init__(self, pool: Pool, home: IReactor) -> None:
        """``home`` is the reactor that accepts the connections, and gets them back at the end."""
        from rocketd.remoting.serving.lane_reactor import LaneReactor

        self.name = pool.name
        self._pool = pool
        self._home = home
        self.reactor = LaneReactor(home.seconds)
        self._turn = Lock()
        self._holder: int | None = None
        self._thread: int | None = None
        self._gathered: list[Job] = []
        self._gathered_requests = 0
        self._sleeps = False
        self._has_left = False
        """Whether ``after_jobs`` has left something for later."""
        self.lag = LagHistogram()
        """How long connections wait while requests are handled."""
        self._busy_since = 0.0
        """When the handling of requests began, 0.0 between them."""
        self._calls = Lock()
        """Guards the two that follow, and the calls of other threads."""
        self._is_open = True
        self._connections: set[Connection] = set()

    # ------------------------------------------------------------ any thread

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a function in an iteration of this lane, or in the reactor thread after the lane's end."""
        with self._calls:
            if self._is_open:
                self.reactor.callFromThread(function, *arguments)
                return
        self._home.callFromThread(function, *arguments)

    def wake(self) -> None:
        """End the wait for events: the queue of the pool is not empty any more."""
        if self._sleeps and not self.is_here():
            with self._calls:
                if self._is_open:
                    self.reactor.wakeUp()

    def admit(self, connection: Connection) -> bool:
        """Count a connection that moves here. Return False if the lane has closed."""
        with self._calls:
            if self._is_open:
                self._connections.add(connection)
            return self._is_open

    def forget(self, connection: Connection) -> None:
        """Count a connection no more."""
        with self._calls:
            self._connections.discard(connection)

    def is_here(self) -> bool:
        """Return whether the calling thread holds the lock of this lane."""
        return self._holder == get_ident()

    # ------------------------------------------------------------ reactor thread

    def attract(self, connection: Connection) -> None:
        """Take a connection over, unless it cannot move now."""
        if self._is_open:
            connection.board(self)

    def stand_in(self) -> None:
        """Read the connections if the lane is held up. Call it every STAND_IN_SECONDS."""
        began = self._busy_since
        if not began or monotonic() - began < STAND_IN_SECONDS or not self._turn.acquire(blocking=False):
            return
        self._holder = get_ident()
        try:
            if self._is_open:
                self.reactor.runUntilCurrent()
                self.reactor.doPoll(0.0)
        except Exception:
            self._log.failure("{pool}: a turn in place of the lane failed", pool=self.name)
        finally:
            self._end_turn()

    # ------------------------------------------------------------ the pool's thread

    def takes(self, job: Job) -> bool:
        """Gather a job for the end of the iteration. Return False if it has to go through the queue."""
        if get_ident() != self._thread or len(self._gathered) >= DRAIN_LIMIT or self._pool.has_waiting:
            return False
        requests = self._gathered_requests + len(job.frames)
        if requests > self._pool.max_requests:
            return False
        self._gathered_requests = requests
        self._gathered.append(job)
        return True

    def run(self) -> None:
        """Run the loop until the pool stops."""
        self._thread = get_ident()
        self._begin_turn()
        goes_on = True
        while goes_on:
            try:
                goes_on = self._go_round()
            except Exception:
                self._log.failure("{pool}: a turn of the lane failed", pool=self.name)
        self._close()
        self._end_turn()

    def _begin_turn(self) -> None:
        self._turn.acquire()
        self._holder = get_ident()

    def _end_turn(self) -> None:
        self._holder = None
        self._turn.release()

    def _go_round(self) -> bool:
        """Run one iteration of the loop. Return False at the end."""
        pool, reactor = self._pool, self.reactor
        timeout = HOLD_SECONDS if self._has_left else None
        if reactor.has_calls():
            reactor.runUntilCurrent()
            pause = reactor.timeout()
            timeout = pause if timeout is None else timeout if pause is None else min(pause, timeout)
        self._sleeps = True
        reactor.doPoll(0.0 if pool.has_queued else timeout)
        self._sleeps = False
        gathered = self._gathered
        if gathered:
            self._gathered = []
            self._gathered_requests = 0
            # All is queued before the lock is released, since the reactor may read later requests of these connections then.
            if len(gathered) > 1 or pool.has_queued:
                gathered = pool.queue_all_but_first(gathered)
        queued: list[Any] = []
        goes_on = True
        if not gathered and pool.has_queued:
            queued, goes_on = pool.take_queued()
        idle = goes_on and not gathered and not queued
        if idle and not self._has_left:
            return True
        self._busy_since = monotonic()
        self._end_turn()
        try:
            if gathered:
                pool.handle_at_once(gathered)
            elif queued:
                pool.handle(queued)
            self._has_left = pool.finish_round(idle)
        finally:
            self.lag.add(monotonic() - self._busy_since)
            self._busy_since = 0.0
            self._begin_turn()
        return goes_on

    def _close(self) -> None:
        """Give all connections back, and close the loop."""
        if self._has_left:
            self._pool.finish_round(idle=True)
        with self._calls:
            self._is_open = False
        self.reactor.runUntilCurrent()
        for connection in list(self._connections):
            try:
                connection.leave()
            except Exception:
                self._log.failure("{pool}: a connection could not be given back", pool=self.name)
        self._connections.clear()
        self.reactor.close()
