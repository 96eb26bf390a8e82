"""``python -m benchmarks affinity``: the broker with ``cpuAffinity=off`` and ``auto``, side by side, in three surroundings.

Quiet: nothing else runs. Busy: a few processes compute all the time, one for each core unless given. Second broker: another
broker with the same setting has the same load at the same time; then values are those of both.

Exit code: 0 when everything was measured, 1 when something failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import generator
from benchmarks.command import FAILURES, run_directory
from benchmarks.generator import Generator
from benchmarks.machine import Watch
from benchmarks.measurement import Measurement
from benchmarks.rows import matches
from benchmarks.servers import RocketdLauncher, Side
from benchmarks.side_by_side import Variants
from benchmarks.together import Brokers, drive

OFF, AUTO = "off", "auto"
LOADS = {
    "send 1 KB C=8 W=64": (8, ("send", "-topic", "Load", "-w", "64")),
    "send 1 KB C=8 W=1": (8, ("send", "-topic", "Load", "-w", "1")),
    "send 1 KB C=1 W=1": (1, ("send", "-topic", "Load", "-w", "1")),
    "pull of 1 C=8 W=1": (8, ("pull", "-topic", "Pull", "-m", "1", "-w", "1", "-passes", "1000")),
}
QUIET, BUSY, SECOND = "quiet", "busy", "second broker"
MAX_BUSY = 64

_BUSY_PROGRAM = "import time\nend = time.monotonic() + float({seconds})\nwhile time.monotonic() < end: pass"
_BUSY_LIFE = 120.0  # seconds after which a busy process ends by itself
_SETTLE = 4.0  # seconds: a broker moves to another core after two measurements, at most 3 s apart
_PAUSE = 0.5
_FILL = ("batch", "-topic", "Pull", "-k", "32", "-n", "50000")
_FILL_SECONDS = 100.0


@contextlib.contextmanager
def busy(processes: int) -> Iterator[list[int]]:
    """Run so many processes that compute all the time; yields their ids. They end on the way out, or after a while."""
    program = _BUSY_PROGRAM.format(seconds=_BUSY_LIFE)
    children = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(processes)]
    try:
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


def row_name(surroundings: str, load: str) -> str:
    """The name of a row in the table."""
    return f"{surroundings}: {load}"


def all_rows() -> list[tuple[str, str]]:
    """Surroundings and load of every row."""
    return [(surroundings, load) for surroundings in (QUIET, BUSY, SECOND) for load in LOADS]


class _Setting:
    """Two brokers with one value of cpuAffinity."""

    def __init__(self, value: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.side = Side(RocketdLauncher(directory.parent), directory, {"cpuAffinity": value})

    def start(self) -> None:
        self.side.start()
        self.side.await_route(self.side.spawn("broker-b"), self.side.address("broker-b"))

    def brokers(self, *names: str) -> Brokers:
        return Brokers(tuple(self.side.address(name) for name in names), tuple(self.side.pid(name) for name in names))


def _measure_row(
    setting: _Setting, surroundings: str, load: str, given: argparse.Namespace, run: Generator
) -> Measurement:
    connections, arguments = LOADS[load]
    if surroundings == SECOND:
        return drive(run, setting.brokers("broker-a", "broker-b"), arguments, 2 * connections, given.seconds)
    with busy(given.busy if surroundings == BUSY else 0) as others:
        if others:
            time.sleep(_SETTLE)
        return drive(run, setting.brokers("broker-a"), arguments, connections, given.seconds)


def _measure(
    given: argparse.Namespace, rows: Sequence[tuple[str, str]], run: Generator, settings: Mapping[str, _Setting]
) -> Variants:
    results = Variants(list(settings), OFF)
    for setting in settings.values():
        setting.start()
        drive(run, setting.brokers("broker-a", "broker-b"), _FILL, 2, _FILL_SECONDS)
    for number in range(given.rounds):
        for surroundings, load in rows:
            for value, setting in settings.items() if number % 2 == 0 else reversed(settings.items()):
                time.sleep(_PAUSE)
                what = f"round {number + 1}  {row_name(surroundings, load)}, {value}"
                try:
                    measured = _measure_row(setting, surroundings, load, given, run)
                except FAILURES as e:
                    results.failures.append(f"{what}: {e}")
                    continue
                results.add(row_name(surroundings, load), value, measured)
                figures = "  ".join(f"{key} {figure:,.3g}" for key, figure in measured.figures.items())
                print(f"{what:48} {figures}", flush=True)
    for setting in settings.values():
        setting.side.stop()
    return results


def _busy_count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MAX_BUSY:
        raise argparse.ArgumentTypeError(f"accepted are numbers from 1 to {MAX_BUSY}")
    return count


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    cores = min(MAX_BUSY, os.cpu_count() or 1)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks affinity", description="Compare cpuAffinity=off with auto, in three surroundings."
    )
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--rows", action="append", default=[], metavar="PATTERN", help="rows to run; repeatable")
    parser.add_argument("--seconds", type=float, default=2.5, help="length of a load (default 2.5)")
    parser.add_argument("--busy", type=_busy_count, default=cores, help=f"busy processes (default {cores}, the cores)")
    given = parser.parse_args(arguments)
    rows = [row for row in all_rows() if matches(row_name(*row), given.rows)]
    if not rows:
        parser.error(f"no row matches; there are: {', '.join(row_name(*row) for row in all_rows())}")
    with run_directory("affinity") as directory:
        settings = {value: _Setting(value, directory / value) for value in (OFF, AUTO)}
        load = generator.build(directory)
        watch = Watch()
        try:
            results = _measure(given, rows, load, settings)
        finally:
            for setting in settings.values():
                setting.side.kill_all()
    names = [row_name(*row) for row in rows]
    form = {
        "settings": {name: getattr(given, name) for name in ("rounds", "seconds", "busy")},
        **results.as_json(names),
    }
    return watch.publish(form, results.table(names), results.remarks, results.failures)
