"""The order of a run: servers up, prepared and warm, then row by row the two sides in turn, for as many rounds.

Both sides are up all the time and only one is driven at any moment. The side that begins changes from round to round, so
that neither always has the other's write-back behind it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.generator import Generator, MeasurementError
from benchmarks.measure import Settings, Station
from benchmarks.outcome import APACHE, ROCKETD, Results
from benchmarks.peers.jars import PeerUnavailableError
from benchmarks.peers.process import ServerError
from benchmarks.rows import Row
from benchmarks.servers import ApacheLauncher, Launcher, RocketdLauncher, Side

SIDES = (ROCKETD, APACHE)
_FAILURES = (MeasurementError, ServerError, PeerUnavailableError, OSError)
_PAUSE = 0.5  # seconds between two measurements, for what the server still does after its answers


@contextlib.contextmanager
def started(
    names: Sequence[str], directory: Path, options: Mapping[str, str], start: Callable[[Side], None] = Side.start
) -> Iterator[list[Side]]:
    """The sides of these names, each started; whatever happens, none of their servers is left running afterwards."""
    launchers: dict[str, Callable[[], Launcher]] = {
        ROCKETD: lambda: RocketdLauncher(directory),
        APACHE: ApacheLauncher,
    }
    sides = [Side(launchers[name](), directory / name, options) for name in names]
    try:
        for side in sides:
            start(side)
        yield sides
    finally:
        for side in sides:
            side.kill_all()


def in_turn(rows: Sequence[Row], sides: Sequence[str], rounds: int) -> Iterator[tuple[int, Row, str]]:
    """Round (from 1), row and side of every measurement, in the order in which they are taken."""
    for number in range(rounds):
        for row in rows:
            for side in sides if number % 2 == 0 else reversed(sides):
                yield number + 1, row, side


def run(
    rows: Sequence[Row],
    sides: Sequence[Side],
    generator: Generator,
    settings: Settings,
    rounds: int,
    tell: Callable[[str], None],
) -> Results:
    """Measure all of it and stop the sides; what fails is noted and the rest goes on. ``tell`` gets lines of progress."""
    results = Results(rows)
    stations = {side.name: Station(side, generator, settings) for side in sides}
    kinds = {row.kind for row in rows}
    for name, station in stations.items():
        tell(f"preparing {name}")
        try:
            station.prepare(kinds)
        except _FAILURES as e:
            results.fail(f"preparing {name}", e)
            return results
    for number, row, name in in_turn(rows, list(stations), rounds):
        time.sleep(_PAUSE)
        try:
            measurement = stations[name].measure(row)
        except _FAILURES as e:
            results.fail(f"round {number}, {row.name}, {name}", e)
            tell(f"round {number}  {row.name:22} {name:8} FAILED: {e}")
            continue
        results.add(row, name, measurement)
        shown = "  ".join(f"{goal.figure.key} {measurement.figures[goal.figure.key]:,.3g}" for goal in row.goals)
        tell(f"round {number}  {row.name:22} {name:8} {shown}")
    for side in sides:
        try:
            side.stop()
        except ServerError as e:
            results.fail(f"stopping {side.name}", e)
        results.failures += [f"{side.name}: {count} tracebacks in {log}" for log, count in side.tracebacks().items()]
    return results
