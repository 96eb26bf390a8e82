"""The processes of a comparison: a driver for each side, and what a query costs in them and in the brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.generator import MeasurementError
from benchmarks.spark.process_tree import SessionUsage
from benchmarks.usage import cpu_seconds

_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cost:
    """What one pass of a query took, in seconds: CPU of driver, JVM and Python; CPU of the broker; wall time."""

    spark: float
    broker: float
    wall: float


class SparkSide:
    """One side's driver process, with the broker that it reads from."""

    def __init__(self, name: str, words: Sequence[str], scratch: Path, broker: int | None) -> None:
        """Start the driver with these arguments; ``broker`` is the broker's process id, where CPU of it counts."""
        self.name = name
        self._broker = broker
        scratch.mkdir(parents=True, exist_ok=True)
        self._log = scratch / "driver.log"
        command = [sys.executable, "-m", "benchmarks.spark.driver", name, "--scratch", str(scratch), *words]
        environment = {**os.environ, "PYTHONPATH": str(_CHECKOUT)}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=_CHECKOUT,
                env=environment,
                start_new_session=True,
            )
        self._usage = SessionUsage(self._process.pid)
        self._read("the start")

    def run(self, query: str, rows: int | None = None) -> Cost:
        """One pass; MeasurementError when it fails, or counts other than ``rows`` rows."""
        spark, broker = self._spent()
        assert self._process.stdin is not None
        self._process.stdin.write(f"{query}\n")
        self._process.stdin.flush()
        answer = self._read(query)
        if rows is not None and answer["rows"] not in (None, rows):
            raise MeasurementError(f"{self.name}: {query} saw {answer['rows']} rows of {rows}")
        after = self._spent()
        return Cost(after[0] - spark, after[1] - broker, float(answer["wall"]))

    def stop(self) -> None:
        """End the driver and everything that it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._usage.stop()

    def _spent(self) -> tuple[float, float]:
        return self._usage.cpu_seconds(), 0.0 if self._broker is None else cpu_seconds(self._broker)

    def _read(self, what: str) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                answer = json.loads(line.removeprefix("answer "))
                if "error" in answer:
                    raise MeasurementError(f"{self.name}: {what} failed\n{answer['error']}")
                return dict(answer)
        raise MeasurementError(f"{self.name}: the driver ended in {what}\n{self._log.read_text()[-3000:]}")
