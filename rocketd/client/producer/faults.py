"""Fault tolerance: brokers to avoid for a while because they answered slowly or not at all, sans-io.

Counterpart: `LatencyFaultToleranceImpl` and the tables of `MQFaultStrategy`, with the same times (Apache). The longer the
last send took, the longer its broker is avoided. Times are milliseconds of any one clock. Belongs to the reactor thread.
"""

from collections.abc import Sequence
from itertools import count
from typing import Final

import msgspec

LATENCY_MAX_MS: Final = (50, 100, 550, 1000, 2000, 3000, 15000)
"""Lower bounds of latency. The duration at the same index applies from each bound on."""

NOT_AVAILABLE_DURATION_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)

ISOLATION_LATENCY_MS: Final = 30_000
"""A failed send counts with this latency."""

_POSITIVE: Final = 0x7FFFFFFF


class Turn:
    """A counter with wrap-around at 2^31, for any thread. ``start`` should be random, so that clients differ.

    Counterpart: `ThreadLocalIndex` (Apache).
    """

    __slots__ = ("_next",)

    def __init__(self, start: int) -> None:
        self._next = count(start + 1).__next__

    def advance(self) -> int:
        """Increase the counter and return it, 0 to 2^31 - 1. The first result is the start plus one."""
        return self._next() & _POSITIVE


class FaultItem(msgspec.Struct, frozen=True):
    """A broker's last send: its latency, and the time from which the broker is available."""

    latency_ms: float
    available_from_ms: float


class LatencyFaultTolerance:
    """The last send of each broker, by its name.

    ``start`` is the start of the turn of ``pick_one_at_least``. Raises ValueError if ``latency_max_ms`` (ascending) and
    ``not_available_duration_ms`` differ in length.
    """

    def __init__(
        self,
        start: int,
        latency_max_ms: Sequence[float] = LATENCY_MAX_MS,
        not_available_duration_ms: Sequence[float] = NOT_AVAILABLE_DURATION_MS,
    ) -> None:
        self._durations = list(zip(latency_max_ms, not_available_duration_ms, strict=True))
        self._items: dict[str, FaultItem] = {}
        self._turn = Turn(start)

    def update(self, broker_name: str, latency_ms: float, now_ms: float, *, isolation: bool = False) -> None:
        """Note the end of a send. ``isolation``: it ended with an exception that makes the broker doubtful."""
        duration = self.not_available_duration_ms(ISOLATION_LATENCY_MS if isolation else latency_ms)
        self._items[broker_name] = FaultItem(latency_ms, now_ms + duration)

    def not_available_duration_ms(self, latency_ms: float) -> float:
        """Return the time for which a broker is avoided after a send of this latency."""
        return next((duration for at_least, duration in reversed(self._durations) if latency_ms >= at_least), 0)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Return whether a broker may get messages: it is unknown, or its time has passed."""
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def remove(self, broker_name: str) -> None:
        """Forget a broker, if it is known."""
        self._items.pop(broker_name, None)

    def pick_one_at_least(self, now_ms: float) -> str:
        """Return, in turn, a broker of the better half of the known ones. Raises IndexError if none is known.

        Brokers are ordered by availability, then by latency, then by the time of availability, then by age in the
        table. The half is rounded down, but a single broker is returned.
        """

        def badness(name: str) -> tuple[bool, float, float]:
            item = self._items[name]
            return now_ms < item.available_from_ms, item.latency_ms, item.available_from_ms

        names = sorted(self._items, key=badness)
        if len(names) <= 1:
            return names[0]
        return names[self._turn.advance() % (len(names) // 2)]
