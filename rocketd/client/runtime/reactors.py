"""Reactors beside the global one, or without it: one for a thread, one on an asyncio loop.

Unlike Twisted's reactors, they are never installed. They leave no pipe, poller or thread behind when they end, and their
pool threads do not keep the interpreter from exiting. A forked child closes its copies of their sockets.

They use names of Twisted that are not public, as the client's log and the servers' lanes do: see ``INTERNALS``. So
setup.cfg has an upper bound for Twisted's version.
"""

import asyncio
from collections.abc import Callable
from threading import RLock, Thread
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.posixbase import PosixReactorBase
from twisted.python.threadpool import ThreadPool

from rocketd.client.runtime.fork import at_fork_in_child

try:
    from twisted.internet.epollreactor import EPollReactor as _PollingReactor
except ImportError:  # not Linux
    from twisted.internet.selectreactor import SelectReactor as _PollingReactor

POOL_THREADS = 10

INTERNALS: Final = {
    "both": ("_internalReaders", "_registerAsIOThread", "_startedBefore", "_stopped"),
    "epoll": ("_POLL_IN", "_doReadOrWrite", "_poller", "_selectables"),
    "asyncio": ("_asyncioEventloop", "_timerHandle"),
    "lane": ("_newTimedCalls", "_pendingTimedCalls"),
    "log": ("_temporaryObserver",),
}
"""Attributes of Twisted that this package and `rocketd.remoting.serving.lane_reactor` read, set or override.

They are listed by the kind of reactor; "lane" are more of epoll's. "log" are those of Twisted's LogBeginner.
"""

_reactors: "WeakSet[Any]" = WeakSet()


class _OwnReactor(PosixReactorBase):
    """The common base. All methods belong to the reactor's thread, except callFromThread and wakeUp."""

    seconds = staticmethod(monotonic)
    _registerAsIOThread = False  # noqa: N815 - for the application's reactor only

    def __init__(self, *arguments: Any) -> None:
        self._known: WeakSet[Any] = WeakSet()
        self._waking = RLock()  # a signal handler may enter again
        super().__init__(*arguments)
        _reactors.add(self)

    def addReader(self, reader: Any) -> None:  # noqa: N802
        """Remember the descriptor: a paused connection is missing in all lists of Twisted."""
        self._known.add(reader)
        super().addReader(reader)

    def wakeUp(self) -> None:  # noqa: N802
        """Write to the pipe while it exists: its number may belong to another file afterwards."""
        with self._waking:
            super().wakeUp()

    def getThreadPool(self) -> ThreadPool:
        """Return the pool. Its threads are daemons."""
        if self.threadpool is None:
            self.threadpool = pool = ThreadPool(0, POOL_THREADS, "rocketd-client")
            pool.threadFactory = _daemon_thread  # type: ignore[assignment]
            # Stopped by the owner of the reactor, without blocking the reactor's thread.
            pool.start()
        return self.threadpool

    def take_pool(self) -> ThreadPool | None:
        """Return the pool, if there is one, for the caller to stop."""
        pool, self.threadpool = self.threadpool, None
        return pool

    def close(self) -> None:
        """Close the reactor's waker and poller. It cannot run again."""
        with self._waking:
            waker, self.waker = self.waker, None
            if waker is not None:
                self._internalReaders.discard(waker)
                self.removeReader(waker)
                waker.connectionLost(None)
            self._close_poller()

    def close_copies(self) -> None:
        """In a forked child: close the copies of the parent's descriptors, and nothing else.

        Peers get neither a shutdown nor a TLS message, and the poller is not told, because both belong to the parent, too.
        """
        PosixReactorBase.crash(self)
        for descriptor in {*self._known, *self.getWriters()}:
            socket = getattr(descriptor, "socket", None)
            if socket is not None:
                socket.close()
        if self.waker is not None:
            self.waker.connectionLost(None)
            self.waker = None
        self._close_poller()

    def _close_poller(self) -> None:
        poller = getattr(self, "_poller", None)
        if poller is not None and hasattr(poller, "close"):
            poller.close()


class ThreadReactor(_OwnReactor, _PollingReactor):
    """A reactor for a dedicated thread."""

    if hasattr(_PollingReactor, "_POLL_IN"):  # epoll, not select

        def doPoll(self, timeout: float | None) -> None:  # noqa: N802
            """Wait for events and handle them, without Twisted's log context, which is never read here.

            Setting it costs a blocking send 7 % of its CPU time.
            """
            selectables = self._selectables
            try:
                events = self._poller.poll(-1 if timeout is None else timeout, len(selectables))
            except InterruptedError:
                return
            for descriptor, event in events:
                selectable = selectables.get(descriptor)  # an earlier event may have closed it
                if selectable is not None:
                    self._doReadOrWrite(selectable, descriptor, event)

        doIteration = doPoll  # noqa: N815


class LoopReactor(_OwnReactor, AsyncioSelectorReactor):
    """A reactor on an asyncio loop of the application. It never stops the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)

    def installWaker(self) -> None:  # noqa: N802
        """Create no pipe: the loop has one."""

    def callFromThread(self, function: Callable[..., Any], *args: object, **kwargs: object) -> None:  # type: ignore[override]
        """Call a function in the loop. After the loop is closed, nothing is called."""
        loop = self._asyncioEventloop
        try:
            loop.call_soon_threadsafe(lambda: function(*args, **kwargs))
        except RuntimeError:
            if not loop.is_closed():
                raise

    def crash(self) -> None:
        """Stop running. The loop continues."""
        PosixReactorBase.crash(self)

    def end(self) -> None:
        """Close all connections and drop all timers. The pool is left alone: see ``take_pool``."""
        if self.running:
            self.fireSystemEvent("shutdown")
        self._stopped = True
        self._startedBefore = True
        for call in self.getDelayedCalls():
            call.cancel()
        if self._timerHandle is not None:
            self._timerHandle.cancel()
            self._timerHandle = None
        self.close()


def _daemon_thread(*arguments: Any, **keywords: Any) -> Thread:
    return Thread(*arguments, daemon=True, **keywords)


def _close_all_copies() -> None:
    for reactor in list(_reactors):
        reactor.close_copies()
    _reactors.clear()


at_fork_in_child(_close_all_copies)
