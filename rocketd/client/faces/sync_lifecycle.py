"""Opening and closing in the clients' background thread. Methods block."""

import sys
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from warnings import warn

from twisted.internet.defer import ensureDeferred, maybeDeferred

from rocketd.client.faces.lifecycle import Lifecycle
from rocketd.client.faces.wrong_use import check_method, refused
from rocketd.client.runtime.thread_host import ThreadHost

P = ParamSpec("P")
R = TypeVar("R")


class SyncLifecycle(Lifecycle):
    """A client of the background thread of this process. Any thread may call it."""

    _host: ThreadHost
    _warned = False

    def _call(self, function: Callable[..., Awaitable[R]], *arguments: Any, **keywords: Any) -> R:
        """Call a coroutine function of the engine and return its result."""
        self._warn_in_loop()
        return self._host.call(partial(function, **keywords), *arguments)

    def _warn_in_loop(self) -> None:
        """Warn once if a coroutine of asyncio makes a blocking call.

        Notebooks run their cells in a loop, and wait for each cell anyway.
        """
        if _get_running_loop() is None or self._warned or "ipykernel" in sys.modules:
            return
        self._warned = True
        frame, level = sys._getframe().f_back, 2
        while frame is not None and frame.f_globals.get("__name__", "").startswith("rocketd."):
            frame, level = frame.f_back, level + 1
        warn(
            f"a blocking call of this {self._life.what} in a running event loop: everything else in the loop waits for it; "
            "use rocketd.client.aio, or call it by asyncio.to_thread",
            RuntimeWarning,
            level,
        )

    def open(self) -> Self:
        """Open the client and return it. A consumer then has its first share of the queues."""
        self._life.begin()
        host = self._host = ThreadHost.acquire()
        try:
            host.call(self._bring_up, host.reactor, ensureDeferred)
        except BaseException:
            self._life.fail()
            host.release()
            raise
        return self

    def close(self) -> None:
        """Let work under way end, store the offsets, and leave."""
        self._life.guard.check()
        if self._life.begun and not self._life.ended and self._host.call(self._bring_down):
            self._host.release()

    def start(self) -> Self:
        """Open the client and return it: another name of ``open``."""
        return self.open()

    def stop(self) -> None:
        """Close the client: another name of ``close``."""
        self.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._block_failed = error is not None
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __aenter__ = __aexit__ = refused("async with", "use 'with', or rocketd.client.aio")


def engines(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """Return a method of a face for a method of its engine."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            result: R = self._call(method, self._engine, *arguments, **keywords)
        except TypeError:
            check_method(self, method, arguments, keywords)
            raise
        return result

    return call


def soon(check: Callable[[Any], object], method: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a method for any thread and for signal handlers: it waits for nothing.

    ``check`` may raise at once. ``method`` is called in the clients' thread once it runs.
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
    """Return a method for any thread. The given method is called in the clients' thread once it runs."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        if not self._life.begun:
            return method(self, *arguments, **keywords)
        result: R = self._host.call(lambda: maybeDeferred(method, self, *arguments, **keywords))
        return result

    return call
