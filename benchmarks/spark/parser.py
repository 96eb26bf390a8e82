"""``python -m benchmarks spark parser``: the parser of the store's files alone, on one core, without Spark.

A store is written by rocketd's own engine, four topics of four queues. Then one topic is read again and again, and CPU time
of the process is taken, the best of the rounds; the sides of a ratio run in turn. Megabytes are those of the log that the
rows cover. Nothing is asserted: the values are printed.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.spark import struct_loop
from rocketd.spark.columns import DEFAULT_COLUMNS
from rocketd.spark.ranges import QueueRange, ReadPlan
from rocketd.spark.records.parse import walk_log
from rocketd.spark.store.tree import StoreTree
from rocketd.store.format.message import MessageInner
from tests.support.stores import BORN_V4, START_MS, message, write_store

TOPICS = ("orders", "payments", "shipments", "audit")
QUEUES = 4
LOG_FILE_SIZE = 256 * 1024 * 1024

HEADER = ("queue_id", "queue_offset", "commit_log_offset", "store_size", "sys_flag", "store_time")
TYPED = (
    "topic", "queue_id", "queue_offset", "commit_log_offset", "store_size", "flag", "sys_flag", "born_time", "store_time",
    "reconsume_times", "tags", "keys", "properties_raw", "body",
)  # fmt: skip
"""Fourteen columns with the property string as it is, which is what others call a full row."""


@dataclass(frozen=True)
class Cost:
    """Rows read, bytes of the log that they cover, and CPU seconds."""

    rows: int
    size: int
    seconds: float

    def __str__(self) -> str:
        rows = f"{self.rows / self.seconds / 1e6:8.2f}" if self.rows else " " * 8
        return f"{rows} {self.size / self.seconds / 1e6:10.0f}"


def messages(count: int, body_size: int) -> Iterator[MessageInner]:
    """Messages with a body of random bytes and five properties: about 200 bytes beside the body."""
    pool = np.random.default_rng(1).bytes(1 << 22)
    for number in range(count):
        at = number * 7919 % (len(pool) - body_size)
        yield message(
            pool[at : at + body_size],
            TOPICS[number % len(TOPICS)],
            number // len(TOPICS) % QUEUES,
            tags=f"Tag{'ABCDE'[number * 31 // 7 % 5]}",
            keys=f"order-{number:08d}",
            uniq_key=f"7F00000100002A9F{number:016X}",
            properties={"WAIT": "true", "region": f"eu-{number % 3}"},
            born_ms=START_MS + number // 100,
            born_host=BORN_V4,
        )


class Bench:
    """The topic that is read, and the ways to read it."""

    def __init__(self, root: str, batch_bytes: int) -> None:
        self.tree = StoreTree(root)
        self.batch_bytes = batch_bytes
        topic = TOPICS[0]
        self.parts = [QueueRange(queue, *self.tree.bounds(queue)) for queue in self.tree.queues(topic)]
        self.rows = sum(part.count for part in self.parts)
        self.size = sum(self.tree.bytes_of(part) or 0 for part in self.parts)
        self.log = self.tree.log()
        self.views = [memoryview(mapped) for file in self.log.files if (mapped := file.map()) is not None]
        self.target = np.zeros(64 * 1024 * 1024, np.uint8)

    def read(self, columns: Sequence[str], **plan: object) -> Cost:
        """Read all of the topic."""
        how = ReadPlan(tuple(columns), batch_bytes=self.batch_bytes, **plan)  # type: ignore[arg-type]
        return self.time(lambda: sum(batch.num_rows for part in self.parts for batch in self.tree.read(part, how)))

    def loop(self, work: Callable[[memoryview, bytes], int]) -> Cost:
        """Have a loop read a part of the topic, in pieces that lie in one file of the log."""
        parts = [self.tree.entries(part)[: max(1, self.rows // 40)] for part in self.parts]
        pieces = []
        size = rows = 0
        for entries in parts:
            offsets = entries["offset"].astype(np.int64)
            for number, file in enumerate(self.log.files):
                some = entries[(offsets >= file.begin) & (offsets < file.end)].copy()
                some["offset"] -= file.begin
                pieces.append((number, some.tobytes()))
            size += int(entries["size"].sum())
            rows += len(entries)
        cost = self.time(lambda: sum(work(self.views[number], data) for number, data in pieces), rows)
        return Cost(rows, size, cost.seconds)

    def copy(self) -> Cost:
        """The log copied in long pieces, into memory that is there: more of either than caches hold."""
        pieces = [
            data[begin : begin + len(self.target)]
            for data in (np.frombuffer(view, np.uint8) for view in self.views)
            for begin in range(0, len(data), len(self.target))
        ]
        began = time.process_time()
        for piece in pieces:
            np.copyto(self.target[: len(piece)], piece)
        return Cost(0, sum(map(len, pieces)), time.process_time() - began)

    def crc(self) -> Cost:
        """CRC of one piece."""
        began = time.process_time()
        zlib.crc32(self.views[0][: len(self.target)])
        return Cost(0, len(self.target), time.process_time() - began)

    def walk(self) -> Cost:
        """All records of the log found by their sizes."""
        began = time.process_time()
        walks = [walk_log(view) for view in self.views]
        seconds = time.process_time() - began
        return Cost(sum(len(walk.starts) for walk in walks), sum(walk.end for walk in walks), seconds)

    def time(self, work: Callable[[], int], expected: int | None = None) -> Cost:
        """CPU time of work that returns how many rows it has read."""
        began = time.process_time()
        rows = work()
        seconds = time.process_time() - began
        if rows != (self.rows if expected is None else expected):
            raise AssertionError(f"{rows} rows were read")
        return Cost(rows, self.size, seconds)

    def count(self) -> Cost:
        """Messages of the topic, a hundred times."""
        began = time.process_time()
        for _ in range(100):
            self.tree.count(TOPICS[0])
        return Cost(100 * self.rows, 100 * self.size, time.process_time() - began)


def rows_of(bench: Bench) -> dict[str, Callable[[], Cost]]:
    """What is measured."""
    return {
        "copy of the bytes (limit)": bench.copy,
        "CRC-32 in one piece": bench.crc,
        "count, from queue files": bench.count,
        "group by tag hash, from queue files": lambda: bench.time(
            lambda: sum(bench.tree.group_by_tag_hash(TOPICS[0]).values())
        ),
        "struct loop, tuples": lambda: bench.loop(lambda log, data: sum(1 for _ in struct_loop.tuples(log, data))),
        "struct loop, 14 columns": lambda: bench.loop(
            lambda log, data: sum(batch.num_rows for batch in struct_loop.batches(log, data, TYPED))
        ),
        "struct loop, full row": lambda: bench.loop(
            lambda log, data: sum(batch.num_rows for batch in struct_loop.batches(log, data, DEFAULT_COLUMNS))
        ),
        "6 header columns": lambda: bench.read(HEADER),
        "body": lambda: bench.read(("body",)),
        "tags": lambda: bench.read(("tags",)),
        "properties as a map": lambda: bench.read(("properties",)),
        "raw": lambda: bench.read(("raw",)),
        "14 columns": lambda: bench.read(TYPED),
        "full row (22 columns)": lambda: bench.read(DEFAULT_COLUMNS),
        "body, with its CRC": lambda: bench.read(("body",), verify_crc=True),
        "header columns of one tag": lambda: bench.time(
            lambda: sum(
                batch.num_rows
                for part in bench.parts
                for batch in bench.tree.read(part, ReadPlan(HEADER, tags=frozenset({"TagA"})))
            ),
            bench.tree.group_by_tag_hash(TOPICS[0])[2598919],
        ),
        "walk of the whole log": bench.walk,
    }


def ratios_of(best: dict[str, Cost]) -> list[tuple[str, float, str]]:
    """What the figures come to, beside the goals."""

    def bytes_per_second(name: str) -> float:
        return best[name].size / best[name].seconds

    def rate(name: str) -> float:
        return best[name].rows / best[name].seconds

    copy = bytes_per_second("copy of the bytes (limit)")
    return [
        ("14 columns / struct loop", rate("14 columns") / rate("struct loop, 14 columns"), "≥ 12"),
        ("full row / struct loop", rate("full row (22 columns)") / rate("struct loop, full row"), "≥ 12"),
        ("14 columns / copy of the bytes", bytes_per_second("14 columns") / copy, "≥ 0.15"),
        ("full row / copy of the bytes", bytes_per_second("full row (22 columns)") / copy, ""),
        ("14 columns, GB a core-second", bytes_per_second("14 columns") / 1e9, "≥ 0.8"),
        ("full row, GB a core-second", bytes_per_second("full row (22 columns)") / 1e9, ""),
        ("header columns / full row", rate("6 header columns") / rate("full row (22 columns)"), "≥ 4"),
        ("CRC, GB a core-second", bytes_per_second("body, with its CRC") / 1e9, "≥ 0.4"),
        ("group by tag hash, M entries a core-second", rate("group by tag hash, from queue files") / 1e6, "≥ 20"),
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks spark parser", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=600_000, help="in the store (default %(default)s)")
    parser.add_argument("--body", type=int, default=512, help="bytes of a body (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each row (default %(default)s)")
    parser.add_argument("--batch-bytes", type=int, default=ReadPlan(()).batch_bytes)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="rows to measure; repeatable")
    parser.add_argument("--profile", action="store_true", help="profile the full row, and nothing else")
    parser.add_argument("--dir", type=Path, help="make the store there and keep it, or use the one that is there")
    given = parser.parse_args(words)
    pa.set_cpu_count(1)
    directory = given.dir or Path(tempfile.mkdtemp(prefix="rocketd-benchmarks-"))
    try:
        if not (directory / "commitlog").exists():
            write_store(
                directory,
                islice(messages(given.messages, given.body), given.messages),
                log_file_size=LOG_FILE_SIZE,
                queue_file_size=6_000_000,
            )
        bench = Bench(str(directory), given.batch_bytes)
        if given.profile:
            _profile(bench)
            return 0
        measured = _measure(bench, given.rounds, given.only)
    finally:
        if given.dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"{bench.rows} messages of {bench.size / bench.rows:.0f} bytes\n")
    print(f"{'':40} M rows/core-s  MB/core-s")
    for name, cost in measured.items():
        print(f"{name:40}      {cost}")
    if not given.only:
        print()
        for name, value, goal in ratios_of(measured):
            print(f"{name:44} {value:8.2f}   {goal}")
    return 0


def _measure(bench: Bench, rounds: int, only: Sequence[str]) -> dict[str, Cost]:
    rows = {name: row for name, row in rows_of(bench).items() if not only or any(pattern in name for pattern in only)}
    best: dict[str, Cost] = {}
    for _ in range(rounds):
        for name, row in rows.items():
            cost = row()
            if name not in best or cost.size / cost.seconds > best[name].size / best[name].seconds:
                best[name] = cost
    return best


def _profile(bench: Bench) -> None:
    bench.read(DEFAULT_COLUMNS)
    profiler = cProfile.Profile()
    profiler.enable()
    cost = bench.read(DEFAULT_COLUMNS)
    profiler.disable()
    print(cost)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    sys.exit(main())
