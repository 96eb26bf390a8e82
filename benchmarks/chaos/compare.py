"""``python -m benchmarks chaos``: the Python client while servers and clients end, on rocketd's and on Apache's servers.

Nothing timed is asserted. Exit code: 0 when nothing was lost, out of order or left running, 1 otherwise, 2 for wrong
arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report, run
from benchmarks.chaos.accounting import Account, account, handled_again
from benchmarks.chaos.director import SETTINGS, Director, Run
from benchmarks.chaos.topics import QUEUE_ORDER
from benchmarks.command import run_directory
from benchmarks.machine import Watch
from benchmarks.outcome import APACHE
from benchmarks.servers import ApacheLauncher, RocketdLauncher, Side
from tests.support.apache import fetch_jars
from tests.support.quick_java import COMPILER

JVM = ("-Xms256m", "-Xmx1g", *COMPILER)
"""Of Apache's servers, so that they are back soon after a kill."""

SHOWN = 20
"""How many messages are named that were handled again in order."""


def main(words: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=110.0, help="time of sending (default %(default)g)")
    parser.add_argument("--seed", type=int, default=18, help="of all random choices (default %(default)d)")
    parser.add_argument("--sides", choices=[*run.SIDES, "both"], default="both", help="measure only one of them")
    parser.add_argument("--dir", type=Path, help="keep journals and logs in this new directory (default: temporary)")
    given = parser.parse_args(words)
    if given.dir is not None and given.dir.exists():
        parser.error(f"{given.dir} exists; the stores must be new")
    names = run.SIDES if given.sides == "both" else (given.sides,)
    watch = Watch()
    results: dict[str, tuple[Run, Account]] = {}
    failures: list[str] = []
    with run_directory("chaos", given.dir) as directory:
        if APACHE in names:
            fetch_jars()
        for name in names:
            print(f"{name}: {given.seconds:g} s, seed {given.seed}", flush=True)
            done, tracebacks = _run(name, directory / name, given.seconds, given.seed)
            accounted = account(done.events)
            results[name] = done, accounted
            failures += [f"{name}: {line}" for line in (*done.failures, *accounted.failures(), *tracebacks)]
    form = {
        "settings": {"seconds": given.seconds, "seed": given.seed},
        "chaos": {name: dict(accounted.rows()) for name, (_, accounted) in results.items()},
        "steps": {name: done.steps for name, (done, _) in results.items()},
        "failures": failures,
    }
    remarks = [
        f"{name}: handled again in order: {line}"
        for name, (done, _) in results.items()
        for line in handled_again(done.events, QUEUE_ORDER)[:SHOWN]
    ]
    return watch.publish(form, table({name: accounted for name, (_, accounted) in results.items()}), remarks, failures)


def _run(name: str, directory: Path, seconds: float, seed: int) -> tuple[Run, list[str]]:
    """Run one side. Return what happened, and the tracebacks in the logs of its servers."""
    launcher = ApacheLauncher(JVM, JVM) if name == APACHE else RocketdLauncher(directory)
    side = Side(launcher, directory, SETTINGS)
    try:
        side.start()
        done = Director(side, directory / "clients", seconds, seed, lambda line: print(line, flush=True)).run()
        side.stop()
    finally:
        side.kill_all()
    return done, [f"{count} tracebacks in {log}" for log, count in side.tracebacks().items()]


def table(accounts: dict[str, Account]) -> str:
    """Return a line for each figure, with a column for each side."""
    columns = [[value for _, value in accounted.rows()] for accounted in accounts.values()]
    titles = [title for title, _ in next(iter(accounts.values())).rows()]
    return report.table(["", *accounts], [[title, *values] for title, *values in zip(titles, *columns, strict=True)])
