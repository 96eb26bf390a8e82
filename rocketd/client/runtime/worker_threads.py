"""Threads for blocking functions. Results return in groups, because thread switches dominate the cost of a short function.

Counterpart: the executors for listeners (Apache). Twisted's pool needs two more steps between threads for each function, and
one call into the reactor for each result.
"""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.common.event_loop.reactor import IReactor

_Task = tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]


class WorkerThreads:
    """Up to ``limit`` threads, each started when it is first needed. All methods belong to the reactor thread.

    The threads are daemons: they do not keep the process alive, even if a function never ends.
    """

    _log = Logger()

    def __init__(self, reactor: IReactor, name: str, limit: int) -> None:
        self.name = name
        self._reactor = reactor
        self._limit = limit
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._count = 0
        # Written by the threads: the results, and whether the reactor knows of them.
        self._done: deque[tuple[Deferred[Any], Any]] = deque()
        self._told = False
        self._unfinished: dict[Deferred[Any], Callable[..., Any]] = {}

    @property
    def unfinished(self) -> list[Callable[..., Any]]:
        """The functions waiting or running."""
        return list(self._unfinished.values())

    def run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run a function. Return a Deferred for its result. After cancelling it runs on, and its result is ignored."""
        done: Deferred[Any] = Deferred()
        self._unfinished[done] = function
        self._tasks.put((done, function, arguments))
        self._begin_threads()
        return done

    def set_limit(self, limit: int) -> None:
        """Have up to ``limit`` threads. Excess threads end after the functions waiting now."""
        self._limit = limit
        for _ in range(limit, self._count):
            self._tasks.put(None)
        self._count = min(self._count, limit)
        self._begin_threads()

    def stop(self, ended: Callable[[], None]) -> None:
        """Let the threads end after the waiting functions. ``ended`` is then called in the reactor thread."""
        threads, self._threads = self._threads, []
        for _ in range(self._count):
            self._tasks.put(None)
        self._count = 0

        def wait() -> None:
            for thread in threads:
                thread.join()
            self._reactor.callFromThread(ended)

        if any(thread.is_alive() for thread in threads):
            # This thread waits for the others, because the reactor must not.
            Thread(target=wait, name=f"{self.name}-stop", daemon=True).start()
        else:
            ended()

    def _begin_threads(self) -> None:
        while self._count < min(self._limit, len(self._unfinished)):
            self._count += 1
            thread = Thread(target=self._work, name=f"{self.name}-{self._count}", daemon=True)
            self._threads = [*filter(Thread.is_alive, self._threads), thread]
            thread.start()

    # ------------------------------------------------------------ the threads

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            done, function, arguments = task
            try:
                result = function(*arguments)
            except BaseException:
                result = Failure()
            self._done.append((done, result))
            del task, done, function, arguments, result  # keep nothing of it while this thread waits
            # One call reports all results until the reactor looks.
            if not self._told:
                self._told = True
                self._reactor.callFromThread(self._deliver)

    def _deliver(self) -> None:
        self._told = False  # before looking: later results are reported again
        for _ in range(len(self._done)):
            done, result = self._done.popleft()
            del self._unfinished[done]
            done.callback(result)
