"""The rows of the table, each declared once: how it is measured, what the load generator is told, what it is to reach.

The goals are ratios over Apache's broker on the same machine in the same run. ``python -m benchmarks --list`` prints them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.figures import ANONYMOUS, CPU, LOST, P50, P99, RATE, START_CPU, START_WALL, Goal


class Kind(enum.Enum):
    """How a row is measured; ``benchmarks.measure`` has one function for each."""

    LOAD = "load on the broker"
    PULL = "load on the broker, on a topic that was filled before"
    ROUTE = "load on the name server"
    MEMORY = "memory of the broker after the loads of the round"
    START = "start of a broker on an empty store, to the first accepted send"
    RECOVERY = "start of a broker that was ended with SIGKILL, to the last message of every queue pulled"


@dataclass(frozen=True)
class Row:
    """One row: the generator's mode and flags (over the defaults of ``measure``), and the figures with their goals."""

    name: str
    kind: Kind
    arguments: tuple[str, ...]
    goals: tuple[Goal, ...]


def _send(name: str, connections: int, window: int, cpu: float, rate: float) -> Row:
    arguments = ("send", "-topic", "Load", "-c", str(connections), "-w", str(window))
    return Row(name, Kind.LOAD, arguments, (Goal(CPU, cpu), Goal(RATE, rate), Goal(P50)))


ROWS = (
    _send("send 1 KB C=8 W=64", 8, 64, cpu=2.0, rate=1.5),
    _send("send 1 KB C=8 W=1", 8, 1, cpu=1.5, rate=1.3),
    _send("send 1 KB C=1 W=1", 1, 1, cpu=1.3, rate=1.0),
    Row(
        "batch 32 x 1 KB C=8",
        Kind.LOAD,
        ("batch", "-topic", "Load", "-k", "32", "-c", "8", "-w", "1"),
        (Goal(CPU, 1.2), Goal(RATE, 1.0), Goal(P50)),
    ),
    Row(
        "one-way 1 KB",
        Kind.LOAD,
        # A number of messages rather than a time: what was lost is counted against it.
        ("send", "-topic", "Load", "-oneway", "-c", "1", "-w", "32", "-n", "60000", "-d", "30s"),
        (Goal(CPU, 1.3), Goal(RATE), Goal(LOST, limit=0)),
    ),
    Row(
        "pull of 32 C=8 W=1",
        Kind.PULL,
        ("pull", "-topic", "Pull", "-m", "32", "-c", "8", "-w", "1"),
        (Goal(CPU, 2.0), Goal(RATE, 1.5), Goal(P50)),
    ),
    Row(
        "pull of 1 C=8 W=1",
        Kind.PULL,
        ("pull", "-topic", "Pull", "-m", "1", "-c", "8", "-w", "1"),
        (Goal(CPU, 1.5), Goal(RATE), Goal(P50)),
    ),
    Row(
        "e2e at 1,000/s",
        Kind.LOAD,
        ("e2e", "-topic", "EndToEnd", "-rate", "1000"),
        (Goal(CPU), Goal(P50, 1.5), Goal(P99, 1.5)),
    ),
    Row(
        "route query C=8 W=8",
        Kind.ROUTE,
        ("ns", "-topic", "Load", "-c", "8", "-w", "8"),
        (Goal(CPU, 5.0), Goal(RATE), Goal(P50)),
    ),
    Row("memory after the load", Kind.MEMORY, (), (Goal(ANONYMOUS, 15.0),)),
    Row(
        "start to first send",
        Kind.START,
        ("ready", "-probe", "send", "-topic", "First"),
        (Goal(START_CPU, 8.0), Goal(START_WALL, limit=1.0)),
    ),
    Row(
        "start after kill -9",
        Kind.RECOVERY,
        ("ready", "-probe", "pull", "-topic", "Big"),
        (Goal(START_CPU, 5.0), Goal(START_WALL), Goal(LOST, limit=0)),
    ),
)


def matching(patterns: list[str]) -> tuple[Row, ...]:
    """The rows whose names contain one of the patterns (``*`` and ``?`` as in file names, case is ignored); all for none."""
    if not patterns:
        return ROWS
    return tuple(row for row in ROWS if any(fnmatchcase(row.name.lower(), f"*{p.lower()}*") for p in patterns))
