"""How what the application gives is run: plain functions in threads of their own, coroutine functions where the face lives.

No counterpart in Apache, where all of it runs in thread pools.
"""

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from rocketd.client.worker_threads import WorkerThreads

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
        self._run_coroutine = run_coroutine
        self._threads = WorkerThreads(reactor, name, limit)
        self._awaited: dict[Deferred[Any], Callable[..., Any]] = {}

    def stop(self) -> Deferred[None]:
        """Run nothing more; fires when all threads have ended, but waits for none that is still in a function."""
        stopped: Deferred[None] = Deferred()
        # Whoever stops has given functions the time they have: what still runs may do so for ever.
        left = len(self._threads.unfinished)
        if left:
            self._log.warn("{count} functions of {pool} do not end", count=left, pool=self._threads.name)
            self._threads.stop(lambda: None)
            stopped.callback(None)
        else:
            self._threads.stop(lambda: stopped.callback(None))
        return stopped

    @property
    def running(self) -> list[Callable[..., Any]]:
        """What runs just now, in threads or as coroutines."""
        return [*self._threads.unfinished, *self._awaited.values()]

    def set_limit(self, limit: int) -> None:
        """Run so many functions at once, at most; those that wait for a thread begin at once where it is raised."""
        self._threads.set_limit(limit)

    def run(self, function: Callable[[], R]) -> Deferred[R]:
        """Run a function that may block."""
        return self._threads.run(function)

    def caller(self, function: Callable[..., Any]) -> Callable[..., Deferred[Any]]:
        """Return what runs something that the application gave, with the arguments that it gets."""
        return partial(self._await if is_coroutine_function(function) else self._threads.run, function)

    def invoke(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run what the application gave."""
        return self.caller(function)(*arguments)

    def _await(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        try:
            running = self._run_coroutine(function(*arguments))
        except Exception:
            return fail()
        if not running.called:
            self._awaited[running] = function
            running.addBoth(self._end, running)
        return running

    def _end(self, result: R, running: Deferred[Any]) -> R:
        del self._awaited[running]
        return result
