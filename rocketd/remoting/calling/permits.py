"""Permits that bound the number of concurrent requests, granted in the order of asking.

Counterpart: java.util.concurrent.Semaphore (fair) and `SemaphoreReleaseOnlyOnce` (Apache). Waiting is a Deferred, so
the reactor thread never blocks. Everything belongs to the reactor thread.
"""

from collections import deque
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime


class Permit:
    """The right to have one request under way. It is returned once, even if released several times."""

    __slots__ = ("_semaphore",)

    def __init__(self, semaphore: "FairSemaphore") -> None:
        self._semaphore: FairSemaphore | None = semaphore

    def release(self) -> None:
        """Return the permit. A second call does nothing."""
        semaphore, self._semaphore = self._semaphore, None
        if semaphore is not None:
            semaphore._put_back()


class FairSemaphore:
    """A fair semaphore: waiters are served first come, first served."""

    def __init__(self, reactor: IReactorTime, permits: int) -> None:
        self._reactor = reactor
        self._available = permits
        self._waiters: deque[Deferred[Permit | None]] = deque()

    @property
    def available(self) -> int:
        """Number of free permits."""
        return self._available

    @property
    def waiting(self) -> int:
        """Number of waiters."""
        return len(self._waiters)

    def take(self) -> bool:
        """Take a permit without an object, if one is free and there is no waiter. The taker calls ``give_back`` once."""
        if self._available <= 0 or self._waiters:
            return False
        self._available -= 1
        return True

    def give_back(self) -> None:
        """Return a permit taken by ``take``."""
        self._put_back()

    def try_acquire(self) -> Permit | None:
        """Take a permit if one is free and there is no waiter."""
        return Permit(self) if self.take() else None

    def acquire(self, timeout_ms: float) -> Deferred[Permit | None]:
        """Take a permit, waiting for at most ``timeout_ms`` milliseconds. None if none became free in time."""
        permit = self.try_acquire()
        if permit is not None or timeout_ms <= 0:
            return succeed(permit)
        waiter: Deferred[Permit | None] = Deferred(self._leave)
        self._waiters.append(waiter)
        timer = self._reactor.callLater(timeout_ms / 1000, self._give_up, waiter)

        def served(result: object) -> Any:
            if timer.active():
                timer.cancel()
            return result

        return waiter.addBoth(served)

    def _give_up(self, waiter: Deferred[Permit | None]) -> None:
        self._leave(waiter)
        waiter.callback(None)

    def _leave(self, waiter: Deferred[Permit | None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def _put_back(self) -> None:
        if self._waiters:
            self._waiters.popleft().callback(Permit(self))
        else:
            self._available += 1
