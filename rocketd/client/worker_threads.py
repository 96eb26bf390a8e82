"""Threads that run what may block, and give results back in groups: a hand-over each way is what a short function costs.

Answers to the executors that Apache's client makes for listeners. Twisted's pool takes two more steps between threads for
each function, and one call into the reactor for each result.
"""

from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

_Task = tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]


class WorkerThreads:
    """Up to ``limit`` threads, each begun when it is first needed. All methods belong to the reactor thread.

    The threads are daemons: they keep no process alive, also when a function never ends.
    """

    _log = Logger()

    def __init__(self, reactor: Any, name: str, limit: int) -> None:
        self.name = name
        self._reactor = reactor
        self._limit = limit
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._count = 0
        # Written by the threads: what is done, and whether the reactor knows that there is something.
        self._done: deque[tuple[Deferred[Any], Any]] = deque()
        self._told = False
        self._unfinished: dict[Deferred[Any], Callable[..., Any]] = {}

    @property
    def unfinished(self) -> list[Callable[..., Any]]:
        """The functions that wait or run."""
        return list(self._unfinished.values())

    def run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run a function; fires with what it returns or raises. Cancelled, it runs on, and its result does not count."""
        done: Deferred[Any] = Deferred()
        self._unfinished[done] = function
        self._tasks.put((done, function, arguments))
        self._begin_threads()
        return done

    def set_limit(self, limit: int) -> None:
        """Have so many threads, at most; those that are too many end with what waits by now."""
        self._limit = limit
        for _ in range(limit, self._count):
            self._tasks.put(None)
        self._count = min(self._count, limit)
        self._begin_threads()

    def stop(self, ended: Callable[[], None]) -> None:
        """Let the threads end, with what waits; ``ended`` is then called in the reactor thread."""
        threads, self._threads = self._threads, []
        for _ in range(self._count):
            self._tasks.put(None)
        self._count = 0

        def wait() -> None:
            for thread in threads:
                thread.join()
            self._reactor.callFromThread(ended)

        if any(thread.is_alive() for thread in threads):
            # It waits for the threads, and the reactor must not.
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
            del task, done, function, arguments, result  # nothing of it is kept while this thread waits
            # One call tells of all that is done until the reactor looks.
            if not self._told:
                self._told = True
                self._reactor.callFromThread(self._deliver)

    def _deliver(self) -> None:
        self._told = False  # before looking: who is done from here on tells again
        for _ in range(len(self._done)):
            done, result = self._done.popleft()
            del self._unfinished[done]
            done.callback(result)
