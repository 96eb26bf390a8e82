"""Keeping to a number of messages a second.

A bucket of tokens that fills with time: what is not used within a second is lost, so a pause is never made up for by a
burst of more than a second's messages.
"""

from collections.abc import Callable
from time import monotonic, sleep


class Pace:
    """Holds its caller up so that no more than `rate` messages a second go on average; `rate` 0 never does.

    `clock` tells seconds that only go forward, `wait` sleeps so many seconds. Belongs to one thread.
    """

    def __init__(
        self, rate: float, clock: Callable[[], float] = monotonic, wait: Callable[[float], None] = sleep
    ) -> None:
        if rate < 0:
            raise ValueError("a rate is not below zero")
        self._rate = rate
        self._clock = clock
        self._wait = wait
        self._tokens = rate
        self._filled_at = clock()

    def take(self, count: int) -> None:
        """Wait until `count` messages may go. More than a second's worth go too, and are waited for afterwards."""
        if not self._rate or count <= 0:
            return
        self._fill()
        if self._tokens < min(count, self._rate):
            self._wait((min(count, self._rate) - self._tokens) / self._rate)
            self._fill()
        self._tokens -= count

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
