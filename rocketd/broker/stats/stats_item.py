"""One statistic of one key over the last minute, hour and day; sans-io.

The samples are Apache's: 10 s apart for the minute, 10 minutes apart for the hour, and an hour apart for the day. So a
span is empty before its first sample, and ends with its last.

Counterpart: `StatsItem`, `StatsSnapshot` (Apache).
"""

from collections import deque
from typing import Final, NamedTuple

SECONDS_MS: Final = 10_000
MINUTES_MS: Final = 10 * 60_000
HOURS_MS: Final = 60 * 60_000
"""The intervals of samples for the minute, the hour and the day, in milliseconds."""


class StatsSnapshot(NamedTuple):
    """A span's sum, sum per second, number of additions, and mean sum per addition."""

    sum: int = 0
    tps: float = 0.0
    times: int = 0
    avgpt: float = 0.0


class _Sample(NamedTuple):
    time_ms: int
    value: int
    times: int


class StatsWindow:
    """Samples of one span. Before the first one, an empty sample is added, ``interval_ms`` earlier."""

    __slots__ = ("_interval_ms", "_samples")

    def __init__(self, interval_ms: int, intervals: int) -> None:
        self._interval_ms = interval_ms
        self._samples: deque[_Sample] = deque(maxlen=intervals + 1)

    def sample(self, clock_ms: int, value: int, times: int) -> None:
        """Record the totals."""
        if not self._samples:
            self._samples.append(_Sample(clock_ms - self._interval_ms, 0, 0))
        self._samples.append(_Sample(clock_ms, value, times))

    def snapshot(self) -> StatsSnapshot:
        """Return the difference of the last sample and the first."""
        if not self._samples:
            return StatsSnapshot()
        first, last = self._samples[0], self._samples[-1]
        total, times, span_ms = last.value - first.value, last.times - first.times, last.time_ms - first.time_ms
        tps = total * 1000 / span_ms if span_ms > 0 else 0.0
        return StatsSnapshot(total, tps, times, total / times if times > 0 else 0.0)


class StatsItem:
    """Totals since the first count, and the three spans. One thread changes the totals."""

    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self.minute = StatsWindow(SECONDS_MS, 6)
        self.hour = StatsWindow(MINUTES_MS, 6)
        self.day = StatsWindow(HOURS_MS, 24)

    def add(self, value: int, times: int) -> None:
        """Add to the totals."""
        self.value += value
        self.times += times
