"""Slots for running handlers: a semaphore with a changeable limit, first come, first served.

Reactor thread.
"""

from collections import deque
from typing import Any

from twisted.internet.defer import Deferred, succeed


class HandlerSlots:
    """A semaphore. ``limit`` may be changed at any time; running handlers continue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[Deferred[None]] = deque()

    @property
    def limit(self) -> int:
        """The number of slots."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._hand_out()

    def acquire(self) -> Deferred[None]:
        """Return a Deferred for a slot. Cancelling it gives up the place in the line."""
        if self._taken < self._limit and not self._waiting:
            self._taken += 1
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._leave)
        self._waiting.append(waiting)
        return waiting

    def release(self) -> None:
        """Release a slot."""
        self._taken -= 1
        self._hand_out()

    def _leave(self, waiting: Deferred[Any]) -> None:
        self._waiting.remove(waiting)

    def _hand_out(self) -> None:
        while self._waiting and self._taken < self._limit:
            self._taken += 1
            self._waiting.popleft().callback(None)
