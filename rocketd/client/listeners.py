"""How what the application gives is run: plain functions in threads of their own, coroutine functions where the face lives.

No counterpart in Apache, where all of it runs in thread pools.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isasyncgen, isasyncgenfunction, isawaitable, iscoroutinefunction, isgenerator, isgeneratorfunction
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.errors import IllegalOptionError
from rocketd.client.worker_threads import WorkerThreads

R = TypeVar("R")

Invoke = Callable[..., Deferred[Any]]
"""Called in the reactor thread with a function and its arguments; fires with what it returns."""


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it makes a coroutine; an object's ``__call__`` counts."""
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def check_function(name: str, function: Any) -> None:
    """Raise IllegalOptionError for what cannot be called, or would run none of its lines when it is."""
    if not callable(function):
        raise IllegalOptionError(f"{name}={function!r}: accepted is a function, or a coroutine function")
    for each in (function, type(function).__call__):
        if isgeneratorfunction(each) or isasyncgenfunction(each):
            raise IllegalOptionError(
                f"{name}={function!r} is a generator function, which does nothing when it is called: let it return where it "
                "yields"
            )


class HandlerThreads:
    """The threads of one producer or consumer; each begins when it is first needed. Reactor thread.

    ``run_coroutine`` takes what a coroutine function returned and fires with its result. What a plain function returns that
    can be awaited is awaited there as well.
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
        return partial(self._await if is_coroutine_function(function) else self._call, function)

    def invoke(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run what the application gave."""
        return self.caller(function)(*arguments)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return self._threads.run(function, *arguments).addCallback(self._returned, function)

    def _returned(self, result: Any, function: Callable[..., Any]) -> Any:
        if result is None:
            return None  # as mostly
        if isgenerator(result) or isasyncgen(result):
            raise TypeError(f"{function!r} has returned a generator, of which nothing has run")
        return self._follow(function, result) if isawaitable(result) else result

    def _await(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        try:
            return self._follow(function, function(*arguments))
        except Exception:
            return fail()

    def _follow(self, function: Callable[..., Any], awaitable: Awaitable[Any]) -> Deferred[Any]:
        running: Deferred[Any] = (
            awaitable if isinstance(awaitable, Deferred) else self._run_coroutine(_outlived(awaitable))
        )
        if not running.called:
            self._awaited[running] = function
            running.addBoth(self._end, running)
        return running

    def _end(self, result: R, running: Deferred[Any]) -> R:
        del self._awaited[running]
        return result


async def _outlived(awaitable: Awaitable[Any]) -> Any:
    """Return what it does; a failure where it exits, which would end asyncio's loop, and no thread but the main one."""
    try:
        return await awaitable
    except SystemExit:
        return Failure()
