"""The rows of the table, each declared once: how it is measured, what the load generator is told, what it is to reach.

The goals are ratios over Apache's broker on the same machine in the same run. ``python -m benchmarks --list`` prints them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.figures import (
    ANONYMOUS,
    CLIENT_CPU,
    CPU,
    LOST,
    P50,
    P99,
    P999,
    RATE,
    START_CPU,
    START_WALL,
    Goal,
)


class Kind(enum.Enum):
    """How a row is measured; ``benchmarks.measure`` has one function for each."""

    LOAD = "load on the broker"
    PULL = "load on the broker, on a topic that was filled before"
    ROUTE = "load on the name server"
    FLUSH = "load on a broker that flushes each message before it answers"
    REPLICATION = "load on a master that waits for its slave; CPU of both"
    CLIENT = "load of one client process on a broker; CPU of the client"
    MEMORY = "memory of the broker after the loads of the round"
    IDLE = "CPU of broker and name server without a load, registering every 10 seconds"
    START = "start of a broker on an empty store, to the first accepted send"
    RECOVERY = "start of a broker that was ended with SIGKILL, to the last message of every queue pulled"


@dataclass(frozen=True)
class Row:
    """One row: the generator's mode and flags (over the defaults of ``measure``), and the figures with their goals.

    A row of kind CLIENT has the program for rocketd's side and the load that all programs are asked for.
    """

    name: str
    kind: Kind
    arguments: tuple[str, ...]
    goals: tuple[Goal, ...]


def latencies(p50: float | None = None, p99: float | None = None) -> tuple[Goal, ...]:
    """Goals of the three latencies; without a ratio they are only shown."""
    return Goal(P50, p50), Goal(P99, p99), Goal(P999)


def _send(name: str, connections: int, window: int, cpu: float, rate: float) -> Row:
    arguments = ("send", "-topic", "Load", "-c", str(connections), "-w", str(window))
    return Row(name, Kind.LOAD, arguments, (Goal(CPU, cpu), Goal(RATE, rate), *latencies()))


def _pull(name: str, limit: int, cpu: float) -> Row:
    arguments = ("pull", "-topic", "Pull", "-m", str(limit), "-c", "8", "-w", "1")
    return Row(name, Kind.PULL, arguments, (Goal(CPU, cpu), Goal(RATE, 1.3), *latencies()))


def _senders(name: str, kind: Kind, senders: int, cpu: float) -> Row:
    arguments = ("send", "-topic", "Safe", "-c", str(senders), "-w", "1")
    return Row(name, kind, arguments, (Goal(CPU, cpu), Goal(RATE), *latencies()))


def _client(name: str, face: str, load: str, cpu: float) -> Row:
    return Row(f"Python client: {name}", Kind.CLIENT, (face, load), (Goal(CLIENT_CPU, cpu), Goal(RATE)))


ROWS = (
    _send("send 1 KB C=8 W=64", 8, 64, cpu=2.0, rate=1.5),
    _send("send 1 KB C=8 W=1", 8, 1, cpu=2.5, rate=1.5),
    _send("send 1 KB C=1 W=1", 1, 1, cpu=1.5, rate=1.3),
    Row(
        "batch 32 x 1 KB C=8",
        Kind.LOAD,
        ("batch", "-topic", "Load", "-k", "32", "-c", "8", "-w", "1"),
        (Goal(CPU, 1.5), Goal(RATE, 1.0), *latencies()),
    ),
    Row(
        "one-way 1 KB",
        Kind.LOAD,
        # A number of messages rather than a time: what was lost is counted against it.
        ("send", "-topic", "Load", "-oneway", "-c", "1", "-w", "32", "-n", "60000", "-d", "30s"),
        (Goal(CPU), Goal(RATE), Goal(LOST, limit=0)),
    ),
    _pull("pull of 32 C=8 W=1", 32, cpu=2.0),
    _pull("pull of 1 C=8 W=1", 1, cpu=1.5),
    _senders("sync flush, 32 senders", Kind.FLUSH, 32, cpu=2.0),
    _senders("sync slave, 32 senders", Kind.REPLICATION, 32, cpu=1.5),
    _senders("sync slave, one sender", Kind.REPLICATION, 1, cpu=1.3),
    Row(
        "e2e at 1,000/s",
        Kind.LOAD,
        ("e2e", "-topic", "EndToEnd", "-rate", "1000"),
        (Goal(CPU), *latencies(2.0, 2.0)),
    ),
    _client("blocking send", "sync", "send {seconds}", cpu=1.5),
    _client("async send, 64 under way", "aio", "window {seconds}", cpu=0.7),
    _client("push consumption, blocking", "sync", "consume {topic} {messages}", cpu=0.7),
    _client("push consumption, asyncio", "aio", "consume {topic} {messages}", cpu=0.7),
    Row(
        "route query C=8 W=8",
        Kind.ROUTE,
        ("ns", "-topic", "Load", "-c", "8", "-w", "8"),
        (Goal(CPU, 5.0), Goal(RATE), *latencies()),
    ),
    Row("memory after the load", Kind.MEMORY, (), (Goal(ANONYMOUS, 20.0),)),
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


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether the name contains one of the patterns (``*`` and ``?`` as in file names, case is ignored); any if none."""
    return not patterns or any(fnmatchcase(name.lower(), f"*{pattern.lower()}*") for pattern in patterns)


def matching(patterns: Sequence[str]) -> tuple[Row, ...]:
    """The rows whose names match."""
    return tuple(row for row in ROWS if matches(row.name, patterns))
