"""Which brokers answered so slowly, or not at all, that they should have no messages for a while, sans-io.

Answers to LatencyFaultToleranceImpl and the tables of MQFaultStrategy. Promises Apache's times: the longer the last send
took, the longer its broker is passed over. Times are milliseconds of any one clock. Belongs to the reactor thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LATENCY_MAX_MS: Final = (50, 100, 550, 1000, 2000, 3000, 15000)
"""From each of these latencies on, the duration at the same place counts."""

NOT_AVAILABLE_DURATION_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)

ISOLATION_LATENCY_MS: Final = 30_000
"""A send that failed puts its broker away for as long as one that took this time."""

_POSITIVE: Final = 0x7FFFFFFF


class Turn:
    """A counter that goes round at 2^31; answers to ThreadLocalIndex. ``start`` should be random: clients then differ."""

    __slots__ = ("_value",)

    def __init__(self, start: int) -> None:
        self._value = start

    def advance(self) -> int:
        """Count on by one and return where it is, 0 to 2^31 - 1; the first time, one after the start."""
        self._value = (self._value + 1) & _POSITIVE
        return self._value


@dataclass(frozen=True, slots=True)
class FaultItem:
    """A broker's last send: what it took, and from when on the broker is available."""

    latency_ms: float
    available_from_ms: float


class LatencyFaultTolerance:
    """The last send of each broker, by its name.

    ``start`` is where the turn of ``pick_one_at_least`` starts. ``latency_max_ms`` (ascending) and
    ``not_available_duration_ms`` are as long as one another, otherwise ValueError.
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
        """Note a send that has ended now; ``isolation``: with an exception that makes the broker doubtful."""
        duration = self.not_available_duration_ms(ISOLATION_LATENCY_MS if isolation else latency_ms)
        self._items[broker_name] = FaultItem(latency_ms, now_ms + duration)

    def not_available_duration_ms(self, latency_ms: float) -> float:
        """Return for how long a broker is passed over after a send of this latency."""
        return next((duration for at_least, duration in reversed(self._durations) if latency_ms >= at_least), 0)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Return whether a broker may have messages: it is unknown, or its time has passed."""
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def remove(self, broker_name: str) -> None:
        """Forget a broker, if it is known."""
        self._items.pop(broker_name, None)

    def pick_one_at_least(self, now_ms: float) -> str:
        """Return, in turn, a broker of the better half of those known. IndexError when none is known.

        Better are the available ones, then those with the lower latency, then those available earlier, then those known
        for longer. The half is rounded down, but of one broker it is that one.
        """

        def badness(name: str) -> tuple[bool, float, float]:
            item = self._items[name]
            return now_ms < item.available_from_ms, item.latency_ms, item.available_from_ms

        names = sorted(self._items, key=badness)
        if len(names) <= 1:
            return names[0]
        return names[self._turn.advance() % (len(names) // 2)]
