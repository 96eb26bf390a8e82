"""Durations of puts: distribution and percentiles of the last full minute, and the longest ever; sans-io.

Classes of milliseconds, interpolation of percentiles, and texts are Apache's. Unlike in Apache's broker, a percentile
in the last class is reported as the beginning of that class, 10 s.

Counterpart: the put times of `StoreStatsService` (Apache).
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate
from typing import Final

MINUTE_MS: Final = 60_000

_CLASSES: Final = (
    ("[<=0ms]", 0),
    ("[0~10ms]", 1),
    ("[10~50ms]", 10),
    ("[50~100ms]", 50),
    ("[100~200ms]", 100),
    ("[200~500ms]", 200),
    ("[500ms~1s]", 500),
    ("[1~2s]", 1000),
    ("[2~3s]", 2000),
    ("[3~4s]", 3000),
    ("[4~5s]", 4000),
    ("[5~10s]", 5000),
    ("[10s~]", 10_000),
)
"""The name of each class of the distribution, and its lower bound in milliseconds."""
_BEGINS: Final = tuple(begin for _, begin in _CLASSES[1:])

_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
"""For percentiles: the width of classes in milliseconds, and the number of classes with this width."""
_ENDS: Final = tuple(accumulate(width for width, count in _STEPS for _ in range(count)))
"""The upper bound of each class in milliseconds. The last class has none."""

PERCENTILES: Final = (("putLatency99", 0.99), ("putLatency999", 0.999))


class PutTimes:
    """Counts puts by duration. Any thread."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._guard = threading.Lock()
        self._minute_began_ms = clock_ms()
        self._distribution = [0] * len(_CLASSES)
        self._buckets = [0] * (len(_ENDS) + 1)
        self._last_distribution: list[int] | None = None
        self._last_buckets: list[int] = []
        self._max_ms = 0

    def count(self, puts: int, took_ms: float) -> None:
        """Count puts of the given duration."""
        if took_ms < 1:
            # Nearly all puts are this fast.
            with self._guard:
                self._distribution[0] += puts
                self._buckets[0] += puts
            return
        took = int(took_ms)
        with self._guard:
            self._distribution[bisect_right(_BEGINS, took)] += puts
            self._buckets[bisect_left(_ENDS, took)] += puts
            if took > self._max_ms:
                self._max_ms = took

    def sample(self) -> None:
        """Begin the next minute if this one has ended. Call it every second."""
        clock_ms = self._clock_ms()
        if clock_ms <= self._minute_began_ms + MINUTE_MS:
            return
        self._minute_began_ms = clock_ms
        with self._guard:
            self._last_distribution, self._distribution = self._distribution, [0] * len(_CLASSES)
            self._last_buckets, self._buckets = self._buckets, [0] * (len(_ENDS) + 1)

    def table(self) -> dict[str, str]:
        """Return all values with Apache's keys. Before the end of the first minute the distribution is ``null``."""
        table = {
            "putMessageEntireTimeMax": str(self._max_ms),
            "putMessageDistributeTime": self._distribution_text(),
        }
        buckets = self._last_buckets
        return table | {name: _two_digits(percentile(buckets, part)) for name, part in PERCENTILES}

    def _distribution_text(self) -> str:
        counts = self._last_distribution
        if counts is None:
            return "null"
        return "".join([f"{name}:{count} " for (name, _), count in zip(_CLASSES, counts, strict=True)])


def percentile(buckets: list[int], part: float) -> float:
    """Return the milliseconds not exceeded by ``part`` of the puts, with even spread within a class."""
    wanted = int(sum(buckets) * part)
    passed = 0
    for number, count in enumerate(buckets):
        if wanted <= passed + count:
            begin = _ENDS[number - 1] if number else 0
            if not count or number == len(_ENDS):
                return float(begin)
            return begin + (_ENDS[number] - begin) * (wanted - passed) / count
        passed += count
    return 0.0


def _two_digits(number: float) -> str:
    """Return a number with two decimals, rounded as in Java."""
    return str(Decimal(number).quantize(Decimal("0.01"), ROUND_HALF_UP))
