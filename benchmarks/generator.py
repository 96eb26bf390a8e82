"""The load generator in ``loadgen``: built with Go, run as a process of its own, its JSON line read.

It knows neither side; both get exactly the same load from it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SOURCES = Path(__file__).with_name("loadgen")


class MeasurementError(RuntimeError):
    """One measurement failed; the message says how. The others go on."""


class Generator:
    """The built program."""

    def __init__(self, program: Path) -> None:
        """Take the path of the executable."""
        self._program = program

    def run(self, arguments: Sequence[str], limit: float) -> dict[str, Any]:
        """Run it to its end and return its JSON line; MeasurementError when it fails or takes over ``limit`` seconds."""
        with self.running(arguments, limit) as run:
            return run.result()

    @contextmanager
    def running(self, arguments: Sequence[str], limit: float) -> Iterator[Run]:
        """Start it beside whatever is done inside; it is ended on the way out if it still runs then."""
        child = subprocess.Popen(
            [str(self._program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Run(child, " ".join(arguments), time.monotonic() + limit)
        finally:
            if child.poll() is None:
                child.kill()
            child.communicate()


class Run:
    """One run under way."""

    def __init__(self, child: subprocess.Popen[str], what: str, deadline: float) -> None:
        """Take the process, what it was asked, and when (``time.monotonic``) it has to be done."""
        self._child = child
        self._what = what
        self._deadline = deadline

    def result(self) -> dict[str, Any]:
        """Wait for the end and return the JSON line; MeasurementError when that is no success."""
        try:
            output, errors = self._child.communicate(timeout=max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"loadgen {self._what}: not done in its time") from None
        if self._child.returncode == 0:
            return dict(json.loads(output))
        said = errors.strip()
        if output.strip():
            said = f"{json.loads(output).get('error', '')} {said}".strip()
        raise MeasurementError(f"loadgen {self._what}: {said or f'exit code {self._child.returncode}'}")


def build(directory: Path) -> Generator:
    """Build it into ``directory``; MeasurementError when Go is missing or the build fails."""
    if shutil.which("go") is None:
        raise MeasurementError("the load generator needs Go, which is not in PATH")
    program = directory / "loadgen"
    done = subprocess.run(["go", "build", "-o", str(program), "."], cwd=_SOURCES, capture_output=True, text=True)
    if done.returncode != 0:
        raise MeasurementError(f"go build of the load generator failed:\n{done.stdout}{done.stderr}")
    return Generator(program)
