"""The order of a run: servers up, prepared and warm, then row by row the two sides in turn, for as many rounds.

Both sides are up all the time and only one is driven at any moment. The side that begins changes from round to round, so
that neither always has the other's write-back behind it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.clients.station import ClientStation
from benchmarks.command import FAILURES
from benchmarks.generator import Generator
from benchmarks.measure import Station
from benchmarks.measurement import Settings
from benchmarks.outcome import APACHE, ROCKETD, Results
from benchmarks.rows import Kind, Row
from benchmarks.servers import ApacheLauncher, Launcher, RocketdLauncher, Side
from tests.support.process import ServerError

SIDES = (ROCKETD, APACHE)
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
    directory: Path,
    tell: Callable[[str], None],
) -> Results:
    """Measure all of it and stop the sides; what fails is noted and the rest goes on.

    ``directory`` gets the clients' logs, ``tell`` lines of progress.
    """
    with _clients(rows, sides[0], generator, settings, directory) as clients:
        results = _measured(
            rows, [Station(side, generator, settings, clients) for side in sides], clients, rounds, tell
        )
    for side in sides:
        try:
            side.stop()
        except ServerError as e:
            results.fail(f"stopping {side.name}", e)
        results.failures += [f"{side.name}: {count} tracebacks in {log}" for log, count in side.tracebacks().items()]
    return results


@contextlib.contextmanager
def _clients(
    rows: Sequence[Row], side: Side, generator: Generator, settings: Settings, directory: Path
) -> Iterator[ClientStation | None]:
    """The clients of the rows that measure clients, on one side's broker; None without such rows."""
    if not any(row.kind is Kind.CLIENT for row in rows):
        yield None
        return
    clients = ClientStation(side, generator, settings, directory)
    try:
        yield clients
    finally:
        clients.stop()


def _measured(
    rows: Sequence[Row],
    prepared: Sequence[Station],
    clients: ClientStation | None,
    rounds: int,
    tell: Callable[[str], None],
) -> Results:
    results = Results(rows)
    stations = {station.side.name: station for station in prepared}
    kinds = {row.kind for row in rows}
    for name, station in stations.items():
        tell(f"preparing {name}")
        try:
            station.prepare(kinds)
        except FAILURES as e:
            results.fail(f"preparing {name}", e)
            return results
    if clients is not None:
        tell("preparing the clients")
        try:
            clients.prepare(rows, list(stations))
        except FAILURES as e:
            results.fail("preparing the clients", e)
            return results
    for number, row, name in in_turn(rows, list(stations), rounds):
        time.sleep(_PAUSE)
        try:
            measurement = stations[name].measure(row)
        except FAILURES as e:
            results.fail(f"round {number}, {row.name}, {name}", e)
            tell(f"round {number}  {row.name:28} {name:8} FAILED: {e}")
            continue
        results.add(row, name, measurement)
        shown = "  ".join(f"{goal.figure.key} {measurement.figures[goal.figure.key]:,.3g}" for goal in row.goals)
        tell(f"round {number}  {row.name:28} {name:8} {shown}")
    return results
