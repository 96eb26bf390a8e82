"""The dimensions of growth: both ends of each, and the loads that are measured at both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import ANONYMOUS, CPU, IDLE, P999, RATE, Goal
from benchmarks.rows import Kind, Row

TOPIC = "Growth"
STORE_TOPIC = "Big"
FILE_SIZE = 1 << 30
HUGE = 4 * 1024 * 1024 - 1024
"""Bytes of a body of 4 MB: with topic and properties, the record is within the default maxMessageSize."""

Runs = tuple[tuple[str, ...], ...]
"""Arguments of runs of the generator."""

_GOALS = (Goal(CPU), Goal(RATE), Goal(P999))


@dataclass(frozen=True)
class Load:
    """A load at both ends. ``weights`` are the sizes of its operations: CPU and rate are given for size 1."""

    name: str
    ends: tuple[Row, Row]
    weights: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Dimension:
    """Something that grows.

    ``apart``: each end has servers. ``topics`` and ``files`` are what the store of each end has before the start (files
    of the log, 1 GiB each), ``connections`` are held idle beside a load. ``fill`` are runs of the generator before the
    first round, for each end. ``more_work``: the upper end has more to do, so growth is not a defect.
    """

    name: str
    labels: tuple[str, str]
    loads: tuple[Load, ...]
    apart: bool = False
    topics: tuple[int, int] | None = None
    files: tuple[int, int] | None = None
    connections: tuple[int, int] = (0, 0)
    settings: Mapping[str, str] = field(default_factory=dict)
    fill: tuple[Runs, Runs] = ((), ())
    more_work: bool = False

    def kinds(self) -> set[Kind]:
        """The kinds of all its rows."""
        return {row.kind for load in self.loads for row in load.ends}


def _row(name: str, arguments: Sequence[str], kind: Kind = Kind.LOAD) -> Row:
    return Row(name, kind, tuple(arguments), _GOALS)


def _same(name: str, *arguments: str, kind: Kind = Kind.LOAD) -> Load:
    return Load(name, (_row(name, arguments, kind), _row(name, arguments, kind)))


def _each(name: str, arguments: Callable[[int], Sequence[str]], ends: tuple[int, int], kind: Kind = Kind.LOAD) -> Load:
    return Load(name, (_row(name, arguments(ends[0]), kind), _row(name, arguments(ends[1]), kind)))


def _figure(name: str, kind: Kind, goal: Goal) -> Load:
    row = Row(name, kind, (), (goal,))
    return Load(name, (row, row))


def _topics(ends: tuple[int, int], max_queues: int) -> Dimension:
    spread = (ends[0], min(ends[1], max_queues))

    def first_messages(topics: int) -> Runs:  # they create the queues
        return (("send", "-topics", str(topics), "-topic", TOPIC, "-c", "8", "-w", "8", "-n", str(2 * topics)),)

    known = ("-create=false", "-topic")
    return Dimension(
        "topics",
        (f"{ends[0]:,}", f"{ends[1]:,}"),
        (
            _same("send C=8 W=64, one topic", "send", *known, f"{TOPIC}0", "-c", "8", "-w", "64"),
            _each(
                f"send C=8 W=64, to {spread[0]} and {spread[1]:,} topics",
                lambda topics: ("send", "-topics", str(topics), "-topic", TOPIC, "-c", "8", "-w", "64"),
                spread,
            ),
            _same("route query C=8 W=8", "ns", *known, f"{TOPIC}0", "-c", "8", "-w", "8", kind=Kind.ROUTE),
            _figure("idle, with a registration", Kind.IDLE, Goal(IDLE)),
            _figure("memory", Kind.MEMORY, Goal(ANONYMOUS)),
        ),
        apart=True,
        topics=ends,
        settings={"registerNameServerPeriod": "10000"},
        fill=(first_messages(spread[0]), first_messages(spread[1])),
    )


def _connections(ends: tuple[int, int]) -> Dimension:
    def heartbeats(connections: int) -> Sequence[str]:
        rounds = max(3, 3_000 // connections)
        return "idle", "-conns", str(connections), "-rounds", str(rounds), "-interval", "0s"

    return Dimension(
        "connections",
        (f"{ends[0]:,}", f"{ends[1]:,}"),
        (
            _same("send C=8 W=64", "send", "-topic", "Load", "-c", "8", "-w", "64"),
            _same("send C=8 W=1", "send", "-topic", "Load", "-c", "8", "-w", "1"),
            _figure("memory", Kind.MEMORY, Goal(ANONYMOUS)),
            _each("heartbeats of idle connections", heartbeats, ends),
        ),
        connections=ends,
    )


def _groups(ends: tuple[int, int]) -> Dimension:
    def pulls(limit: int) -> Callable[[int], Sequence[str]]:
        return lambda groups: ("pull", "-topic", "Pull", "-m", str(limit), "-c", "8", "-groups", str(groups))

    return Dimension(
        "groups",
        (f"{ends[0]:,}", f"{ends[1]:,}"),
        (
            _each("pull of 32 C=8 W=1", pulls(32), ends, Kind.PULL),
            _each("pull of 1 C=8 W=1", pulls(1), ends, Kind.PULL),
        ),
        # Groups are created by their first pull.
        fill=((), (("pull", "-topic", "Pull", "-m", "1", "-c", "8", "-groups", str(ends[1]), "-n", str(5 * ends[1])),)),
    )


def _store(ends: tuple[int, int]) -> Dimension:
    # The last messages: of a large store, older files are sparse.
    create = (("send", "-topic", STORE_TOPIC, "-n", "8"),)
    tail = ("pull", "-topic", STORE_TOPIC, "-tail", "20000", "-c", "8", "-m")
    return Dimension(
        "store",
        (f"{ends[0]:,} GB", f"{ends[1]:,} GB"),
        (
            _same("send C=8 W=64", "send", "-topic", "Load", "-c", "8", "-w", "64"),
            _same("send C=1 W=1", "send", "-topic", "Load", "-c", "1", "-w", "1"),
            _same("pull of 32 C=8 W=1", *tail, "32", kind=Kind.PULL),
        ),
        apart=True,
        files=ends,
        settings={"mappedFileSizeCommitLog": str(FILE_SIZE)},
        fill=(create, create),
    )


def _durable(name: str, labels: tuple[str, str], kind: Kind, senders: Sequence[int]) -> Dimension:
    loads = []
    for count in senders:
        title = f"send C={count} W=1"
        arguments = ("send", "-topic", "Safe", "-c", str(count), "-w", "1")
        loads.append(Load(title, (_row(title, arguments), _row(title, arguments, kind))))
    return Dimension(name, labels, tuple(loads), more_work=True)


def _sizes() -> Dimension:
    kilobytes = (1.0, HUGE / 1024)
    send = ("send", "-c", "2", "-size")
    pull = ("pull", "-m", "32", "-c", "2")
    rows = (
        (_row("send", (*send, "1024", "-topic", "Small")), _row("send", (*send, str(HUGE), "-topic", "Huge"))),
        (
            _row("pull", (*pull, "-topic", "SmallPull"), Kind.PULL),
            _row("pull", (*pull, "-topic", "HugePull"), Kind.PULL),
        ),
    )
    return Dimension(
        "message size",
        ("1 KB", "4 MB"),
        tuple(Load(f"{ends[0].name} C=2 W=1, for each KB", ends, kilobytes) for ends in rows),
        fill=(
            (("send", "-topic", "SmallPull", "-c", "8", "-w", "8", "-n", "100000"),),
            (("send", "-topic", "HugePull", "-size", str(HUGE), "-c", "2", "-n", "48"),),
        ),
    )


MAX_CONNECTIONS = 10_000
_MANY_FILES = 1 << 20


def possible_connections(open_files: int) -> int:
    """The upper end of the connections: a broker may count two files for each, and needs others."""
    return max(11, min(MAX_CONNECTIONS, (open_files - 4_000) // 2))


def possible_queues(open_files: int) -> int:
    """The number of topics that get messages: Apache's broker keeps a file of each queue open."""
    return max(11, (open_files - 4_000) // 4)


def dimensions(open_files: int = _MANY_FILES) -> tuple[Dimension, ...]:
    """All dimensions, in the order of the table; some ends depend on the system's limit of open files."""
    return (
        _topics((10, 20_000), possible_queues(open_files)),
        _connections((10, possible_connections(open_files))),
        _groups((1, 1_000)),
        _store((1, 100)),
        _durable("synchronous flush", ("off", "on"), Kind.FLUSH, (1, 32)),
        _durable("synchronous slave", ("off", "on"), Kind.REPLICATION, (1, 32)),
        _sizes(),
    )


def write_topics(store: Path, count: int) -> None:
    """Write the table of topics of a broker that has never run: so many topics of 8 queues."""
    names = [f"{TOPIC}{number}" for number in range(count)]
    table = {
        name: {
            "order": False,
            "perm": 6,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for name in names
    }
    config = store / "config"
    config.mkdir(parents=True)
    form = {"dataVersion": {"counter": count, "timestamp": 1_700_000_000_000}, "topicConfigTable": table}
    (config / "topics.json").write_text(json.dumps(form))
