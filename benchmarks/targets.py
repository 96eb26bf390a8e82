"""Brokers beside the first one of a side, for rows that need other settings: started when a row first asks, and kept.

A target is the address of a server, and the processes whose CPU time counts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.generator import Generator, MeasurementError
from benchmarks.rows import Kind
from benchmarks.servers import START_LIMIT, Side

OVERHEAD = 90.0
"""Seconds that a run of the generator may take beside the load: connecting, waiting for the answers."""

TOPIC = "Safe"
_PROBE_SECONDS = 0.3
_SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
_MASTER = {"brokerRole": "SYNC_MASTER", "brokerName": "replicated"}
_SLAVE = {"brokerRole": "SLAVE", "brokerName": "replicated", "brokerId": "1"}

# Loads of the warm-up of each, and their shares of its time.
_WARM_UP = {
    Kind.FLUSH: ((0.5, ("-c", "32", "-w", "1")),),
    Kind.REPLICATION: ((0.4, ("-c", "32", "-w", "1")), (0.2, ("-c", "1", "-w", "1"))),
}


@dataclass(frozen=True)
class Target:
    """An address, and the names of its servers on the side."""

    address: str
    servers: tuple[str, ...]

    def pids(self, side: Side) -> str:
        """Their process ids, as the generator takes them; ServerError if one has ended."""
        return ",".join(str(side.pid(server)) for server in self.servers)


class Targets:
    """The further brokers of one side."""

    def __init__(self, side: Side, generator: Generator, warm_up: float) -> None:
        """``warm_up`` is that of the first broker, in seconds; these get a share of it."""
        self._side = side
        self._generator = generator
        self._warm_up = warm_up
        self._known: dict[Kind, Target] = {}

    def get(self, kind: Kind) -> Target:
        """The target of this kind of rows; the first call starts and warms it."""
        if kind not in self._known:
            target = self._flush() if kind is Kind.FLUSH else self._replicated()
            for share, flags in _WARM_UP[kind]:
                if self._warm_up > 0:
                    self._send(target, flags, share * self._warm_up)
            self._known[kind] = target
        return self._known[kind]

    def _flush(self) -> Target:
        with self._killed_on_failure("broker-flush"):
            self._start("broker-flush", _SYNC_FLUSH)
        return Target(self._side.address("broker-flush"), ("broker-flush",))

    def _replicated(self) -> Target:
        with self._killed_on_failure("broker-slave", "broker-master"):
            self._start("broker-master", _MASTER)
            self._start("broker-slave", _SLAVE)
            target = Target(self._side.address("broker-master"), ("broker-master", "broker-slave"))
            deadline = time.monotonic() + START_LIMIT
            while set(codes := self._send(target, ("-c", "1"), _PROBE_SECONDS)) != {"0"}:
                if time.monotonic() > deadline:
                    raise MeasurementError(f"{self._side.name}: the master does not find its slave, codes {codes}")
        return target

    def _start(self, broker: str, own: dict[str, str]) -> None:
        self._side.await_route(self._side.spawn(broker, own), self._side.address(broker))

    @contextlib.contextmanager
    def _killed_on_failure(self, *brokers: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for broker in brokers:
                with contextlib.suppress(KeyError):  # not started
                    self._side.kill(broker)
            raise

    def _send(self, target: Target, flags: tuple[str, ...], seconds: float) -> dict[str, int]:
        """Send for so long, and return the answers' codes."""
        arguments = ["send", "-topic", TOPIC, "-addr", target.address, *flags, "-d", f"{seconds:.3f}s"]
        return dict(self._generator.run(arguments, seconds + OVERHEAD)["codes"])
