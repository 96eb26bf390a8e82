"""``python -m benchmarks recovery``: what a start costs on stores of 1, 10 and 100 GB, by how the broker ended before.

For each size both sides have a store of the same records (``benchmarks.big_store``). In each round each side's broker takes
the same number of messages before each end, so that what is not flushed is as much at every size, and is then
stopped, or killed right behind the last answer, or killed and left as after a power cut: with an ``abort`` file that
tells nothing. Then it is started again, and its CPU and wall time are taken up to the first accepted send. All
files are in the page cache, where the machine has the memory for that.

Exit code: 0 when everything was measured, 1 when something failed, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import generator, outcome, report, run
from benchmarks.big_store import QUEUES, make_store, share_store
from benchmarks.command import FAILURES, run_directory
from benchmarks.figures import LOST, START_CPU, START_WALL, Goal
from benchmarks.generator import Generator, MeasurementError
from benchmarks.machine import Watch
from benchmarks.measurement import Measurement
from benchmarks.outcome import ROCKETD, Results
from benchmarks.rows import Kind, Row
from benchmarks.servers import START_LIMIT, Side
from benchmarks.usage import cpu_seconds
from tests.support import wire
from tests.support.apache import fetch_jars
from tests.support.process import ServerProcess

SIZES = (1, 10, 100)
TOPIC = "Big"
OPTIONS = {"mappedFileSizeCommitLog": str(1 << 30)}

_GET_MAX_OFFSET = 30
_OVERHEAD = 60.0
_LOAD_LIMIT = 120.0
_GOALS = (Goal(START_CPU), Goal(START_WALL), Goal(LOST, limit=0))
_PROBE = ("ready", "-probe", "send", "-topic", TOPIC)


class End(enum.Enum):
    """How the broker ended before the start that is measured."""

    STOPPED = "clean stop"
    KILLED = "kill -9"
    IN_DOUBT = "kill -9, `abort` empty"


def row_of(end: End, size: int) -> Row:
    """The row of one end and size."""
    return Row(f"start after {end.value}, {size} GB", Kind.RECOVERY, _PROBE, _GOALS)


class Station:
    """One side with a broker for each size."""

    def __init__(self, side: Side, load: Generator, messages: int) -> None:
        """`messages` are taken before each end."""
        self.side = side
        self._load = load
        self._messages = messages

    def broker(self, size: int) -> str:
        """Name of the broker with the store of this size."""
        return f"broker-{size}"

    def measure(self, size: int, tell: Callable[[End, Measurement], None]) -> None:
        """Start the broker, then for each end: load it, end it, and measure the start that follows."""
        broker = self.broker(size)
        address = self.side.address(broker)
        process = self.side.spawn(broker)
        try:
            # Once without looking: the first start finds a store that was made, not left.
            self._await_send(process, address, time.time())
            for end in End:
                before = self._fill(address)
                if end is End.STOPPED:
                    self.side.end(broker)
                else:
                    self.side.kill(broker)
                if end is End.IN_DOUBT:
                    (self.side.store(broker) / "abort").write_bytes(b"")
                begin = time.time()
                process = self.side.spawn(broker)
                wall = self._await_send(process, address, begin)
                cpu = cpu_seconds(process.pid)
                lost = max(0, before - _stored(address) + 1)
                remarks = (f"lost {lost} of {before} messages",) if lost else ()
                tell(end, Measurement({START_CPU.key: cpu, START_WALL.key: wall, LOST.key: lost}, remarks))
        finally:
            with contextlib.suppress(KeyError):  # not up
                self.side.kill(broker)

    def _fill(self, address: str) -> int:
        """Send so many messages of 1 KB; returns how many the broker must have afterwards."""
        before = _stored(address)
        arguments = ["batch", "-addr", address, "-topic", TOPIC, "-c", "4", "-k", "32"]
        limit = ["-n", str(self._messages), "-d", f"{_LOAD_LIMIT:g}s"]
        return before + int(self._load.run([*arguments, *limit], _LOAD_LIMIT + _OVERHEAD)["ops"])

    def _await_send(self, process: ServerProcess, address: str, begin: float) -> float:
        """Seconds from `begin`, Unix time, until a message was accepted."""
        arguments = [*_PROBE, "-addr", address, "-since", f"{begin:.6f}", "-d", f"{START_LIMIT:g}s"]
        result = self._load.run(arguments, START_LIMIT + _OVERHEAD)
        if process.exit_code is not None:
            raise MeasurementError(f"{process.name} ended with {process.exit_code}:\n{process.tail()}")
        return float(result["seconds"])


def _stored(address: str) -> int:
    """The sum of the queues' ends; WireError when the broker does not say."""
    total = 0
    for queue in range(QUEUES):
        answer = wire.call(address, _GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue)})
        if answer.code != wire.SUCCESS:
            raise wire.WireError(f"{address} does not say where queue {queue} ends: {answer.code} {answer.remark}")
        total += int(answer.ext_fields["offset"])
    return total


def table(results: Results, sizes: Sequence[int]) -> str:
    """A line for each end and size; more is better in the columns of ratios, and ``÷ smallest`` is rocketd's CPU over
    that at the smallest size.
    """
    header = ["start after", "GB", "rocketd CPU s", "wall s", "÷ smallest", "Apache CPU s", "wall s", "CPU x", "wall x"]
    lines = []
    for end in End:
        smallest = results.median(row_of(end, sizes[0]), ROCKETD, START_CPU)
        for size in sizes:
            row = row_of(end, size)
            cpu, wall = results.medians(row, START_CPU), results.medians(row, START_WALL)
            growth = cpu[0] / smallest if cpu[0] and smallest else None
            line = [end.value, str(size), report.number(cpu[0]), report.number(wall[0]), report.times(growth)]
            line += [report.number(cpu[1]), report.number(wall[1])]
            lines.append([*line, report.times(_ratio(cpu)), report.times(_ratio(wall))])
    return report.table(header, lines)


def _ratio(medians: tuple[float | None, float | None]) -> float | None:
    rocketd, apache = medians
    return apache / rocketd if rocketd and apache else None


def _run(given: argparse.Namespace, names: Sequence[str], directory: Path) -> Results:
    results = Results([row_of(end, size) for end in End for size in given.sizes])
    load = generator.build(directory)
    with run.started(names, directory, OPTIONS, Side.start_namesrv) as sides:
        stations = [Station(side, load, given.messages) for side in sides]
        for size in given.sizes:
            first, *others = [station.side.store(station.broker(size)) for station in stations]
            print(f"making {make_store(first, TOPIC, size)}", flush=True)
            for other in others:
                share_store(first, other)
        for number in range(given.rounds):
            for size in given.sizes:
                for station in stations if number % 2 == 0 else reversed(stations):
                    _measure(results, station, size, f"round {number + 1}  {size:4} GB")
        for side in sides:
            results.failures += [
                f"{side.name}: {count} tracebacks in {log}" for log, count in side.tracebacks().items()
            ]
    return results


def _measure(results: Results, station: Station, size: int, what: str) -> None:
    """Measure all ends of one size at one side; what fails is noted."""
    name = station.side.name

    def tell(end: End, measurement: Measurement) -> None:
        results.add(row_of(end, size), name, measurement)
        figures = "  ".join(f"{key} {value:,.3g}" for key, value in measurement.figures.items())
        print(f"{what}  {end.value:22} {name:8} {figures}", flush=True)

    try:
        station.measure(size, tell)
    except FAILURES as e:
        results.fail(f"{what}, {name}", e)
        print(f"{what}  {name:8} FAILED: {e}", flush=True)


def _sizes(text: str) -> list[int]:
    sizes = sorted({int(part) for part in text.split(",")})
    if sizes[0] < 1:
        raise argparse.ArgumentTypeError("sizes are 1 or more")
    return sizes


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks recovery", description=__doc__.partition(": ")[2][:74])
    parser.add_argument("--sizes", type=_sizes, default=list(SIZES), metavar="GB,GB", help="default 1,10,100")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--messages", type=int, default=20_000, help="of 1 KB, before each end (default 20000)")
    parser.add_argument("--sides", choices=[*run.SIDES, "both"], default="both", help="measure only one of them")
    parser.add_argument("--dir", type=Path, help="keep stores and logs in this new directory (default: temporary)")
    given = parser.parse_args(arguments)
    if given.dir is not None and given.dir.exists():
        parser.error(f"{given.dir} exists; the stores must be new")
    names = run.SIDES if given.sides == "both" else (given.sides,)
    with run_directory("recovery", given.dir) as directory:
        if outcome.APACHE in names:
            fetch_jars()
        watch = Watch()
        results = _run(given, names, directory)
    settings = {"sizes": given.sizes, "rounds": given.rounds, "messages": given.messages, "options": OPTIONS}
    form = {"settings": settings, **results.as_json()}
    return watch.publish(form, table(results, given.sizes), results.remarks, results.failures)
