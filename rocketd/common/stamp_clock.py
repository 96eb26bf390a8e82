"""Timestamps of stored messages, and the monotonic time of each.

A stored timestamp is wall time. The wall clock may be stepped, but two things must not follow a step: searches by time
need timestamps that never decrease, and a delay of ten seconds is ten seconds. So the clock of timestamps follows a
step forward at once. After a step back, it runs at a tenth of the speed until the wall clock has caught up. Because it
always moves forward, the monotonic time of a timestamp can be computed from it.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable

STEP_MS = 500.0
"""Smaller changes of the difference between the two clocks are followed silently."""

CATCH_UP_RATE = 0.1

_READING_MS = 20.0
_READINGS = 10
_SEGMENTS = 1000


class _Segment:
    """The time between two steps: both clocks and the timestamp at its begin, in ms."""

    __slots__ = ("begin_ms", "offset_ms", "stamp_ms", "stepped_ms")

    def __init__(self, begin_ms: float, stamp_ms: float, offset_ms: float, stepped_ms: float = 0.0) -> None:
        self.begin_ms = begin_ms
        self.stamp_ms = stamp_ms
        self.offset_ms = offset_ms
        """The wall clock minus the monotonic clock."""
        self.stepped_ms = stepped_ms
        """The sum of all earlier steps."""

    def stamp_at(self, clock_ms: float) -> float:
        return max(self.stamp_ms + (clock_ms - self.begin_ms) * CATCH_UP_RATE, clock_ms + self.offset_ms)

    def clock_ms_of(self, stamp_ms: float) -> float:
        if stamp_ms < self.stamp_ms:
            return stamp_ms - self.offset_ms
        return min(self.begin_ms + (stamp_ms - self.stamp_ms) / CATCH_UP_RATE, stamp_ms - self.offset_ms)


class StampClock:
    """``wall`` returns Unix seconds, ``monotonic`` seconds that only increase. Thread-safe.

    Timestamps of an earlier process are treated as if the clocks had been as at the start of this one.
    """

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        clock_ms, wall_ms = self._read()
        self._segments = [_Segment(clock_ms, wall_ms, wall_ms - clock_ms)]

    def now(self) -> float:
        """Return a timestamp in Unix seconds. It never decreases."""
        clock_ms = self._monotonic() * 1000
        wall_ms = self._wall() * 1000
        if self._monotonic() * 1000 - clock_ms >= _READING_MS:
            clock_ms, wall_ms = self._read()
        offset_ms = wall_ms - clock_ms
        with self._lock:
            last = self._segments[-1]
            if abs(offset_ms - last.offset_ms) >= STEP_MS:
                return self._segment_at(clock_ms, wall_ms).stamp_at(clock_ms) / 1000
            # As `_segment_at` does: a time is taken for every message.
            last.offset_ms = offset_ms
            return last.stamp_at(clock_ms) / 1000

    def clock_ms_of(self, stamp_ms: float) -> float:
        """Return the monotonic time in ms of a timestamp."""
        with self._lock:
            number = self._number_of(stamp_ms)
            segment = self._segments[number]
            found = segment.clock_ms_of(stamp_ms)
            if number:
                found = max(found, segment.begin_ms)
            if number + 1 < len(self._segments):
                found = min(found, self._segments[number + 1].begin_ms)
            return found

    def stepped_since(self, stamp_ms: float) -> float:
        """Return the total ms by which the wall clock was set forward since a timestamp was given."""
        return self.stepped_ms() - self.stepped_ms_at(stamp_ms)

    def stepped_ms(self) -> float:
        """Return the total ms by which the wall clock was set forward since the start."""
        clock_ms, wall_ms = self._read()
        with self._lock:
            return self._segment_at(clock_ms, wall_ms).stepped_ms

    def stepped_ms_at(self, stamp_ms: float) -> float:
        """Return the value of ``stepped_ms`` at the time of a timestamp."""
        with self._lock:
            return self._segments[self._number_of(stamp_ms)].stepped_ms

    def _segment_at(self, clock_ms: float, wall_ms: float) -> _Segment:
        last = self._segments[-1]
        offset_ms = wall_ms - clock_ms
        if abs(offset_ms - last.offset_ms) < STEP_MS:
            last.offset_ms = offset_ms
            return last
        stepped_ms = last.stepped_ms + offset_ms - last.offset_ms
        segment = _Segment(clock_ms, max(last.stamp_at(clock_ms), wall_ms), offset_ms, stepped_ms)
        self._segments.append(segment)
        del self._segments[:-_SEGMENTS]
        return segment

    def _number_of(self, stamp_ms: float) -> int:
        if len(self._segments) == 1:
            return 0
        return max(0, bisect_right(self._segments, stamp_ms, key=lambda segment: segment.stamp_ms) - 1)

    def _read(self) -> tuple[float, float]:
        """Read both clocks in ms, as simultaneously as possible."""
        for _ in range(_READINGS):
            before = self._monotonic()
            wall = self._wall()
            after = self._monotonic()
            if (after - before) * 1000 < _READING_MS:
                break
        return before * 1000, wall * 1000
