"""How one row is measured once at one side: a function for each kind of row, and what has to be there before.

Each returns the values by their keys, and remarks in words on what was not as it should be (refusals, losses). Every
call is bounded in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.clients.station import ClientStation
from benchmarks.figures import ANONYMOUS, IDLE, LOST, START_CPU, START_WALL
from benchmarks.generator import Generator, MeasurementError
from benchmarks.measurement import Measurement, Settings, of_result
from benchmarks.rows import Kind, Row
from benchmarks.servers import START_LIMIT, Side
from benchmarks.targets import OVERHEAD, Target, Targets
from benchmarks.usage import anonymous_mb, cpu_seconds

_FILL_LIMIT = 200.0  # seconds
_IDLE_SECONDS = 10.5  # one registration
_MANY = "1000"  # passes over the topic: as many as the time allows

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
_FIRST_BROKER = frozenset({Kind.LOAD, Kind.PULL, Kind.ROUTE, Kind.MEMORY})


class Station:
    """One side, the generator pointed at it, and what is already prepared there."""

    def __init__(
        self, side: Side, generator: Generator, settings: Settings, clients: ClientStation | None = None
    ) -> None:
        """Take servers that are started by whoever made them, and the clients if rows of them are measured."""
        self.side = side
        self._generator = generator
        self._settings = settings
        self._clients = clients
        self._targets = Targets(side, generator, settings.warm_up)
        self._acknowledged = 0
        self._kinds: dict[Kind, Callable[[Row], Measurement]] = {
            Kind.LOAD: self._load,
            Kind.PULL: self._pull,
            Kind.ROUTE: self._load,
            Kind.FLUSH: self._further,
            Kind.REPLICATION: self._further,
            Kind.CLIENT: self._client,
            Kind.MEMORY: self._memory,
            Kind.IDLE: self._idle,
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
        if kinds & _FIRST_BROKER:
            for share, arguments in plan:
                seconds = share * self._settings.warm_up
                if seconds > 0:
                    self.drive((arguments[0], "-topic", "Warm", *arguments[1:]), seconds)
        if Kind.RECOVERY in kinds:
            broker = self.side.spawn("broker-recovered")
            self.side.await_route(broker, self.side.address("broker-recovered"))
            self._acknowledged = self._fill("broker-recovered", "Big", self._settings.recovery_messages)
            self.side.kill("broker-recovered")
        for kind in sorted(kinds & {Kind.FLUSH, Kind.REPLICATION}, key=lambda kind: kind.name):
            self._targets.get(kind)

    def measure(self, row: Row) -> Measurement:
        """Measure it once; MeasurementError, ServerError or OSError when that fails."""
        return self._kinds[row.kind](row)

    def drive(self, arguments: tuple[str, ...], seconds: float, target: Target | None = None) -> dict[str, Any]:
        """Run the generator against a broker, or the name server in mode ``ns``; the arguments win over the rest."""
        side = self.side
        mode, *flags = arguments
        if mode == "ns":
            given = ["-addr", side.namesrv_address, "-broker", side.broker_address, "-pid", str(side.pid("namesrv"))]
        else:
            chosen = target or Target(side.broker_address, ("broker-a",))
            given = ["-addr", chosen.address, "-pid", chosen.pids(side)]
        return self._generator.run([mode, *given, "-d", f"{seconds:.3f}s", *flags], seconds + OVERHEAD)

    def _fill(self, broker: str, topic: str, messages: int) -> int:
        """Send so many messages of 1 KB to a topic, in batches; returns how many were acknowledged."""
        arguments = ["batch", "-addr", self.side.address(broker), "-topic", topic, "-c", "4", "-k", "32"]
        limit = ["-n", str(messages), "-d", f"{_FILL_LIMIT:g}s"]
        return int(self._generator.run([*arguments, *limit], _FILL_LIMIT + OVERHEAD)["ops"])

    def _load(self, row: Row) -> Measurement:
        return of_result(self.drive(row.arguments, self._settings.seconds))

    def _pull(self, row: Row) -> Measurement:
        return of_result(self.drive((*row.arguments, "-passes", _MANY), self._settings.seconds))

    def _further(self, row: Row) -> Measurement:
        return of_result(self.drive(row.arguments, self._settings.seconds, self._targets.get(row.kind)))

    def _client(self, row: Row) -> Measurement:
        assert self._clients is not None
        return self._clients.measure(row, self.side.name)

    def _memory(self, row: Row) -> Measurement:
        return Measurement({ANONYMOUS.key: anonymous_mb(self.side.pid("broker-a"))})

    def _idle(self, row: Row) -> Measurement:
        pids = [self.side.pid(server) for server in ("broker-a", "namesrv")]
        before = sum(map(cpu_seconds, pids))
        begin = time.monotonic()
        time.sleep(_IDLE_SECONDS)
        used = sum(map(cpu_seconds, pids)) - before
        return Measurement({IDLE.key: used / (time.monotonic() - begin) * 1e3})

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
            result = self._generator.run(arguments, START_LIMIT + OVERHEAD)
            if process.exit_code is not None:
                raise MeasurementError(f"{process.name} ended with {process.exit_code}:\n{process.tail()}")
            figures = {START_CPU.key: cpu_seconds(process.pid), START_WALL.key: result["seconds"]}
            return Measurement(figures), int(result.get("stored", 0))
        finally:
            self.side.kill(broker)
