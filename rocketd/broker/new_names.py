"""How many new topics and groups clients may make by using them, in a second and in one heartbeat.

No counterpart in Apache, whose broker takes any number: one frame could hold thousands of names.
"""

import threading
from collections.abc import Callable
from time import monotonic

from rocketd.broker import problems
from rocketd.broker.settings import BrokerConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.limit_log import LimitLog

BURST_SECONDS = 5
"""So many seconds' worth of names may come at once after a quiet time."""


class NewNameLimit:
    """A token bucket for new names of one kind. Thread-safe; ``clock`` gives monotonic seconds."""

    def __init__(
        self,
        kind: str,
        per_second: Callable[[], int],
        refusal: Callable[[str, int], RequestError],
        limits: LimitLog | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``per_second`` tells the setting, 0 for no limit; ``refusal`` makes the error of a name beyond it.

        ``limits`` counts and logs refusals, by ``kind``.
        """
        self._kind = kind
        self._per_second = per_second
        self._refusal = refusal
        self._limits = limits
        self._clock = clock
        self._guard = threading.Lock()
        self._filled = clock()
        self._tokens = float("inf")

    def admits(self, name: str) -> bool:
        """Take a place for a new name; False, counted and logged, if there is none."""
        rate = self._per_second()
        if not rate:
            return True
        with self._guard:
            now = self._clock()
            self._tokens = min(rate * BURST_SECONDS, self._tokens + (now - self._filled) * rate)
            self._filled = now
            if self._tokens >= 1:
                self._tokens -= 1
                return True
        if self._limits is not None:
            self._limits.reached(
                self._kind, "{name} was not created: clients may create {rate} a second", name=name, rate=rate
            )
        return False

    def check(self, name: str) -> None:
        """Take a place for a new name. Raises RequestError if there is none."""
        if not self.admits(name):
            raise self._refusal(name, self._per_second())


def topic_limit(
    settings: BrokerConfig, limits: LimitLog | None = None, clock: Callable[[], float] = monotonic
) -> NewNameLimit:
    """Make the limit of topics that sends create."""
    return NewNameLimit(
        "new topics refused",
        lambda: settings.max_new_topics_per_second,
        lambda name, limit: problems.NEW_TOPICS_LIMITED.error(name=name, limit=limit),
        limits,
        clock,
    )


def group_limit(
    settings: BrokerConfig, limits: LimitLog | None = None, clock: Callable[[], float] = monotonic
) -> NewNameLimit:
    """Make the limit of consumer groups that heartbeats and other requests create."""
    return NewNameLimit(
        "new consumer groups refused",
        lambda: settings.max_new_groups_per_second,
        lambda name, limit: problems.NEW_GROUPS_LIMITED.error(name=name, limit=limit),
        limits,
        clock,
    )
