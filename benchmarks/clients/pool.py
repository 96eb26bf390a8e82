"""The client processes of a run, each started when it is first asked."""

from __future__ import annotations

from pathlib import Path

from benchmarks.clients.programs import Program, RunningProgram
from benchmarks.generator import MeasurementError
from benchmarks.measurement import Measurement

TRIES = 4


class Clients:
    """The running programs by the names of their clients. One that ends is started again: the wheel's does at times."""

    def __init__(self, known: dict[str, Program], namesrv: str, directory: Path) -> None:
        """Start none yet."""
        self._known = known
        self._namesrv = namesrv
        self._directory = directory
        self._running: dict[str, RunningProgram] = {}
        self.remarks: list[str] = []

    def measure(self, client: str, load: str, limit: float) -> Measurement:
        """Measure one load of one client; MeasurementError when it cannot do it, or ends at each of some tries."""
        for _ in range(TRIES - 1):
            try:
                return self._program(client).measure(load, limit)
            except MeasurementError as e:
                if client not in self._running or self._running[client].alive:
                    raise
                self.remarks.append(f"{load}: {e}")
        return self._program(client).measure(load, limit)

    def _program(self, client: str) -> RunningProgram:
        program = self._running.get(client)
        if program is None or not program.alive:
            name = f"bench_{client}_{len(self.remarks)}"
            program = RunningProgram(self._known[client], self._namesrv, name, self._directory)
            self._running[client] = program
        return program

    def stop(self) -> None:
        """End them all."""
        for program in self._running.values():
            program.stop()
