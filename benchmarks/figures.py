"""The figures of the table, their goals, and the arithmetic that compares two sides: medians and ratios.

Every ratio says how many times better rocketd is: Apache ÷ rocketd where less is better (CPU, latency, memory, start),
rocketd ÷ Apache where more is (rates). So 1.0 is a draw and more is always better, whatever the figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One thing that is measured: ``key`` in the JSON file, title and unit in the table."""

    key: str
    title: str
    unit: str
    less_is_better: bool = True


CPU = Figure("cpu_us", "server CPU", "µs")  # user + system of all threads of the server process, for one operation
CLIENT_CPU = Figure("client_cpu_us", "client CPU", "µs")  # the same of the client's process
RATE = Figure("rate", "rate", "/s", less_is_better=False)
P50 = Figure("p50_us", "p50", "µs")
P99 = Figure("p99_us", "p99", "µs")
P999 = Figure("p999_us", "p99.9", "µs")
LOST = Figure("lost", "lost", "messages")
ANONYMOUS = Figure("anonymous_mb", "anonymous memory", "MB")
IDLE = Figure("idle_ms", "idle CPU", "ms/s")  # broker and name server
START_CPU = Figure("start_cpu_s", "server CPU", "s")
START_WALL = Figure("start_wall_s", "wall", "s")


@dataclass(frozen=True)
class Goal:
    """What a row wants of one of its figures: at least a ratio, at most a value of rocketd's own, or only to be shown."""

    figure: Figure
    ratio: float | None = None
    limit: float | None = None

    def reached(self, rocketd: float | None, apache: float | None) -> bool | None:
        """Whether these two medians reach it; None when there is no goal or not enough was measured to say."""
        if self.limit is not None:
            return None if rocketd is None else rocketd <= self.limit
        times = ratio(self.figure, rocketd, apache)
        return None if self.ratio is None or times is None else times >= self.ratio

    def __str__(self) -> str:
        """As the table shows it: ``≥ 2``, ``≤ 1 s`` or a dash."""
        if self.limit is not None:
            return f"≤ {self.limit:g} {self.figure.unit}"
        return "-" if self.ratio is None else f"≥ {self.ratio:g}"


def median(values: Sequence[float]) -> float | None:
    """The median of what the rounds gave; None when no round gave anything."""
    return statistics.median(values) if values else None


def ratio(figure: Figure, rocketd: float | None, apache: float | None) -> float | None:
    """How many times better rocketd is than Apache; None when one is missing or zero, which has no ratio."""
    if not rocketd or not apache:
        return None
    return apache / rocketd if figure.less_is_better else rocketd / apache
