"""Opening and closing on the running asyncio loop. Methods are coroutines."""

from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from rocketd.client.errors import ClientStateError
from rocketd.client.faces.lifecycle import Lifecycle
from rocketd.client.faces.wrong_use import check_method, refused
from rocketd.client.runtime.asyncio_host import AsyncioHost, to_deferred, to_future

P = ParamSpec("P")
R = TypeVar("R")


class AioLifecycle(Lifecycle):
    """A client of the loop running when it starts."""

    _host: AsyncioHost

    async def open(self) -> Self:
        """Open the client and return it. A consumer then has its first share of the queues."""
        self._life.begin()
        host = self._host = AsyncioHost.acquire()
        try:
            await to_future(self._bring_up(host.reactor, to_deferred))
        except BaseException:
            self._life.fail()
            await host.release()
            raise
        return self

    async def close(self) -> None:
        """Let work under way end, store the offsets, and leave."""
        self._life.guard.check()
        if not self._life.begun or self._life.ended:
            return
        self._check_caller()
        if await to_future(self._bring_down()):
            await self._host.release()

    async def start(self) -> Self:
        """Open the client and return it: another name of ``open``."""
        return await self.open()

    async def stop(self) -> None:
        """Close the client: another name of ``close``."""
        await self.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._block_failed = error is not None
        await self.close()

    if not TYPE_CHECKING:  # a type checker refuses the statement itself
        __enter__ = __exit__ = refused("with", "use 'async with', or rocketd.client.sync")

    def _check_caller(self) -> None:
        # Nothing would ever wake the caller's loop, and the client's loop may have ended.
        running = _get_running_loop()
        if running is not self._host.loop and running is not None:
            self._life.guard.check()
            raise ClientStateError(
                f"this {self._life.what} was opened in another event loop, which it belongs to: open, use and close it in "
                "one loop, such as within one asyncio.run, or make a client for each loop"
            )


def engines(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a method of a face for a method of its engine."""

    @wraps(method)
    async def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        engine = self._engine
        try:
            running: Any = method(engine, *arguments, **keywords)
        except TypeError:
            check_method(self, method, arguments, keywords)
            raise
        result: R = await to_future(running)
        return result

    return call
