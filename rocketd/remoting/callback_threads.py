"""The threads that run callbacks of requests: the callback executor of a daemon and of a client.

Counterpart: the public executors of `NettyRemotingServer` and `NettyRemotingClient` (Apache).
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

from twisted.logger import Logger

DEFAULT_THREADS = 4
"""How many there are if a setting says 0, as in Apache."""

MAX_WAITING = 100_000
"""Callbacks that may wait; more are refused, and run where they are made."""

IDLE_SECONDS = 60.0
"""How long a thread waits for work before it ends."""


class CallbackThreads:
    """Up to ``limit`` threads, each begun when it is first needed. Any thread may call all methods.

    The threads are daemons: a callback that never ends keeps no process alive.
    """

    _log = Logger()

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit if limit > 0 else DEFAULT_THREADS
        self._tasks: deque[Callable[[], None]] = deque()
        self._changed = Condition()
        self._threads = 0
        self._idle = 0
        self._made = 0
        self._stopped = False

    def __call__(self, function: Callable[[], None]) -> None:
        """Have a function run. Raises RuntimeError when too many wait, or after ``stop``."""
        with self._changed:
            if self._stopped:
                raise RuntimeError(f"{self._name} has stopped")
            if len(self._tasks) >= MAX_WAITING:
                raise RuntimeError(f"{MAX_WAITING} callbacks wait for {self._name}, the most that may")
            self._tasks.append(function)
            if len(self._tasks) <= self._idle:
                self._changed.notify()
                return
            if self._threads >= self._limit:
                return
            self._threads += 1
            self._made += 1
            number = self._made
        Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()

    def start(self) -> None:
        """Take functions again after a stop."""
        with self._changed:
            self._stopped = False

    def stop(self) -> None:
        """Take no more; the threads end with the callbacks that wait by now."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (function := self._next()) is not None:
            try:
                function()
            except Exception:
                self._log.failure("a callback failed")
            del function  # nothing of it is kept while this thread waits

    def _next(self) -> Callable[[], None] | None:
        """Return the next function; None if this thread is to end."""
        with self._changed:
            waits = True
            while not self._tasks and waits and not self._stopped:
                self._idle += 1
                waits = self._changed.wait(IDLE_SECONDS)
                self._idle -= 1
            if self._tasks:
                return self._tasks.popleft()
            self._threads -= 1
            return None
