"""``python -m benchmarks clients``: rocketd's client, Apache's Java client and the C++ client's wheel on one broker.

Each client is a process of its own that runs all the time, driven one at a time, in turn. What is compared is the CPU time
of the client's process for one message, and the rate. The loads are described in `benchmarks.clients.load`.

Exit code: 0 when everything was measured, 1 when something failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import generator, report, run
from benchmarks.clients.pool import Clients
from benchmarks.clients.programs import Program, programs
from benchmarks.command import FAILURES, run_directory
from benchmarks.machine import Watch
from benchmarks.outcome import APACHE, ROCKETD
from benchmarks.servers import Side

FIGURES = ("cpu_us", "rate", "anonymous_mb")
FULL = "ClientBenchFull"

_OVERHEAD = 20.0
_FILL_LIMIT = 200.0


@dataclass(frozen=True)
class Row:
    """A load, and who takes part: one of rocketd's faces, and the two others."""

    name: str
    load: str
    face: str


ROWS = (
    Row("sync send", "send {seconds}", "sync"),
    Row("await send", "send {seconds}", "aio"),
    Row("async send, 64 under way", "window {seconds}", "aio"),
    Row("batch of 32, sync", "batch {seconds}", "sync"),
    Row("batch of 32, asyncio", "batch {seconds}", "aio"),
    Row("push consumption, sync", f"consume {FULL} {{messages}}", "sync"),
    Row("push consumption, asyncio", f"consume {FULL} {{messages}}", "aio"),
)
PEERS = ("java", "cpp")


@dataclass
class Results:
    """Values by row, client and figure, one for each round; and what failed."""

    runs: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def median(self, row: Row, client: str, figure: str) -> float | None:
        """The median over the rounds; None when there is none."""
        values = self.runs.get((row.name, client, figure))
        return statistics.median(values) if values else None

    def times_better(self, row: Row, peer: str, figure: str) -> float | None:
        """How many times better than this peer rocketd is."""
        mine, other = self.median(row, row.face, figure), self.median(row, peer, figure)
        if not mine or not other:
            return None
        return mine / other if figure == "rate" else other / mine

    def as_json(self, rows: Sequence[Row]) -> dict[str, object]:
        """The JSON form."""
        form = []
        for row in rows:
            clients = {
                client: {figure: self.runs.get((row.name, client, figure), []) for figure in FIGURES}
                for client in (row.face, *PEERS)
            }
            ratios = {peer: {figure: self.times_better(row, peer, figure) for figure in FIGURES} for peer in PEERS}
            form.append({"name": row.name, "clients": clients, "ratios": ratios})
        return {"clients": form, "remarks": self.remarks, "failures": self.failures}


def table(results: Results, rows: Sequence[Row], chosen: Sequence[str]) -> str:
    """A line for each row; more is better in the columns of ratios, which say how many times better rocketd is."""
    peers = [(peer, name) for peer, name in zip(PEERS, ("Java", "wheel"), strict=True) if peer in chosen]
    header = ["load", "rocketd CPU µs", "/s", "MB"]
    for _, name in peers:
        header += [f"{name} CPU µs", "/s", "MB", f"CPU x {name}", f"rate x {name}"]
    lines = []
    for row in rows:
        line = [row.name, *(report.number(results.median(row, row.face, figure)) for figure in FIGURES)]
        for peer, _ in peers:
            line += [report.number(results.median(row, peer, figure)) for figure in FIGURES]
            line += [report.times(results.times_better(row, peer, figure)) for figure in ("cpu_us", "rate")]
        lines.append(line)
    return report.table(header, lines)


def _measure(given: argparse.Namespace, rows: Sequence[Row], clients: Clients, known: dict[str, Program]) -> Results:
    results = Results()
    words = {"seconds": f"{given.seconds:g}", "messages": str(given.messages)}
    limit = given.seconds + given.messages / 1000 + _OVERHEAD
    for number in range(given.rounds + 1):
        for row in rows:
            chosen = [row.face, *given.peers]
            for client in chosen if number % 2 == 0 else reversed(chosen):
                what = f"round {number}  {row.name:26} {known[client].title:16}" if number else None
                try:
                    measured = clients.measure(client, row.load.format(**words), limit)
                except FAILURES as e:
                    results.failures.append(f"{row.name}, {known[client].title}: {e}")
                    continue
                if what is None:
                    continue  # round 0 warms up
                for figure in FIGURES:
                    results.runs.setdefault((row.name, client, figure), []).append(measured.figures[figure])
                print(what, "  ".join(f"{figure} {measured.figures[figure]:,.4g}" for figure in FIGURES), flush=True)
    return results


def _run(given: argparse.Namespace, rows: Sequence[Row], directory: Path) -> Results:
    known = programs({row.face for row in rows} | set(given.peers))
    load = generator.build(directory)
    with run.started([given.broker], directory, {}, Side.start) as (side,):
        arguments = ["batch", "-addr", side.broker_address, "-topic", FULL, "-c", "4", "-k", "32"]
        load.run([*arguments, "-n", str(given.messages), "-d", f"{_FILL_LIMIT:g}s"], _FILL_LIMIT + _OVERHEAD)
        clients = Clients(known, side.namesrv_address, directory)
        try:
            results = _measure(given, rows, clients, known)
        finally:
            clients.stop()
        results.remarks += clients.remarks
        results.failures += [f"{count} tracebacks in {log}" for log, count in side.tracebacks().items()]
    return results


def _peers(text: str) -> list[str]:
    chosen = text.split(",") if text else []
    if not set(chosen) <= set(PEERS):
        raise argparse.ArgumentTypeError(f"choose from {', '.join(PEERS)}")
    return chosen


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks clients", description=__doc__.partition(": ")[2][:92])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, behind one to warm up (default 3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a load (default 4)")
    parser.add_argument("--messages", type=int, default=100_000, help="of 1 KB, to consume (default 100000)")
    parser.add_argument("--rows", action="append", default=[], metavar="PATTERN", help="rows to run; repeatable")
    parser.add_argument("--broker", choices=(ROCKETD, APACHE), default=ROCKETD, help="whose servers (default rocketd)")
    parser.add_argument("--peers", type=_peers, default=list(PEERS), help="clients to compare with (default java,cpp)")
    given = parser.parse_args(arguments)
    rows = [row for row in ROWS if not given.rows or any(pattern in row.name for pattern in given.rows)]
    if not rows:
        parser.error(f"no row matches; there are: {', '.join(row.name for row in ROWS)}")
    with run_directory("clients") as directory:
        watch = Watch()
        results = _run(given, rows, directory)
    settings = {name: getattr(given, name) for name in ("rounds", "seconds", "messages", "broker", "peers")}
    form = {"settings": settings, **results.as_json(rows)}
    return watch.publish(form, table(results, rows, given.peers), results.remarks, results.failures)
