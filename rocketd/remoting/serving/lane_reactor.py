"""The event loop of a lane: Twisted's epoll reactor, driven by its owner instead of by ``run``. Linux only."""

from collections.abc import Callable

from twisted.internet.epollreactor import EPollReactor


class LaneReactor(EPollReactor):
    """An epoll reactor without signals, without a thread pool, and without a log context for each event.

    The owner calls ``runUntilCurrent`` and ``doPoll`` in turn, in any thread, but in one at a time. ``callFromThread``
    belongs to any thread. ``seconds`` is the clock of its timers.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        super().__init__()
        self.seconds = seconds

    def doPoll(self, timeout: float | None) -> None:  # noqa: N802 - the name is Twisted's
        """Wait for events at most ``timeout`` seconds, None for any time, and handle them."""
        selectables = self._selectables
        handle = self._doReadOrWrite
        for fd, event in self._poller.poll(-1 if timeout is None else timeout, max(1, len(selectables))):
            selectable = selectables.get(fd)
            if selectable is not None:
                handle(selectable, fd, event)

    doIteration = doPoll  # noqa: N815 - the name is Twisted's

    def has_calls(self) -> bool:
        """Return whether calls of threads or timers wait, of which most are not due yet."""
        return bool(self.threadCallQueue or self._newTimedCalls or self._pendingTimedCalls)

    def close(self) -> None:
        """Close the descriptors of the loop itself."""
        self.removeAll()
        for reader in self._internalReaders:
            reader.connectionLost(None)
        self._internalReaders.clear()
        self.waker = None
        self._poller.close()
