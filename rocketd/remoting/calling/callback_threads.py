"""Threads for callbacks of requests: the callback executor of a daemon and of a client.

Counterpart: the public executors of `NettyRemotingServer` and `NettyRemotingClient` (Apache).
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

from twisted.logger import Logger

DEFAULT_THREADS = 4
"""Number of threads if a setting is 0, as in Apache."""

MAX_WAITING = 100_000
"""Greatest number of waiting callbacks. Further ones are refused and run by the caller."""

IDLE_SECONDS = 60.0
"""Idle time after which a thread ends."""


class CallbackThreads:
    """Up to ``limit`` threads, each started when it is first needed. All methods may be called by any thread.

    The threads are daemons: an endless callback does not keep the process alive.
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
        """Run a function on a thread. Raises RuntimeError if too many wait, or after ``stop``."""
        with self._changed:
            if self._stopped:
                raise RuntimeError(f"{self._name} has stopped")
            if len(self._tasks) >= MAX_WAITING:
                raise RuntimeError(f"{MAX_WAITING} callbacks are waiting for {self._name}, the limit")
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

    def are_busy(self) -> bool:
        """Return whether a callback waits or runs."""
        with self._changed:
            return bool(self._tasks) or self._idle < self._threads

    def start(self) -> None:
        """Accept functions again after a stop."""
        with self._changed:
            self._stopped = False

    def stop(self) -> None:
        """Refuse further functions. The threads end after the waiting callbacks."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (function := self._next()) is not None:
            try:
                function()
            except Exception:
                self._log.failure("a callback failed")
            del function  # release it while this thread waits

    def _next(self) -> Callable[[], None] | None:
        """Return the next function, None if this thread should end."""
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
