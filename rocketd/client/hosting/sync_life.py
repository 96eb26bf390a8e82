"""Opening and closing in the clients' thread in the background, and methods that block.

No counterpart in Apache.
"""

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from twisted.internet.defer import ensureDeferred, maybeDeferred

from rocketd.client.hosting.thread_host import ThreadHost
from rocketd.client.life import Life

P = ParamSpec("P")
R = TypeVar("R")


class SyncLife(Life):
    """A client of the thread that all of the process live in. Any thread may call it."""

    _host: ThreadHost

    def call(self, function: Callable[..., Awaitable[R]], *arguments: Any, **keywords: Any) -> R:
        """Return what a coroutine function of the engine returns."""
        return self._host.call(partial(function, **keywords), *arguments)

    def open(self) -> Self:
        """Begin. The result is this client; a consumer has its first share of the queues then."""
        self._life.begin()
        host = self._host = ThreadHost.acquire()
        try:
            host.call(self.bring_up, host.reactor, ensureDeferred)
        except BaseException:
            self._life.fail()
            host.release()
            raise
        return self

    def close(self) -> None:
        """Let what is under way end, store what is to be stored, and leave."""
        self._life.guard.check()
        if self._life.begun and not self._life.ended and self._host.call(self.bring_down):
            self._host.release()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.block_failed = error is not None
        self.close()


def engines(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """Make a method of a face of one of its engine's."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        result: R = self.call(method, self.engine, *arguments, **keywords)
        return result

    return call


def soon(check: Callable[[Any], object], method: Callable[[Any], object]) -> Callable[[Any], None]:
    """Make a method of two that may be called from any thread, and in a signal's handler: it waits for nothing.

    ``check`` may raise at once, ``method`` belongs to the clients' thread once it runs.
    """

    @wraps(method)
    def call(self: Any, /) -> None:
        check(self)
        host = getattr(self, "_host", None)
        if host is None:
            method(self)
        else:
            host.call_soon(method, self)

    return call


def in_thread(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make a method that may be called from any thread of one that belongs to the clients' thread once it runs."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        if not self._life.begun:
            return method(self, *arguments, **keywords)
        result: R = self._host.call(lambda: maybeDeferred(method, self, *arguments, **keywords))
        return result

    return call
