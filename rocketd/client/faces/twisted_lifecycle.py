"""Opening and closing for Twisted, on the global reactor. Methods return Deferreds."""

from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred

from rocketd.client.faces.lifecycle import Lifecycle
from rocketd.client.faces.wrong_use import check_method, refused
from rocketd.client.runtime.logs import bridge
from rocketd.common.event_loop.reactor import global_reactor

P = ParamSpec("P")
R = TypeVar("R")


class TwistedLifecycle(Lifecycle):
    """A client on the global reactor, which is imported when the first client starts."""

    def open(self) -> Deferred[Self]:
        """Open the client and return it. A consumer then has its first share of the queues."""
        return Deferred.fromCoroutine(self._open())

    async def _open(self) -> Self:
        self._life.begin()
        bridge.install()
        try:
            await self._bring_up(global_reactor(), ensureDeferred)
        except BaseException:
            self._life.fail()
            raise
        return self

    def close(self) -> Deferred[None]:
        """Let work under way end, store the offsets, and leave."""
        self._life.guard.check()
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._life.begun and not self._life.ended:
            await self._bring_down()

    def start(self) -> Deferred[Self]:
        """Open the client and return it: another name of ``open``."""
        return self.open()

    def stop(self) -> Deferred[None]:
        """Close the client: another name of ``close``."""
        return self.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._block_failed = error is not None
        await self.close()

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __enter__ = __exit__ = refused("with", "use 'async with' in a coroutine, or rocketd.client.sync")


def engines(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], Deferred[R]]:
    """Return a method of a face for a method of its engine."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> Deferred[R]:
        engine = self._engine
        try:
            running: Any = method(engine, *arguments, **keywords)
        except TypeError:
            check_method(self, method, arguments, keywords)
            raise
        return Deferred.fromCoroutine(running)

    return call
