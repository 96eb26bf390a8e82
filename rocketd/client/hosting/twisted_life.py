"""Opening and closing for Twisted, on the global reactor, and methods that return Deferreds.

No counterpart in Apache.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred

from rocketd.client.life import Life

P = ParamSpec("P")
R = TypeVar("R")


class TwistedLife(Life):
    """A client on the global reactor, which is imported when the first one starts."""

    def open(self) -> Deferred[Self]:
        """Begin. The result is this client; a consumer has its first share of the queues then."""
        return Deferred.fromCoroutine(self._open())

    async def _open(self) -> Self:
        self._life.begin()
        try:
            from twisted.internet import reactor

            await self.bring_up(reactor, ensureDeferred)
        except BaseException:
            self._life.fail()
            raise
        return self

    def close(self) -> Deferred[None]:
        """Let what is under way end, store what is to be stored, and leave."""
        self._life.guard.check()
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._life.begun and not self._life.ended:
            await self.bring_down()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.block_failed = error is not None
        await self.close()


def engines(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], Deferred[R]]:
    """Make a method of a face of one of its engine's."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> Deferred[R]:
        running: Any = method(self.engine, *arguments, **keywords)
        return Deferred.fromCoroutine(running)

    return call
