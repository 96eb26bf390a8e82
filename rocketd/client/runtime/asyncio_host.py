"""A reactor on the running asyncio loop, and conversion between Deferreds and asyncio's awaitables.

If the global reactor runs on this loop, it is used. Otherwise the loop gets a separate reactor, which begins with its first
user and ends with its last. A global reactor is never installed.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast
from weakref import WeakValueDictionary

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from rocketd.client.runtime.fork import at_fork_in_child, forks
from rocketd.client.runtime.logs import bridge
from rocketd.client.runtime.tracebacks import without_internal_frames
from rocketd.common.event_loop.reactor import IReactor

if TYPE_CHECKING:
    from twisted.python.threadpool import ThreadPool

    from rocketd.client.runtime.reactors import LoopReactor

T = TypeVar("T")

STOP_SECONDS = 5.0
"""Time for the last release to wait for a look-up of a host name."""


class AsyncioHost:
    """A reactor on a loop. All methods belong to the loop's thread.

    Get it by ``acquire``, and give it back by ``release``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._users = 0
        self._forks = forks()
        self._own: LoopReactor | None = None
        installed = _installed_on(loop)
        if installed is None:
            self._own = _reactor_on(loop)
            self._own.startRunning(installSignalHandlers=False)
            installed = cast(IReactor, self._own)
        self.reactor = installed

    @classmethod
    def acquire(cls) -> Self:
        """Return the host of the running loop. Raises RuntimeError without a running loop."""
        loop = asyncio.get_running_loop()
        forks()  # notices a fork without hooks
        host = _hosts.get(id(loop))
        if host is None:
            bridge.install()
            host = _hosts[id(loop)] = cls(loop)
        host._users += 1
        return host  # type: ignore[return-value]

    async def release(self) -> None:
        """Release the host. After the last user, return when its reactor has ended.

        Open connections are closed and timers dropped then. In a forked child it does nothing.
        """
        if self._forks != forks():
            return
        self._users -= 1
        if self._users:
            return
        if _hosts.get(id(self.loop)) is self:
            del _hosts[id(self.loop)]
        if self._own is not None:
            pool = self._own.take_pool()
            self._own.end()
            if pool is not None:
                await _stop_pool(pool, self.loop)


class _Bridge(asyncio.Future[T], Generic[T]):
    """The future of a Deferred. Cancelling it cancels the Deferred, and it ends like the Deferred."""

    work: Deferred[None] | None = None
    _message: Any = None
    """The message of the cancellation, by which libraries tell theirs from others."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Ask the Deferred to end. As with a task, it may have a result nevertheless."""
        if self.done():
            return False
        if self.work is None:
            return super().cancel(msg)
        self._message = msg
        self.work.cancel()
        return True

    async def follow(self, work: Awaitable[T]) -> None:
        """Wait for the work, which awaits Deferreds, and end like it."""
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
            super().cancel(self._message)

    def _fail(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(without_internal_frames(error))


def to_future(work: Deferred[T] | Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Return an awaitable of the running loop for a Deferred, or for a coroutine that awaits Deferreds.

    It begins at once. Cancelling the awaiting task cancels the Deferred. The task continues when the work has ended: with
    asyncio.CancelledError if the work was cancelled, by any caller.
    """
    future: _Bridge[T] = _Bridge(loop=asyncio.get_running_loop())
    future.work = Deferred.fromCoroutine(future.follow(work))
    return future


async def received(work: Coroutine[Any, Any, T], put_back: Callable[[T], None]) -> T:
    """Return the result of a coroutine that awaits Deferreds.

    If the task is cancelled after the work has ended, but before it continues, ``put_back`` gets the result.
    """
    future = to_future(work)
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            put_back(future.result())
        raise


class _Answer(asyncio.Future[T], Generic[T]):
    """The future of a Deferred without a coroutine between them. Cancelling it cancels the Deferred."""

    def __init__(self, work: Deferred[T], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._work = work
        self._message: Any = None
        work.addCallbacks(self._succeed, self._fail)

    def cancel(self, msg: Any | None = None) -> bool:
        """Ask the Deferred to end."""
        if self.done():
            return False
        self._message = msg
        self._work.cancel()
        return True

    def _succeed(self, result: T) -> None:
        if not self.done():
            self.set_result(result)

    def _fail(self, failure: Failure) -> None:
        if self.done():
            return
        error = failure.value
        assert error is not None
        if isinstance(error, CancelledError):
            super().cancel(self._message)
        else:
            self.set_exception(error)


def answer_to_future(work: Deferred[T]) -> asyncio.Future[T]:
    """Return an awaitable of the running loop for a Deferred that is not chained to others.

    It is cheaper than ``to_future``, and drops the traceback of an error.
    """
    return _Answer(work, asyncio.get_running_loop())


class _OfTask(Deferred[T]):
    """A Deferred for the end of a task or another asyncio future. Cancelling it cancels the task, and waits for its end."""

    def __init__(self, task: asyncio.Future[T]) -> None:
        super().__init__()
        self._task = task
        task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Ask the task to end. It may have a result nevertheless."""
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
    """Return a Deferred for an asyncio awaitable, such as the coroutine of a user's handler.

    Cancelling it cancels the awaitable. It fires when the awaitable has ended: with Twisted's CancelledError if it was
    cancelled, by any caller.
    """
    return _OfTask(asyncio.ensure_future(work))


def _installed_on(loop: asyncio.AbstractEventLoop) -> IReactor | None:
    """Return the global reactor if it is installed and runs on this loop."""
    reactor = sys.modules.get("twisted.internet.reactor")
    if reactor is None:
        return None
    from twisted.internet.asyncioreactor import AsyncioSelectorReactor

    if isinstance(reactor, AsyncioSelectorReactor) and reactor.running and reactor._asyncioEventloop is loop:
        return cast(IReactor, reactor)
    return None


def _reactor_on(loop: asyncio.AbstractEventLoop) -> "LoopReactor":
    # Not at the top: Twisted's reactors import OpenSSL, which takes as long as the rest of the client.
    from rocketd.client.runtime.reactors import LoopReactor

    return LoopReactor(loop)


async def _stop_pool(pool: "ThreadPool", loop: asyncio.AbstractEventLoop) -> None:
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


# A user keeps its host, and the host its loop, so an id is not reused meanwhile.
_hosts: "WeakValueDictionary[int, AsyncioHost]" = WeakValueDictionary()


def _begin_child() -> None:
    _hosts.clear()


at_fork_in_child(_begin_child)
