"""The rows of clients in the big table: rocketd's client and Apache's Java client, in turn, on the same broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.clients.pool import Clients
from benchmarks.clients.programs import programs
from benchmarks.figures import CLIENT_CPU
from benchmarks.generator import Generator
from benchmarks.measurement import Measurement, Settings
from benchmarks.rows import Kind, Row
from benchmarks.servers import RocketdLauncher, Side

FULL = "ClientBenchFull"
_TOPIC = "ClientBench"  # the programs send to it
_OVERHEAD = 20.0
_FILL_LIMIT = 200.0


class ClientStation:
    """Client processes that are asked for loads; the broker that they use is the first one of ``side``."""

    def __init__(self, side: Side, generator: Generator, settings: Settings, directory: Path) -> None:
        """Start no client yet. ``directory`` gets their logs."""
        self._side = side
        self._generator = generator
        self._settings = settings
        self._clients = Clients(programs(("sync", "aio", "java")), side.namesrv_address, directory)

    def prepare(self, rows: Sequence[Row], sides: Sequence[str]) -> None:
        """Create the topics on the first broker alone, and let each client do each of its loads once."""
        for topic, messages in ((FULL, self._settings.consumed_messages), (_TOPIC, 1)):
            arguments = ["batch", "-addr", self._side.broker_address, "-topic", topic, "-c", "4", "-k", "32"]
            arguments += ["-n", str(messages), "-d", f"{_FILL_LIMIT:g}s"]
            self._generator.run(arguments, _FILL_LIMIT + _OVERHEAD)
        for row in rows:
            if row.kind is Kind.CLIENT:
                for side in sides:
                    self.measure(row, side)

    def measure(self, row: Row, side: str) -> Measurement:
        """Measure one load with the client of this side; MeasurementError if it cannot do it."""
        face, load = row.arguments
        settings = self._settings
        asked = load.format(seconds=f"{settings.seconds:g}", topic=FULL, messages=settings.consumed_messages)
        limit = settings.seconds + settings.consumed_messages / 1000 + _OVERHEAD
        figures = self._clients.measure(face if side == RocketdLauncher.name else "java", asked, limit).figures
        return Measurement({CLIENT_CPU.key: figures["cpu_us"], **figures})

    def stop(self) -> None:
        """End the clients."""
        self._clients.stop()
