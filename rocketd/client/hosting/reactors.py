"""Reactors of our own, beside the global one or without any: one for a thread, one on an asyncio loop.

They differ from Twisted's own in what an application notices: they are never installed, they leave no pipe, poller or
thread behind when they end, the threads of their pools do not keep the interpreter from exiting, and a forked child
closes its copies of their sockets.
"""

import asyncio
from collections.abc import Callable
from threading import RLock, Thread
from time import monotonic
from typing import Any
from weakref import WeakSet

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.posixbase import PosixReactorBase
from twisted.python.threadpool import ThreadPool

from rocketd.client.hosting.fork import at_fork_in_child

try:
    from twisted.internet.epollreactor import EPollReactor as _PollingReactor
except ImportError:  # no Linux
    from twisted.internet.selectreactor import SelectReactor as _PollingReactor

POOL_THREADS = 10

_reactors: "WeakSet[Any]" = WeakSet()


class _OwnReactor(PosixReactorBase):
    """What both kinds share. All belongs to the reactor's thread, but for callFromThread and wakeUp."""

    seconds = staticmethod(monotonic)
    _registerAsIOThread = False  # noqa: N815 - that is for the application's reactor

    def __init__(self, *arguments: Any) -> None:
        self._known: WeakSet[Any] = WeakSet()
        self._waking = RLock()  # a signal's handler may come back here
        super().__init__(*arguments)
        _reactors.add(self)

    def addReader(self, reader: Any) -> None:  # noqa: N802
        """Remember the descriptor: a paused connection is in no list of Twisted's."""
        self._known.add(reader)
        super().addReader(reader)

    def wakeUp(self) -> None:  # noqa: N802
        """Write to the pipe while there is one: its number may belong to another file afterwards."""
        with self._waking:
            super().wakeUp()

    def getThreadPool(self) -> ThreadPool:
        """Return the pool, whose threads are daemons."""
        if self.threadpool is None:
            self.threadpool = pool = ThreadPool(0, POOL_THREADS, "rocketd-client")
            pool.threadFactory = _daemon_thread  # type: ignore[assignment]
            # Stopped by whoever ends the reactor, in a way that does not block its thread.
            pool.start()
        return self.threadpool

    def take_pool(self) -> ThreadPool | None:
        """Return the pool, if there is one, for somebody else to stop."""
        pool, self.threadpool = self.threadpool, None
        return pool

    def close(self) -> None:
        """Close what the reactor itself holds. It runs no more."""
        with self._waking:
            waker, self.waker = self.waker, None
            if waker is not None:
                self._internalReaders.discard(waker)
                self.removeReader(waker)
                waker.connectionLost(None)
            self._close_poller()

    def close_copies(self) -> None:
        """In a forked child: close the copies of the parent's descriptors, and nothing but these.

        Neither a shutdown nor a word of TLS goes to the peers, and the poller is not told: both are the parent's too.
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
    """Runs in a thread that does nothing else."""

    if hasattr(_PollingReactor, "_POLL_IN"):  # of epoll, not of select

        def doPoll(self, timeout: float | None) -> None:  # noqa: N802
            """Wait for events and see to them, without Twisted's context for logs, which nobody reads here.

            Setting it costs a blocking send 7 % of its CPU time.
            """
            selectables = self._selectables
            try:
                events = self._poller.poll(-1 if timeout is None else timeout, len(selectables))
            except InterruptedError:
                return
            for descriptor, event in events:
                selectable = selectables.get(descriptor)  # one before it may have closed it
                if selectable is not None:
                    self._doReadOrWrite(selectable, descriptor, event)

        doIteration = doPoll  # noqa: N815


class LoopReactor(_OwnReactor, AsyncioSelectorReactor):
    """Runs on an asyncio loop that belongs to the application, and never stops it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)

    def installWaker(self) -> None:  # noqa: N802
        """Have no pipe: the loop has its own."""

    def callFromThread(self, function: Callable[..., Any], *args: object, **kwargs: object) -> None:  # type: ignore[override]
        """Call a function in the loop; nothing is called once the loop is closed."""
        loop = self._asyncioEventloop
        try:
            loop.call_soon_threadsafe(lambda: function(*args, **kwargs))
        except RuntimeError:
            if not loop.is_closed():
                raise

    def crash(self) -> None:
        """Run no more; the loop goes on."""
        PosixReactorBase.crash(self)

    def end(self) -> None:
        """Close all connections, drop all timers. The pool is not touched: see ``take_pool``."""
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
