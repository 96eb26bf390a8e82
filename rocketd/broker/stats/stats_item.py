"""One statistic of one thing: what was counted in the last minute, hour and day; sans-io.

Answers to Apache's StatsItem and StatsSnapshot, with its samples: the minute is seen by samples 10 s apart, the hour by such
10 minutes apart, the day by such an hour apart. So a span has nothing in it before its first sample, and ends with its last.
"""

from collections import deque
from typing import Final, NamedTuple

SECONDS_MS: Final = 10_000
MINUTES_MS: Final = 10 * 60_000
HOURS_MS: Final = 60 * 60_000
"""Milliseconds between the samples of the minute, of the hour, of the day."""


class StatsSnapshot(NamedTuple):
    """What was counted in a span: sum, sum a second, how often something was counted, and the sum of one time."""

    sum: int = 0
    tps: float = 0.0
    times: int = 0
    avgpt: float = 0.0


class _Sample(NamedTuple):
    time_ms: int
    value: int
    times: int


class StatsWindow:
    """Samples of one span. The first one comes with one before it, an ``interval_ms`` earlier, of nothing."""

    __slots__ = ("_interval_ms", "_samples")

    def __init__(self, interval_ms: int, intervals: int) -> None:
        self._interval_ms = interval_ms
        self._samples: deque[_Sample] = deque(maxlen=intervals + 1)

    def sample(self, clock_ms: int, value: int, times: int) -> None:
        """Note the totals."""
        if not self._samples:
            self._samples.append(_Sample(clock_ms - self._interval_ms, 0, 0))
        self._samples.append(_Sample(clock_ms, value, times))

    def snapshot(self) -> StatsSnapshot:
        """Compare the last sample with the first."""
        if not self._samples:
            return StatsSnapshot()
        first, last = self._samples[0], self._samples[-1]
        total, times, span_ms = last.value - first.value, last.times - first.times, last.time_ms - first.time_ms
        tps = total * 1000 / span_ms if span_ms > 0 else 0.0
        return StatsSnapshot(total, tps, times, total / times if times > 0 else 0.0)


class StatsItem:
    """Totals since the thing was first counted, and the three spans. Totals are changed by one thread."""

    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self.minute = StatsWindow(SECONDS_MS, 6)
        self.hour = StatsWindow(MINUTES_MS, 6)
        self.day = StatsWindow(HOURS_MS, 24)

    def add(self, value: int, times: int) -> None:
        """Count."""
        self.value += value
        self.times += times
