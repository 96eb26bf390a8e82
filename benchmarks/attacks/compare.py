"""``python -m benchmarks attacks``: each attack on rocketd's and on Apache's servers, which are restarted for each.

Exit code: 0 when everything was measured, 1 when something failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import run
from benchmarks.attacks.scenarios import CLOCK, SCENARIOS, Figures, stepped_clock
from benchmarks.command import run_directory
from benchmarks.machine import Watch
from benchmarks.outcome import APACHE
from tests.support.apache import fetch_jars
from tests.support.process import ServerError


def main(words: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks attacks", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=list(SCENARIOS), action="append", help="default: all")
    parser.add_argument("--sides", choices=[*run.SIDES, "both"], default="both", help="measure only one of them")
    given = parser.parse_args(words)
    names = run.SIDES if given.sides == "both" else (given.sides,)
    watch = Watch()
    measured: dict[str, dict[str, Figures]] = {}
    failures: list[str] = []
    with run_directory("attacks") as directory:
        if APACHE in names:
            fetch_jars()
        for scenario in given.only or SCENARIOS:
            for name in names:
                place = directory / scenario.replace(" ", "-") / name
                place.mkdir(parents=True)
                try:
                    figures = _measure(scenario, name, place)
                except (ServerError, OSError) as error:
                    print(f"{scenario}, {name}: FAILED: {error}", file=sys.stderr)
                    failures.append(f"{scenario}, {name}: {error}")
                    continue
                measured.setdefault(scenario, {})[name] = figures
                print(f"{scenario:16} {name:8} {_line(figures)}", flush=True)
    return watch.publish({"attacks": measured}, _lines(measured), failures=failures)


def _measure(scenario: str, name: str, directory: Path) -> Figures:
    with contextlib.ExitStack() as stack:
        if scenario in CLOCK:
            stack.enter_context(stepped_clock(directory))
        (side,) = stack.enter_context(run.started([name], directory, {}))
        return SCENARIOS[scenario](side)


def _lines(measured: dict[str, dict[str, Figures]]) -> str:
    return "\n".join(
        f"{scenario:16} {name:8} {_line(figures)}"
        for scenario, sides in measured.items()
        for name, figures in sides.items()
    )


def _line(figures: Figures) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in figures.items())


def _text(value: float | str) -> str:
    return (
        value if isinstance(value, str) else f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    )
