"""A limit on the number of messages per second.

It is a token bucket that fills with time. Unused tokens expire after a second, so after a pause a burst has at most one
second's worth of messages.
"""

from collections.abc import Callable
from time import monotonic, sleep


class RateLimit:
    """Delays the caller so that on average at most `rate` messages go per second; `rate` 0 means no limit.

    `clock` returns monotonic seconds, `wait` sleeps so many seconds. For one thread.
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
        """Wait until `count` messages may go. More than one second's worth may go at once, and delays the next call."""
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
