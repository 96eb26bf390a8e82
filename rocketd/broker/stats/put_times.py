"""How long puts take: their distribution and percentiles of the last full minute, and the longest ever; sans-io.

Answers to the put times of Apache's StoreStatsService, with its classes of milliseconds, its way to find a percentile within
one, and its texts. Unlike there a percentile beyond the last class's beginning, 10 s, is told as that.
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
"""Name of each class of the distribution, and its least milliseconds."""
_BEGINS: Final = tuple(begin for _, begin in _CLASSES[1:])

_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
"""For percentiles: width of the classes in milliseconds, and how many follow each other."""
_ENDS: Final = tuple(accumulate(width for width, count in _STEPS for _ in range(count)))
"""The greatest milliseconds of each class but the last, which has no end."""

PERCENTILES: Final = (("putLatency99", 0.99), ("putLatency999", 0.999))


class PutTimes:
    """Counts puts by their time. Methods may be called from any thread."""

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
        """Count puts that took so long."""
        if took_ms < 1:
            # As nearly all are.
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
        """Begin the next minute when this one has ended; to be called every second."""
        clock_ms = self._clock_ms()
        if clock_ms <= self._minute_began_ms + MINUTE_MS:
            return
        self._minute_began_ms = clock_ms
        with self._guard:
            self._last_distribution, self._distribution = self._distribution, [0] * len(_CLASSES)
            self._last_buckets, self._buckets = self._buckets, [0] * (len(_ENDS) + 1)

    def table(self) -> dict[str, str]:
        """Write all of it with Apache's keys. Before the first minute has ended there is no distribution: ``null``."""
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
    """Find the milliseconds that ``part`` of the puts did not exceed, as if those of a class were spread evenly over it."""
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
    """Write with two digits behind the point, rounded as Java does it."""
    return str(Decimal(number).quantize(Decimal("0.01"), ROUND_HALF_UP))
