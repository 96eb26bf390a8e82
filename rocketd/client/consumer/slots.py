"""Places for handlers: as many as run at once, in the order in which they were asked for.

No counterpart in Apache, where a thread pool limits them. Reactor thread.
"""

from collections import deque
from typing import Any

from twisted.internet.defer import Deferred, succeed


class Slots:
    """``limit`` may be changed at any time; what runs then goes on."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[Deferred[None]] = deque()

    @property
    def limit(self) -> int:
        """How many there are."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._hand_out()

    def acquire(self) -> Deferred[None]:
        """Fires when a place is free and taken; cancelling it gives the turn up."""
        if self._taken < self._limit and not self._waiting:
            self._taken += 1
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._leave)
        self._waiting.append(waiting)
        return waiting

    def release(self) -> None:
        """Give a place back."""
        self._taken -= 1
        self._hand_out()

    def _leave(self, waiting: Deferred[Any]) -> None:
        self._waiting.remove(waiting)

    def _hand_out(self) -> None:
        while self._waiting and self._taken < self._limit:
            self._taken += 1
            self._waiting.popleft().callback(None)
