"""``python -m benchmarks brokers``: ``rocketd up --brokers N`` for N = 1, 2, beside one broker of Apache, on the same cores.

All servers are up, and one variant is driven at any moment, in turn. The connections of a load are shared among the
brokers of a variant. CPU is that of all its processes; with ``up``, the name server is one of them.

Exit code: 0 when everything was measured, 1 when something failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import generator, run
from benchmarks.command import FAILURES, run_directory
from benchmarks.generator import Generator
from benchmarks.machine import Watch
from benchmarks.outcome import APACHE
from benchmarks.rows import matches
from benchmarks.servers import SETTINGS, START_LIMIT, RocketdLauncher
from benchmarks.side_by_side import Variants
from benchmarks.together import Brokers, drive
from tests.support import wire
from tests.support.apache import fetch_jars
from tests.support.ports import free_broker_port, free_port
from tests.support.process import ServerError, ServerProcess

CONNECTIONS = 8
LOADS = {
    "send 1 KB C=8 W=64": ("send", "-topic", "Load", "-w", "64"),
    "send 1 KB C=8 W=1": ("send", "-topic", "Load", "-w", "1"),
    "batch 32 x 1 KB C=8": ("batch", "-topic", "Load", "-k", "32", "-w", "1"),
    "pull of 32 C=8 W=1": ("pull", "-topic", "Pull", "-m", "32", "-w", "1", "-passes", "1000"),
    "pull of 1 C=8 W=1": ("pull", "-topic", "Pull", "-m", "1", "-w", "1", "-passes", "1000"),
}
_PORT_DISTANCE = 10  # between the brokers of ``up``
_FILL = ("batch", "-topic", "Pull", "-k", "32", "-n", "100000")
_FILL_SECONDS = 100.0
_PAUSE = 0.5


@contextlib.contextmanager
def brokers_up(count: int, directory: Path) -> Iterator[Brokers]:
    """Run ``rocketd up --brokers COUNT`` from this checkout; ServerError if it does not serve."""
    directory.mkdir(parents=True)
    namesrv, port = free_port(), free_broker_port(count)
    options = {key: SETTINGS[key] for key in ("brokerIP1", "autoCreateTopicEnable", "mappedFileSizeCommitLog")}
    process = RocketdLauncher(directory.parent).up(
        directory, ("--namesrv-port", str(namesrv), "--broker-port", str(port), "--brokers", str(count)), options
    )
    addresses = tuple(f"127.0.0.1:{port + _PORT_DISTANCE * number}" for number in range(count))
    try:
        for address in addresses:
            process.wait_for(
                f"{address} is in the route", lambda a=address: wire.has_broker(f"127.0.0.1:{namesrv}", a), START_LIMIT
            )
        yield Brokers(addresses, family(process.pid))
    finally:
        _end(process)


def _end(process: ServerProcess) -> None:
    # With SIGTERM first: the brokers of several end with it.
    with contextlib.suppress(ServerError):
        process.stop(60.0)


def family(pid: int) -> tuple[int, ...]:
    """The process and all its descendants."""
    parents = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                stat = Path(f"/proc/{name}/stat").read_text()
                parents[int(name)] = int(stat[stat.rindex(")") + 2 :].split()[1])
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return tuple(found)


@contextlib.contextmanager
def _variants(counts: Sequence[int], with_apache: bool, directory: Path) -> Iterator[dict[str, Brokers]]:
    with contextlib.ExitStack() as stack:
        found: dict[str, Brokers] = {}
        if with_apache:
            (side,) = stack.enter_context(run.started([APACHE], directory, {}))
            found[APACHE] = Brokers((side.broker_address,), (side.pid("broker-a"),))
        for count in counts:
            found[f"N={count}"] = stack.enter_context(brokers_up(count, directory / f"up-{count}"))
        yield found


def _measure(given: argparse.Namespace, rows: Sequence[str], load: Generator, directory: Path) -> Variants:
    with _variants(given.counts, given.sides == "both", directory) as variants:
        results = Variants(list(variants), next(iter(variants)))
        for name, brokers in variants.items():
            print(f"preparing {name}", flush=True)
            drive(load, brokers, _FILL, CONNECTIONS, _FILL_SECONDS)
            for arguments in LOADS.values():
                if given.warm > 0:
                    drive(load, brokers, arguments, CONNECTIONS, given.warm / len(LOADS))
        for number in range(given.rounds):
            for row in rows:
                for name in variants if number % 2 == 0 else reversed(variants):
                    time.sleep(_PAUSE)
                    what = f"round {number + 1}  {row}, {name}"
                    try:
                        measured = drive(load, variants[name], LOADS[row], CONNECTIONS, given.seconds)
                    except FAILURES as e:
                        results.failures.append(f"{what}: {e}")
                        continue
                    results.add(row, name, measured)
                    figures = "  ".join(f"{key} {value:,.3g}" for key, value in measured.figures.items())
                    print(f"{what:40} {figures}", flush=True)
    return results


def _counts(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if not all(1 <= count <= CONNECTIONS for count in counts):
        raise argparse.ArgumentTypeError(f"accepted are numbers from 1 to {CONNECTIONS}")
    return counts


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks brokers", description="Compare several brokers of rocketd with one of Apache."
    )
    parser.add_argument(
        "--counts", type=_counts, default=[1, 2], metavar="N,N", help="numbers of brokers (default 1,2)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--rows", action="append", default=[], metavar="PATTERN", help="rows to run; repeatable")
    parser.add_argument("--seconds", type=float, default=2.5, help="length of a load (default 2.5)")
    parser.add_argument("--warm", type=float, default=24.0, help="seconds of warm-up of each variant (default 24)")
    parser.add_argument("--sides", choices=["rocketd", "both"], default="both", help="without Apache's broker")
    given = parser.parse_args(arguments)
    rows = [name for name in LOADS if matches(name, given.rows)]
    if not rows:
        parser.error(f"no row matches; there are: {', '.join(LOADS)}")
    with run_directory("brokers") as directory:
        load = generator.build(directory)
        if given.sides == "both":
            fetch_jars()
        watch = Watch()
        results = _measure(given, rows, load, directory)
    settings = {name: getattr(given, name) for name in ("counts", "rounds", "seconds", "warm", "sides")}
    form = {"settings": settings, **results.as_json(rows)}
    return watch.publish(form, results.table(rows), results.remarks, results.failures)
