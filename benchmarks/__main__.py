"""``python -m benchmarks``: rocketd and Apache RocketMQ 4.9.7 under the same load, in turn; prints the table of ratios.

The other commands are ``recovery``, ``growth.compare``, ``brokers``, ``affinity``, ``overload``, ``chaos.compare``,
``clients.compare``, ``attacks.compare`` and ``spark.compare`` (``spark parser``: ``spark.parser``), each in the module of
this name. ``plot`` draws the results of a run (``plots``).

Exit code: 0 when everything was measured (whether or not the goals are reached), 1 when something failed, 2 for wrong
arguments, 128 + its number after a signal (130 after Ctrl-C).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import affinity, brokers, generator, outcome, overload, plots, recovery, report, rows, run
from benchmarks.attacks import compare as attacks
from benchmarks.chaos import compare as chaos
from benchmarks.clients import compare
from benchmarks.command import run_directory
from benchmarks.growth import compare as growth
from benchmarks.machine import Watch, touch_memory
from benchmarks.measurement import Settings
from tests.support.apache import fetch_jars


def _parser() -> argparse.ArgumentParser:
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Drive rocketd's and Apache's servers in turn with the same load and print how they compare.",
    )
    parser.add_argument("--rounds", type=_positive, default=3, help="measurements of each row and side (default 3)")
    parser.add_argument("--rows", action="append", default=[], metavar="PATTERN", help="rows to run; repeatable")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="length of a load (default %(default)s)")
    parser.add_argument(
        "--warm", type=float, default=default.warm_up, help="seconds of warm-up of each side (default %(default)s)"
    )
    parser.add_argument(
        "--messages",
        type=_positive,
        default=default.recovery_messages,
        help="messages in the store that is recovered after kill -9 (default %(default)s)",
    )
    parser.add_argument("--sides", choices=[*run.SIDES, "both"], default="both", help="measure only one of them")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="setting of both brokers"
    )
    parser.add_argument("--against", type=Path, metavar="FILE", help="JSON of an older run to compare with")
    parser.add_argument("--dir", type=Path, help="keep stores and logs in this new directory (default: temporary)")
    parser.add_argument(
        "--touch",
        action="store_true",
        help="use all free memory once before: for a virtual machine that was just started",
    )
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _spark(words: Sequence[str]) -> int:
    """Run a comparison that needs the extra ``spark``. The other benchmarks do without."""
    if words[:1] == ["parser"]:
        from benchmarks.spark import parser

        return parser.main(words[1:])
    from benchmarks.spark import compare as spark_compare

    return spark_compare.main(words)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "attacks": attacks.main,
    "affinity": affinity.main,
    "brokers": brokers.main,
    "chaos": chaos.main,
    "clients": compare.main,
    "growth": growth.main,
    "overload": overload.main,
    "plot": plots.main,
    "recovery": recovery.main,
    "spark": _spark,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in _COMMANDS:
        return _COMMANDS[words[0]](words[1:])
    parser = _parser()
    given = parser.parse_args(words)
    chosen = rows.matching(given.rows)
    if not chosen:
        parser.error("no row matches; --list shows them")
    if any("=" not in option for option in given.option):
        parser.error("-o wants KEY=VALUE")
    if given.list:
        for row in chosen:
            print(f"{row.name}\n    {row.kind.value}: {' '.join(row.arguments)}")
            print("    " + ", ".join(f"{goal.figure.title} {goal}" for goal in row.goals))
        return 0
    old = json.loads(given.against.read_text()) if given.against else None
    if given.dir is not None and given.dir.exists():
        parser.error(f"{given.dir} exists; the stores must be new")
    with run_directory("benchmarks", given.dir) as directory:
        return _measure(given, chosen, directory, old)


def _measure(given: argparse.Namespace, chosen: Sequence[rows.Row], directory: Path, old: dict[str, Any] | None) -> int:
    names = run.SIDES if given.sides == "both" else (given.sides,)
    options = dict(option.split("=", 1) for option in given.option)
    settings = Settings(seconds=given.seconds, warm_up=given.warm, recovery_messages=given.messages)
    load = generator.build(directory)
    if outcome.APACHE in names:
        fetch_jars()  # not within what is timed
    if given.touch:
        print(f"{touch_memory():,} MB of memory used once", flush=True)
    watch = Watch()
    with run.started(names, directory, options) as sides:
        measured = run.run(chosen, sides, load, settings, given.rounds, directory, lambda line: print(line, flush=True))
    form = {"settings": {**vars(settings), "rounds": given.rounds, "options": options}, **measured.as_json()}
    tables = [report.tables(measured), report.summary(measured)]
    if old is not None:
        tables.append(report.comparison(measured, old))
    return watch.publish(form, "\n\n".join(filter(None, tables)), measured.remarks, measured.failures)


if __name__ == "__main__":
    sys.exit(main())
