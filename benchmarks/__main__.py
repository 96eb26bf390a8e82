"""``python -m benchmarks``: rocketd and Apache RocketMQ 4.9.7 under the same load, in turn; prints the table of ratios.

``python -m benchmarks recovery`` is `benchmarks.recovery`, ``python -m benchmarks clients`` is `benchmarks.clients.compare`,
``python -m benchmarks spark`` is `benchmarks.spark.compare`, and ``spark parser`` is `benchmarks.spark.parser`.

Exit code: 0 when everything was measured (whether or not the goals are reached), 1 when something failed, 2 for wrong
arguments, 128 + its number after a signal (130 after Ctrl-C).
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import generator, outcome, recovery, report, rows, run
from benchmarks.clients import compare
from benchmarks.machine import end_on_signals, machine_form, write_results
from benchmarks.measure import Settings
from benchmarks.peers.apache import fetch_jars
from benchmarks.peers.jars import PeerUnavailableError
from benchmarks.peers.process import ServerError


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
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["recovery"]:
        return recovery.main(words[1:])
    if words[:1] == ["clients"]:
        return compare.main(words[1:])
    if words[:1] == ["spark"]:
        return _spark(words[1:])
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
    end_on_signals()
    directory = given.dir.resolve() if given.dir else Path(tempfile.mkdtemp(prefix="rocketd-benchmarks-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _measure(given, chosen, directory, old)
    except KeyboardInterrupt:
        return 130
    except (ServerError, PeerUnavailableError, generator.MeasurementError) as e:
        print(f"benchmarks: {e}", file=sys.stderr)
        return 1
    finally:
        if given.dir is None:
            shutil.rmtree(directory, ignore_errors=True)


def _spark(words: list[str]) -> int:
    """What needs the extra ``spark``, which the other benchmarks do without."""
    if words[:1] == ["parser"]:
        from benchmarks.spark import parser

        return parser.main(words[1:])
    from benchmarks.spark import compare as spark_compare

    return spark_compare.main(words)


def _measure(given: argparse.Namespace, chosen: Sequence[rows.Row], directory: Path, old: dict[str, Any] | None) -> int:
    names = run.SIDES if given.sides == "both" else (given.sides,)
    options = dict(option.split("=", 1) for option in given.option)
    settings = Settings(seconds=given.seconds, warm_up=given.warm, recovery_messages=given.messages)
    load = generator.build(directory)
    if outcome.APACHE in names:
        fetch_jars()  # not within what is timed
    begin = datetime.datetime.now(datetime.UTC)
    machine = machine_form()
    with run.started(names, directory, options) as sides:
        measured = run.run(chosen, sides, load, settings, given.rounds, lambda line: print(line, flush=True))
    form = {"settings": {**vars(settings), "rounds": given.rounds, "options": options}, **measured.as_json()}
    file = write_results(begin, machine, form)
    print(f"\n{json.dumps(machine, ensure_ascii=False)}\n\n{report.tables(measured)}")
    if old is not None:
        print(f"\n{report.comparison(measured, old)}")
    for title, lines in (("Remarks", measured.remarks), ("FAILED", measured.failures)):
        if lines:
            print(f"\n{title}:\n" + "\n".join(f"- {line}" for line in lines))
    print(f"\nwritten: {file}")
    return 1 if measured.failures else 0


if __name__ == "__main__":
    sys.exit(main())
