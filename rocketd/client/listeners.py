"""How what the application gives is run: plain functions in threads of their own, coroutine functions where the face lives.

No counterpart in Apache, where all of it runs in thread pools.
"""

from collections.abc import Callable
from inspect import iscoroutinefunction
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import deferToThreadPool
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

    def __init__(self, reactor: Any, name: str, limit: int, run_coroutine: Callable[[Any], Deferred[Any]]) -> None:
        self._reactor = reactor
        self._run_coroutine = run_coroutine
        self._pool = ThreadPool(0, limit, name)

    def start(self) -> None:
        """Run functions from now on."""
        self._pool.start()

    def stop(self) -> Deferred[None]:
        """Run nothing more; fires when all threads have ended."""
        stopped: Deferred[None] = Deferred()
        if not self._pool.started:
            stopped.callback(None)
            return stopped

        def stop() -> None:
            self._pool.stop()
            self._reactor.callFromThread(stopped.callback, None)

        # It waits for the threads, and the reactor must not.
        Thread(target=stop, name=f"{self._pool.name}-stop", daemon=True).start()
        return stopped

    def set_limit(self, limit: int) -> None:
        """Run so many functions at once, at most."""
        self._pool.adjustPoolsize(0, limit)

    def run(self, function: Callable[[], R]) -> Deferred[R]:
        """Run a function that may block."""
        return deferToThreadPool(self._reactor, self._pool, function)

    def invoke(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run what the application gave."""
        if is_coroutine_function(function):
            return maybeDeferred(lambda: self._run_coroutine(function(*arguments)))
        return deferToThreadPool(self._reactor, self._pool, function, *arguments)
