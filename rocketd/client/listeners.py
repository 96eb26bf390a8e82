"""How what the application gives is run: plain functions in threads of their own, coroutine functions where the face lives.

No counterpart in Apache, where all of it runs in thread pools.
"""

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.threadpool import ThreadPool

R = TypeVar("R")

Invoke = Callable[..., Deferred[Any]]
"""Called in the reactor thread with a function and its arguments; fires with what it returns."""


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it makes a coroutine; an object's ``__call__`` counts."""
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


class HandlerThreads:
    """The threads of one producer or consumer; each begins when it is first needed. Reactor thread.

    ``run_coroutine`` takes what a coroutine function returned and fires with its result.
    """

    _log = Logger()

    def __init__(self, reactor: Any, name: str, limit: int, run_coroutine: Callable[[Any], Deferred[Any]]) -> None:
        self._reactor = reactor
        self._run_coroutine = run_coroutine
        self._pool = ThreadPool(0, limit, name)
        # They keep no process alive, also when a handler never ends.
        self._pool.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
        self._busy: dict[object, Callable[..., Any]] = {}  # what waits or runs; taken from in the threads
        self._awaited: dict[object, Callable[..., Any]] = {}

    def start(self) -> None:
        """Run functions from now on."""
        self._pool.start()

    def stop(self) -> Deferred[None]:
        """Run nothing more; fires when all threads have ended, but waits for none that is still in a function."""
        stopped: Deferred[None] = Deferred()
        if not self._pool.started:
            stopped.callback(None)
            return stopped
        # Whoever stops has given functions the time they have: what still runs may do so for ever.
        waits = not self._busy
        if not waits:
            self._log.warn("{count} functions of {pool} do not end", count=len(self._busy), pool=self._pool.name)

        def stop() -> None:
            self._pool.stop()
            if waits:
                self._reactor.callFromThread(stopped.callback, None)

        # It waits for the threads, and the reactor must not.
        Thread(target=stop, name=f"{self._pool.name}-stop", daemon=True).start()
        if not waits:
            stopped.callback(None)
        return stopped

    @property
    def running(self) -> list[Callable[..., Any]]:
        """What runs just now, in threads or as coroutines."""
        return [*self._busy.values(), *self._awaited.values()]

    def set_limit(self, limit: int) -> None:
        """Run so many functions at once, at most; those that wait for a thread begin at once where it is raised."""
        self._pool.adjustPoolsize(min(limit, len(self._busy)), limit)
        self._pool.adjustPoolsize(0, limit)

    def run(self, function: Callable[[], R]) -> Deferred[R]:
        """Run a function that may block."""
        return self._in_thread(function)

    def invoke(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run what the application gave."""
        if is_coroutine_function(function):
            return self._await(function, *arguments)
        return self._in_thread(function, *arguments)

    def _await(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        token = object()

        def end(result: Any) -> Any:
            del self._awaited[token]
            return result

        self._awaited[token] = function
        return maybeDeferred(lambda: self._run_coroutine(function(*arguments))).addBoth(end)

    def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        token = object()

        def run() -> Any:
            try:
                return function(*arguments)
            finally:
                self._busy.pop(token, None)

        self._busy[token] = function
        return deferToThreadPool(self._reactor, self._pool, run)
