"""Timestamps of stored messages, and the monotonic time of each.

A stored timestamp is wall time. The wall clock may be stepped, but two things must not follow a step: searches by time
need timestamps that never decrease, and a delay of ten seconds is ten seconds. So timestamps follow a step of the wall
clock forward at once. After a step back, they run at a tenth of the speed until the wall clock has caught up: they never
stand still, so the monotonic time of each can be computed. No timestamp is before the wall clock.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable
from math import inf
from typing import NamedTuple

STEP_MS = 50.0
"""Smaller changes of the difference between the two clocks count as inaccuracy of their reading."""

CATCH_UP_RATE = 0.1

_READING_MS = 20.0
_READINGS = 10
_SEGMENTS = 1000


class _Segment(NamedTuple):
    """The time between two steps: the monotonic clock and the timestamp at its start, in ms.

    ``offset_ms`` is the wall clock minus the monotonic clock.
    """

    begin_ms: float
    stamp_ms: float
    offset_ms: float

    def stamp_at(self, clock_ms: float) -> float:
        return max(clock_ms + self.offset_ms, self.stamp_ms + (clock_ms - self.begin_ms) * CATCH_UP_RATE)

    def clock_ms_of(self, stamp_ms: float) -> float:
        return min(stamp_ms - self.offset_ms, self.begin_ms + (stamp_ms - self.stamp_ms) / CATCH_UP_RATE)


class StampClock:
    """``wall`` returns Unix seconds, ``monotonic`` seconds that only increase. Thread-safe.

    Timestamps of an earlier process are treated as if the clocks had been as at the start of this one.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        clock_ms, self._stamp_ms = self._read()
        self._segments = [_Segment(clock_ms, -inf, self._stamp_ms - clock_ms)]
        """The first one has every earlier timestamp, too."""

    def now(self) -> float:
        """Return a timestamp in Unix seconds. It never decreases."""
        with self._lock:
            self._proceed()
            return self._stamp_ms / 1000

    def clock_ms_of(self, stamp_ms: float) -> float:
        """Return the monotonic time in ms of a timestamp."""
        with self._lock:
            number = self._number_of(stamp_ms)
            found = self._segments[number].clock_ms_of(stamp_ms)
            if number + 1 < len(self._segments):
                # A step forward skips timestamps: they count as given at its time.
                found = min(found, self._segments[number + 1].begin_ms)
            return found

    def stepped_since(self, stamp_ms: float) -> float:
        """Return the total ms by which the wall clock was set forward since a timestamp was given."""
        return self.stepped_ms() - self.stepped_ms_at(stamp_ms)

    def stepped_ms(self) -> float:
        """Return the total ms by which the wall clock was set forward since the start."""
        with self._lock:
            self._proceed()
            return self._segments[-1].offset_ms - self._segments[0].offset_ms

    def stepped_ms_at(self, stamp_ms: float) -> float:
        """Return the value of ``stepped_ms`` at the time of a timestamp."""
        with self._lock:
            return self._segments[self._number_of(stamp_ms)].offset_ms - self._segments[0].offset_ms

    def _proceed(self) -> None:
        """Make the present timestamp, and a new segment if the wall clock was stepped."""
        clock_ms, wall_ms = self._read()
        segment = self._segments[-1]
        self._stamp_ms = max(self._stamp_ms, wall_ms, segment.stamp_at(clock_ms))
        offset_ms = wall_ms - clock_ms
        if abs(offset_ms - segment.offset_ms) >= STEP_MS:
            self._segments.append(_Segment(clock_ms, self._stamp_ms, offset_ms))
            del self._segments[1:-_SEGMENTS]

    def _number_of(self, stamp_ms: float) -> int:
        return bisect_right(self._segments, stamp_ms, key=lambda segment: segment.stamp_ms) - 1

    def _read(self) -> tuple[float, float]:
        """Read both clocks in ms, as simultaneously as possible."""
        for _ in range(_READINGS):
            before = self._monotonic()
            wall = self._wall()
            after = self._monotonic()
            if (after - before) * 1000 < _READING_MS:
                break
        return before * 1000, wall * 1000
