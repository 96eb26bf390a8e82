"""``python -m benchmarks growth``: the cost of an operation at both ends of what grows, rocketd beside Apache.

Dimension after dimension, the servers of both ends are started, filled and warmed, and the loads are measured in turn, for
each round. A cost of rocketd's that grows by half or more is a curve that bends.

Exit code: 0 when everything was measured, 1 when something failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks import generator, run
from benchmarks.command import FAILURES, run_directory
from benchmarks.generator import Generator
from benchmarks.growth.dimensions import MAX_CONNECTIONS, Dimension, dimensions, possible_connections
from benchmarks.growth.results import GrowthResults, table
from benchmarks.growth.stations import stations
from benchmarks.machine import Watch
from benchmarks.measurement import Settings
from benchmarks.outcome import APACHE
from benchmarks.rows import matches
from tests.support.apache import fetch_jars


def _raise_open_files() -> int:
    """Raise the limit of open files, for the servers too, as far as the system allows; returns it."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return limit if limit != resource.RLIM_INFINITY else 1 << 20


def _measure_all(
    chosen: Sequence[Dimension],
    load: Generator,
    settings: Settings,
    rounds: int,
    results: GrowthResults,
    place: Path,
) -> None:
    for dimension in chosen:
        directory = place / dimension.name.replace(" ", "-")
        print(f"preparing {dimension.name}: {' and '.join(dimension.labels)}", flush=True)
        try:
            _measure_one(dimension, load, settings, rounds, results, directory)
        except FAILURES as e:
            results.failures.append(f"{dimension.name}: {e}")
            print(f"{dimension.name} FAILED: {e}", flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)  # before the next one: stores are large


def _measure_one(
    dimension: Dimension, load: Generator, settings: Settings, rounds: int, results: GrowthResults, directory: Path
) -> None:
    with stations(dimension, results.sides, load, settings, directory) as prepared:
        for number in range(rounds):
            for row in dimension.loads:
                for side, end in prepared if number % 2 == 0 else reversed(prepared):
                    what = f"round {number + 1}  {dimension.name} {dimension.labels[end]}, {row.name}, {side}"
                    try:
                        measured = prepared[side, end].measure(row)
                    except FAILURES as e:
                        results.failures.append(f"{what}: {e}")
                        continue
                    results.add(dimension, row, side, end, measured)
                    figures = [goal.figure.key for goal in row.ends[end].goals]
                    print(what, "  ".join(f"{key} {measured.figures[key]:,.3g}" for key in figures), flush=True)


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(dimension.name for dimension in dimensions())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth", description="Print the cost of operations at both ends of what grows."
    )
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--rows", action="append", default=[], metavar="PATTERN", help=f"some of: {names}; repeatable")
    parser.add_argument("--seconds", type=float, default=2.5, help="length of a load (default 2.5)")
    parser.add_argument("--warm", type=float, default=12.0, help="seconds of warm-up of each server (default 12)")
    parser.add_argument("--sides", choices=[*run.SIDES, "both"], default="both", help="measure only one of them")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    open_files = _raise_open_files()
    chosen = [dimension for dimension in dimensions(open_files) if matches(dimension.name, given.rows)]
    if not chosen:
        parser.error(f"no row matches; there are: {', '.join(dimension.name for dimension in dimensions())}")
    results = GrowthResults(run.SIDES if given.sides == "both" else (given.sides,))
    if possible_connections(open_files) < MAX_CONNECTIONS:
        results.remarks.append(f"fewer connections and queues: the system allows {open_files:,} open files")
    settings = Settings(seconds=given.seconds, warm_up=given.warm, pull_messages=100_000)
    with run_directory("growth") as directory:
        load = generator.build(directory)
        if APACHE in results.sides:
            fetch_jars()
        watch = Watch()
        _measure_all(chosen, load, settings, given.rounds, results, directory)
    form = {"settings": {**vars(settings), "rounds": given.rounds}, **results.as_json(chosen)}
    return watch.publish(form, table(results, chosen), results.remarks, results.failures)
