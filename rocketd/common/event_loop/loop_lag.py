"""How late event loops are: a histogram of delays, and its probe for a reactor.

A request waits at least as long as its event loop is late. So these values show pauses that averages hide: garbage
collection, slow disks, a stolen processor.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime

from rocketd.common.event_loop.clocked_loop import ClockedLoop

PROBE_SECONDS = 0.05
"""Interval of a probe. A pause is seen if it is longer, or if a probe falls into it."""

_CLASSES = 24
"""Classes of delays. The upper bounds are powers of two, from 2 µs to 17 s."""


class LagSummary(NamedTuple):
    """Delays of one minute in milliseconds. Each percentile is the upper bound of its class."""

    delays: int
    p50: float
    p99: float
    p999: float
    longest: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.3g} p99 {self.p99:.3g} p99.9 {self.p999:.3g} longest {self.longest:.3g} ms"


class LagHistogram:
    """Delays of the running minute, and a summary of the last full one. ``add`` belongs to one thread at a time.

    ``roll``, ``summary`` and ``cumulative`` belong to any thread.
    """

    def __init__(self) -> None:
        self._counts = [0] * _CLASSES
        """The counts since the start."""
        self._before = [0] * _CLASSES
        """The counts at the start of the running minute."""
        self._seconds = 0.0
        self._longest = 0.0
        self._last = LagSummary(0, 0.0, 0.0, 0.0, 0.0)

    def add(self, seconds: float) -> None:
        """Count a delay."""
        try:
            self._counts[int(seconds * 1e6).bit_length()] += 1
        except IndexError:
            self._counts[-1] += 1
        self._seconds += seconds
        if seconds > self._longest:
            self._longest = seconds

    def roll(self) -> None:
        """Begin a new minute."""
        now = list(self._counts)
        counts = [new - old for old, new in zip(self._before, now, strict=True)]
        self._before = now
        longest, self._longest = self._longest * 1000, 0.0
        p50, p99, p999 = (min(longest, _percentile(counts, part)) for part in (0.5, 0.99, 0.999))
        self._last = LagSummary(sum(counts), p50, p99, p999, longest)

    def cumulative(self) -> tuple[list[tuple[float, int]], float]:
        """Return all delays since the start: (upper bound in seconds, count up to it), and their sum in seconds."""
        bounds = [float(1 << number) / 1e6 for number in range(_CLASSES - 1)] + [float("inf")]
        return list(zip(bounds, accumulate(list(self._counts)), strict=True)), self._seconds

    def summary(self) -> LagSummary:
        """Return the delays of the last full minute, zeros before its end."""
        return self._last


def _percentile(counts: list[int], part: float) -> float:
    """Return the upper bound in milliseconds of the class with the percentile."""
    left = sum(counts) * part
    for number, count in enumerate(counts):
        left -= count
        if left <= 0:
            return float(1 << number) / 1000
    return 0.0


class ReactorLag:
    """Measures how late a reactor calls a function. Reactor thread."""

    def __init__(self, reactor: IReactorTime, stopwatch: Callable[[], float] | None = None) -> None:
        """``stopwatch`` measures the delays in seconds. The default is the reactor's time."""
        self.histogram = LagHistogram()
        self._reactor = reactor
        self._stopwatch = stopwatch or reactor.seconds
        self._loop = ClockedLoop(reactor, self._measure)
        self._began = self._due = 0.0

    def start(self) -> None:
        """Begin to measure."""
        if not self._loop.running:
            self._began = self._reactor.seconds()
            self._due = self._stopwatch() + PROBE_SECONDS
            self._loop.start(PROBE_SECONDS, now=False)

    def stop(self) -> None:
        """End the measurement."""
        if self._loop.running:
            self._loop.stop()

    def _measure(self) -> None:
        now = self._stopwatch()
        self.histogram.add(max(0.0, now - self._due))
        self._due = now + PROBE_SECONDS - (self._reactor.seconds() - self._began) % PROBE_SECONDS  # as the loop does
