"""How one row is measured once at one side: a function for each kind of row, and what has to be there before.

Each returns the figures by their keys, and remarks in words on what was not as it should be (refusals, losses). Every
call is bounded in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.figures import ANONYMOUS, CPU, LOST, P50, P99, RATE, START_CPU, START_WALL
from benchmarks.generator import Generator, MeasurementError
from benchmarks.rows import Kind, Row
from benchmarks.servers import START_LIMIT, Side
from benchmarks.usage import anonymous_mb, cpu_seconds

_OVERHEAD = 90.0  # seconds that a run of the generator may take beside the load: connecting, waiting for the answers
_FILL_LIMIT = 200.0  # seconds
_MANY = "1000"  # passes over the topic: as many as the time allows
_SUCCESS = "0"

# What brings a JVM to its steady state, and the share of the warm-up's time; both sides get it.
_WARM_UP = (
    (0.50, ("send", "-c", "8", "-w", "64")),
    (0.15, ("send", "-c", "8", "-w", "1")),
    (0.10, ("send", "-c", "1", "-w", "1", "-header", "rocketmq")),
    (0.15, ("batch", "-c", "4", "-k", "32")),
)
_WARM_UP_PULL = (0.05, ("pull", "-topic", "Pull", "-m", "32", "-c", "8", "-passes", _MANY))
_WARM_UP_PULL_ONE = (0.05, ("pull", "-topic", "Pull", "-m", "1", "-c", "8", "-passes", _MANY))
_WARM_UP_ROUTE = (0.10, ("ns", "-topic", "Load", "-c", "8", "-w", "8"))


@dataclass(frozen=True)
class Settings:
    """How long and how much: seconds of a load, of the warm-up, messages to fill the topics with."""

    seconds: float = 2.5
    warm_up: float = 24.0
    pull_messages: int = 200_000
    recovery_messages: int = 200_000


@dataclass(frozen=True)
class Measurement:
    """What one measurement gave: figures by key, and remarks."""

    figures: dict[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


class Station:
    """One side, the generator pointed at it, and what is already prepared there."""

    def __init__(self, side: Side, generator: Generator, settings: Settings) -> None:
        """Take servers that are started by whoever made them."""
        self.side = side
        self._generator = generator
        self._settings = settings
        self._acknowledged = 0
        self._kinds: dict[Kind, Callable[[Row], Measurement]] = {
            Kind.LOAD: self._load,
            Kind.PULL: self._pull,
            Kind.ROUTE: self._route,
            Kind.MEMORY: self._memory,
            Kind.START: self._start,
            Kind.RECOVERY: self._recovery,
        }

    def prepare(self, kinds: set[Kind]) -> None:
        """Fill what the rows of these kinds read, warm the servers up, and leave a killed broker to recover."""
        plan = list(_WARM_UP)
        if Kind.PULL in kinds:
            self._fill("broker-a", "Pull", self._settings.pull_messages)
            plan += [_WARM_UP_PULL, _WARM_UP_PULL_ONE]
        if Kind.ROUTE in kinds:
            plan.append(_WARM_UP_ROUTE)
        if kinds & {Kind.LOAD, Kind.PULL, Kind.ROUTE, Kind.MEMORY}:
            for share, arguments in plan:
                seconds = share * self._settings.warm_up
                if seconds > 0:
                    self._drive((arguments[0], "-topic", "Warm", *arguments[1:]), seconds)
        if Kind.RECOVERY in kinds:
            broker = self.side.spawn("broker-recovered")
            self.side.await_route(broker, self.side.address("broker-recovered"))
            self._acknowledged = self._fill("broker-recovered", "Big", self._settings.recovery_messages)
            self.side.kill("broker-recovered")

    def measure(self, row: Row) -> Measurement:
        """Measure it once; MeasurementError, ServerError or OSError when that fails."""
        return self._kinds[row.kind](row)

    def _drive(self, arguments: tuple[str, ...], seconds: float) -> dict[str, Any]:
        """Run the generator against the broker, or the name server in mode ``ns``; the arguments win over the rest."""
        side = self.side
        mode, *flags = arguments
        if mode == "ns":
            given = ["-addr", side.namesrv_address, "-broker", side.broker_address, "-pid", str(side.pid("namesrv"))]
        else:
            given = ["-addr", side.broker_address, "-pid", str(side.pid("broker-a"))]
        return self._generator.run([mode, *given, "-d", f"{seconds:.3f}s", *flags], seconds + _OVERHEAD)

    def _fill(self, broker: str, topic: str, messages: int) -> int:
        """Send so many messages of 1 KB to a topic, in batches; returns how many were acknowledged."""
        arguments = ["batch", "-addr", self.side.address(broker), "-topic", topic, "-c", "4", "-k", "32"]
        limit = ["-n", str(messages), "-d", f"{_FILL_LIMIT:g}s"]
        return int(self._generator.run([*arguments, *limit], _FILL_LIMIT + _OVERHEAD)["ops"])

    def _load(self, row: Row) -> Measurement:
        return of_result(self._drive(row.arguments, self._settings.seconds))

    def _pull(self, row: Row) -> Measurement:
        return of_result(self._drive((*row.arguments, "-passes", _MANY), self._settings.seconds))

    def _route(self, row: Row) -> Measurement:
        return self._load(row)

    def _memory(self, row: Row) -> Measurement:
        return Measurement({ANONYMOUS.key: anonymous_mb(self.side.pid("broker-a"))})

    def _start(self, row: Row) -> Measurement:
        # A name of its own each time, so that the store is empty; the directory goes with the run's.
        broker = f"broker-{time.monotonic_ns()}"
        return self._time_start(broker, row)[0]

    def _recovery(self, row: Row) -> Measurement:
        measurement, stored = self._time_start("broker-recovered", row)
        lost = max(0, self._acknowledged - stored)
        remarks = (f"lost {lost} of {self._acknowledged} acknowledged messages",) if lost else ()
        return Measurement({**measurement.figures, LOST.key: lost}, remarks)

    def _time_start(self, broker: str, row: Row) -> tuple[Measurement, int]:
        address = self.side.address(broker)
        begin = time.time()
        process = self.side.spawn(broker)
        try:
            mode, *flags = row.arguments
            arguments = [mode, "-addr", address, "-since", f"{begin:.6f}", "-d", f"{START_LIMIT:g}s", *flags]
            result = self._generator.run(arguments, START_LIMIT + _OVERHEAD)
            if process.exit_code is not None:
                raise MeasurementError(f"{process.name} ended with {process.exit_code}:\n{process.tail()}")
            figures = {START_CPU.key: cpu_seconds(process.pid), START_WALL.key: result["seconds"]}
            return Measurement(figures), int(result.get("stored", 0))
        finally:
            self.side.kill(broker)


def of_result(result: dict[str, Any]) -> Measurement:
    """The figures and remarks that are in one line of the load generator."""
    extra = result.get("extra", {})
    lost = int(extra.get("not_stored", 0))
    figures = {
        CPU.key: result.get("server_us_per_op", 0.0),
        RATE.key: result["ops_per_s"],
        P50.key: float(result["p50_us"]),
        P99.key: float(result["p99_us"]),
        LOST.key: float(lost),
    }
    remarks = []
    if lost:
        remarks.append(f"lost {lost} of {result['requests']} one-way messages")
    # In e2e the codes are those of the pulls, and the sends have their own.
    for what, codes in (("requests", result.get("codes", {})), ("sends", extra.get("send_codes", {}))):
        refused = {code: count for code, count in sorted(codes.items()) if code != _SUCCESS}
        remarks += [f"{count} {what} answered with code {code}" for code, count in refused.items()]
    return Measurement(figures, tuple(remarks))
