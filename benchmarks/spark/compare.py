"""``python -m benchmarks spark``: our data source beside Spark's own Kafka source, over the same messages, in one run.

The same messages lie in rocketd's store and in a real Kafka broker; each side has a Spark session of its own, and runs
the queries in turn with the other. What counts is CPU time: of driver, JVM and Python, and of the brokers. The figures
are the best of the rounds, after one pass of each query that warms both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.command import run_directory
from benchmarks.machine import Watch
from benchmarks.servers import RocketdLauncher, Side
from benchmarks.spark.load import fill
from benchmarks.spark.queries import TOPIC
from benchmarks.spark.sides import Cost, SparkSide
from tests.support.kafka import start_kafka


@dataclass(frozen=True)
class Row:
    """One comparison: a query of ours beside one of theirs, and the ratio of CPU that is the goal."""

    title: str
    ours: str
    theirs: str
    goal: float
    peer: str = "kafka"
    with_brokers: bool = False


ROWS = (
    Row("count", "count", "count", 2.5),
    Row("group by tag", "tags", "tags", 4),
    Row("body", "body", "body", 2),
    Row("full row", "full", "full", 2),
    Row("full row to Parquet, Spark's writer", "parquet", "parquet", 1.3),
    Row("archive, fused", "archive", "parquet", 4.5),
    Row("stream to Parquet, fused sink", "stream", "stream", 3),
    Row("broker mode, brokers counted", "broker", "full", 1, with_brokers=True),
    Row("broker mode, pulls of up to 1 MB, brokers counted", "broker_large", "full", 1, with_brokers=True),
    Row("archive, fused, beside Spark's writer on our source", "archive", "parquet", 3, peer="rocketd"),
    Row("full row beside the same rows in Parquet", "full", "parquet_read", 0.5, peer="rocketd"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks spark", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=300_000, help="messages (default %(default)s; goals hold for 1500000)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="measured passes of each query (default %(default)s)")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="rows of the table; repeatable")
    parser.add_argument("--dir", type=Path, help="keep everything in this new directory (default: temporary)")
    given = parser.parse_args(words)
    rows = [row for row in ROWS if not given.only or any(pattern in row.title for pattern in given.only)]
    if not rows:
        parser.error(f"no row matches; there are: {', '.join(row.title for row in ROWS)}")
    with run_directory("benchmarks", given.dir) as directory:
        return _measure(rows, given.rows, given.rounds, directory)


def _measure(rows: Sequence[Row], count: int, rounds: int, directory: Path) -> int:
    watch = Watch()
    servers = Side(RocketdLauncher(directory), directory, {})
    kafka, address = start_kafka(directory / "kafka")
    sides: dict[str, SparkSide] = {}
    try:
        servers.start()
        print(f"{count:,} messages for rocketd's broker", flush=True)
        fill(servers.namesrv_address, servers.broker_address, TOPIC, count)
        store = ["--store", str(servers.store("broker-a")), "--namesrv", servers.namesrv_address]
        store += ["--broker", servers.broker_address]
        words = ["--rows", str(count), "--kafka", address, *store]
        print("the same for Kafka", flush=True)
        loader = SparkSide("kafka", words, directory / "load", kafka.pid)
        try:
            loader.run("load")
        finally:
            loader.stop()
        sides["kafka"] = SparkSide("kafka", words, directory / "kafka-spark", kafka.pid)
        sides["rocketd"] = SparkSide("rocketd", words, directory / "rocketd-spark", servers.pid("broker-a"))
        costs = _passes(sides, rows, count, rounds)
    finally:
        for side in sides.values():
            side.stop()
        servers.kill_all()
        kafka.kill()
    form = {"rows": count, "rounds": rounds, "spark": [_form(row, costs) for row in rows]}
    return watch.publish(form, _table(rows, costs, count))


def _passes(sides: dict[str, SparkSide], rows: Sequence[Row], count: int, rounds: int) -> dict[tuple[str, str], Cost]:
    wanted: list[tuple[str, str]] = []
    for row in rows:
        if row.theirs == "parquet_read" and ("rocketd", "parquet") not in wanted:
            wanted.append(("rocketd", "parquet"))  # it writes what is read
        wanted += [pair for pair in ((row.peer, row.theirs), ("rocketd", row.ours)) if pair not in wanted]
    best: dict[tuple[str, str], Cost] = {}
    for number in range(rounds + 1):
        for side, query in wanted:
            cost = sides[side].run(query, count)
            print(
                f"{number if number else 'warm'}: {side} {query}: {cost.spark:.2f} s + {cost.broker:.2f} s",
                flush=True,
            )
            if number and ((side, query) not in best or cost.spark < best[side, query].spark):
                best[side, query] = cost
    return best


def _seconds(row: Row, cost: Cost) -> float:
    return cost.spark + cost.broker if row.with_brokers else cost.spark


def _form(row: Row, costs: dict[tuple[str, str], Cost]) -> dict[str, object]:
    ours, theirs = costs["rocketd", row.ours], costs[row.peer, row.theirs]
    return {"title": row.title, "ours": asdict(ours), "theirs": asdict(theirs), "goal": row.goal}


def _table(rows: Sequence[Row], costs: dict[tuple[str, str], Cost], count: int) -> str:
    lines = []
    for row in rows:
        ours, theirs = costs["rocketd", row.ours], costs[row.peer, row.theirs]
        ratio = _seconds(row, theirs) / _seconds(row, ours)
        lines.append(
            [
                row.title,
                *(report.number(value) for value in (ours.spark, ours.broker, ours.wall)),
                *(report.number(value) for value in (theirs.spark, theirs.broker, theirs.wall)),
                report.number(count / _seconds(row, ours) / 1e6),
                report.times(ratio),
                f"≥ {row.goal:g}",
                report.verdict(ratio >= row.goal),
            ]
        )
    header = [
        "query",
        "ours: CPU s",
        "broker",
        "wall",
        "theirs: CPU s",
        "broker",
        "wall",
        "M rows/CPU-s",
        "x",
        "goal",
        "reached",
    ]
    return report.table(header, lines)


if __name__ == "__main__":
    sys.exit(main())
