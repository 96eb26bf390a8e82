"""A reactor on the running asyncio loop, and the ways between Deferreds and asyncio's awaitables.

Answers to nothing of Apache's. The global reactor is used where it runs on this very loop; otherwise the loop gets a
reactor of its own, which begins with its first user and ends with its last. No global reactor is ever installed.
"""

import asyncio
import sys
from collections.abc import Awaitable, Coroutine
from threading import Thread
from typing import Any, Generic, Self, TypeVar
from weakref import WeakValueDictionary

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from rocketd.client.hosting.fork import at_fork_in_child, forks
from rocketd.client.hosting.logs import bridge
from rocketd.client.hosting.reactors import LoopReactor

T = TypeVar("T")

STOP_SECONDS = 5.0
"""How long the last release waits for a look-up of a host name."""


class AsyncioHost:
    """A reactor on a loop. All belongs to the loop's thread.

    Get it by ``acquire``, and give it back by ``release``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.reactor: Any = _installed_on(loop)
        self._own = self.reactor is None
        self._users = 0
        self._forks = forks()
        if self._own:
            self.reactor = LoopReactor(loop)
            self.reactor.startRunning(installSignalHandlers=False)

    @classmethod
    def acquire(cls) -> Self:
        """Return the host of the running loop. Raises RuntimeError where none runs."""
        loop = asyncio.get_running_loop()
        forks()  # notices a fork that ran no hooks
        host = _hosts.get(id(loop))
        if host is None:
            bridge.install()
            host = _hosts[id(loop)] = cls(loop)
        host._users += 1
        return host  # type: ignore[return-value]

    async def release(self) -> None:
        """Let go of the host; after the last user its reactor has ended when this returns.

        Connections that are still open are closed then, timers dropped. In a forked child it does nothing.
        """
        if self._forks != forks():
            return
        self._users -= 1
        if self._users:
            return
        if _hosts.get(id(self.loop)) is self:
            del _hosts[id(self.loop)]
        if self._own:
            pool = self.reactor.take_pool()
            self.reactor.end()
            if pool is not None:
                await _stop_pool(pool, self.loop)


class _Bridge(asyncio.Future[T], Generic[T]):
    """The future of a Deferred. Cancelled, it cancels the Deferred, and ends as that does."""

    work: Deferred[None] | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Ask the Deferred to end; as with a task, it may have results nevertheless."""
        if self.done():
            return False
        if self.work is None:
            return super().cancel(msg)
        self.work.cancel()
        return True

    async def follow(self, work: Awaitable[T]) -> None:
        """Wait for the work, which awaits Deferreds, and end as it does."""
        try:
            result = await work
        except (CancelledError, asyncio.CancelledError):
            self._end_cancelled()
        except StopIteration as error:
            self._fail(RuntimeError(f"StopIteration({error}) cannot leave a coroutine"))
        except BaseException as error:
            self._fail(error)
        else:
            if not self.done():
                self.set_result(result)

    def _end_cancelled(self) -> None:
        if not self.done():
            super().cancel()

    def _fail(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)


def to_future(work: Deferred[T] | Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Return an awaitable of the running loop for a Deferred, or for a coroutine that awaits Deferreds.

    It begins at once. Who cancels the awaiting task cancels the Deferred, and goes on when the work has ended: with
    asyncio.CancelledError when the work was cancelled, by whomever.
    """
    future: _Bridge[T] = _Bridge(loop=asyncio.get_running_loop())
    future.work = Deferred.fromCoroutine(future.follow(work))
    return future


class _OfTask(Deferred[T]):
    """Fires when a task, or another future of asyncio, has ended. Cancelled, it cancels that, and waits for its end."""

    def __init__(self, task: asyncio.Future[T]) -> None:
        super().__init__()
        self._task = task
        task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Ask the task to end; as it likes, it may have a result nevertheless."""
        if self.called:
            super().cancel()
        else:
            self._task.cancel()

    def _end(self, task: asyncio.Future[T]) -> None:
        try:
            result = task.result()
        except asyncio.CancelledError:
            self.errback(Failure(CancelledError()))
        except BaseException:
            self.errback(Failure())
        else:
            self.callback(result)


def to_deferred(work: Awaitable[T]) -> Deferred[T]:
    """Return a Deferred for an awaitable of asyncio, such as the coroutine of a user's handler.

    Cancelled, it cancels the awaitable, and fires when that has ended: with Twisted's CancelledError when it was
    cancelled, by whomever.
    """
    return _OfTask(asyncio.ensure_future(work))


def _installed_on(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the global reactor if it was installed already, runs, and does so on this loop."""
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    if isinstance(reactor, AsyncioSelectorReactor) and reactor.running and reactor._asyncioEventloop is loop:
        return reactor
    return None


async def _stop_pool(pool: ThreadPool, loop: asyncio.AbstractEventLoop) -> None:
    stopped = asyncio.Event()

    def stop() -> None:
        pool.stop()
        try:
            loop.call_soon_threadsafe(stopped.set)
        except RuntimeError:
            pass  # the loop was closed meanwhile

    stopper = Thread(target=stop, name="rocketd-client-stop", daemon=True)
    stopper.start()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await stopped.wait()
    except TimeoutError:
        return  # its threads are daemons
    stopper.join()


# Whoever uses a host keeps it, and it keeps its loop: an id is not used again meanwhile.
_hosts: "WeakValueDictionary[int, AsyncioHost]" = WeakValueDictionary()


def _begin_child() -> None:
    _hosts.clear()


at_fork_in_child(_begin_child)
