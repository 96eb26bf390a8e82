"""Runs functions of the application: plain functions in threads, coroutine functions in the loop of the face.

Apache runs all of them in thread pools.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from inspect import isasyncgen, isasyncgenfunction, isawaitable, iscoroutinefunction, isgenerator, isgeneratorfunction
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.client.errors import IllegalOptionError
from rocketd.client.runtime.worker_threads import WorkerThreads
from rocketd.common.event_loop.reactor import IReactor

R = TypeVar("R")

Invoke = Callable[..., Deferred[Any]]
"""Called in the reactor thread with a function and its arguments. Returns a Deferred for its result."""


def is_coroutine_function(function: object) -> bool:
    """Whether a call returns a coroutine. An object's ``__call__`` counts."""
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def check_function(name: str, function: object) -> None:
    """Raise IllegalOptionError unless it is callable and a call runs it. A generator function does nothing when called."""
    if not callable(function):
        raise IllegalOptionError(f"{name}={function!r}: accepted is a function, or a coroutine function")
    for each in (function, type(function).__call__):
        if isgeneratorfunction(each) or isasyncgenfunction(each):
            raise IllegalOptionError(
                f"{name}={function!r} is a generator function, which does nothing when it is called: let it return where it "
                "yields"
            )


class HandlerThreads:
    """The threads of one producer or consumer. Each begins when it is first needed. Reactor thread.

    ``run_coroutine`` gets the coroutine of a coroutine function and returns a Deferred for its result. An awaitable
    returned by a plain function is awaited in the same way.
    """

    _log = Logger()

    def __init__(self, reactor: IReactor, name: str, limit: int, run_coroutine: Callable[[Any], Deferred[Any]]) -> None:
        self._run_coroutine = run_coroutine
        self._threads = WorkerThreads(reactor, name, limit)
        self._awaited: dict[Deferred[Any], Callable[..., Any]] = {}

    def stop(self) -> Deferred[None]:
        """Run nothing more.

        Return a Deferred for the end of all threads. It does not wait for a thread still in a function.
        """
        stopped: Deferred[None] = Deferred()
        # Functions have had their time. A function still running may do so for ever.
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
        """The functions running now, in threads or as coroutines."""
        return [*self._threads.unfinished, *self._awaited.values()]

    def set_limit(self, limit: int) -> None:
        """Limit the number of functions running at the same time. If it rises, waiting functions begin immediately."""
        self._threads.set_limit(limit)

    def run(self, function: Callable[[], R]) -> Deferred[R]:
        """Run a function that may block."""
        return self._threads.run(function)

    def caller(self, function: Callable[..., Any]) -> Callable[..., Deferred[Any]]:
        """Return a function to run one given by the application with its arguments."""
        return partial(self._await if is_coroutine_function(function) else self._call, function)

    def invoke(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run a function given by the application."""
        return self.caller(function)(*arguments)

    def follow(self, function: Callable[..., Any], coroutine: Coroutine[Any, Any, R]) -> Deferred[R]:
        """Run a coroutine that drives calls of a coroutine function given by the application."""
        try:
            return self._listed(self._run_coroutine(coroutine), function)
        except Exception:  # the loop is closed
            coroutine.close()
            return fail()

    def result(self, function: Callable[..., Any], result: object) -> Deferred[Any]:
        """Return the final result of a function given by the application, which ``run`` has run in a larger one.

        ``result`` is the value or the Failure of the function. It may be an awaitable.
        """
        return succeed(result).addCallback(self._returned, function)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return self._threads.run(function, *arguments).addCallback(self._returned, function)

    def _returned(self, result: object, function: Callable[..., Any]) -> Any:
        if result is None:
            return None  # the usual case
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
        return self._listed(running, function)

    def _listed(self, running: Deferred[Any], function: Callable[..., Any]) -> Deferred[Any]:
        if not running.called:
            self._awaited[running] = function
            running.addBoth(self._end, running)
        return running

    def _end(self, result: R, running: Deferred[Any]) -> R:
        del self._awaited[running]
        return result


async def _outlived(awaitable: Awaitable[Any]) -> Any:
    """Return the result. After SystemExit return a failure: asyncio's loop would end, but no thread except the main one."""
    try:
        return await awaitable
    except SystemExit:
        return Failure()
