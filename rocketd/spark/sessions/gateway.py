"""Starts the Java of a session, out of reach of the terminal's Ctrl-C, and filters its output.

At each start, before any setting can apply, Java warns about a module requested by Spark itself. If Java does not
start, its last lines are the only hint at the cause, and belong in the error.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from rocketd.spark.errors import SparkError

_NOISE = (
    "WARNING: Using incubator modules",
    # Warnings of Java 24 and newer, about libraries of Spark.
    "WARNING: A restricted method in",
    "WARNING: A terminally deprecated method in",
    "WARNING: Restricted methods will be blocked",
    "WARNING: Use --enable-native-access",
    "WARNING: java.lang.System::load",
    "WARNING: sun.misc.Unsafe",
    "WARNING: Please consider reporting this",
    "WARNING: package sun.security.action not in java.base",
)
_HINTS = ("Error:", "Exception", "error", "Invalid", "Unrecognized", "insufficient")


def is_noise(line: str) -> bool:
    """Tell whether a line of Java's output concerns nothing that a user did or could change."""
    return line.startswith(_NOISE)


class Sieve:
    """Copies Java's output to a file descriptor of this process, without noise; holds it back until Java has started."""

    def __init__(self, descriptor: int) -> None:
        self.held: list[str] | None = []
        reading, self.writing = os.pipe()
        self._source = os.fdopen(reading, "rb")
        self._lock = threading.Lock()
        # A duplicate: the files of sys may be closed, or replaced by a test, while Java still writes.
        try:
            self._target = os.dup(descriptor)
        except OSError:
            self._target = os.open(os.devnull, os.O_WRONLY)
        self._thread = threading.Thread(target=self._run, name=f"rocketd-java-{descriptor}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for raw in self._source:
            line = raw.decode(errors="replace")
            if is_noise(line):
                continue
            with self._lock:
                if self.held is None:
                    self._write(line)
                else:
                    self.held.append(line)

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._target, line.encode(errors="replace"))

    def let_go(self) -> None:
        """Close our copy of the writing end, so that the pipe ends with Java."""
        os.close(self.writing)

    def started(self) -> None:
        """Write the held lines, and hold nothing back from now on."""
        with self._lock:
            for line in self.held or ():
                self._write(line)
            self.held = None

    def last_words(self, seconds: float) -> list[str]:
        """Return all of Java's output, once it has ended."""
        self._thread.join(seconds)
        with self._lock:
            return [line.strip() for line in self.held or ()]


def why(lines: Iterable[str]) -> str:
    """Return the most telling lines about a failed start: the first error line and the next one, "" without any."""
    lines = [line.strip() for line in lines if line.strip()]
    for position, line in enumerate(lines):
        if any(hint in line for hint in _HINTS):
            return ": ".join(lines[position : position + 2])
    return lines[-1] if lines else ""


def start_gateway(confs: Mapping[str, str]) -> Any:
    """Start Java with these settings and return py4j's gateway. Raises SparkError with the reason given by Java."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False)
    for key, value in confs.items():
        conf.set(key, value)
    # Java reports errors of its start on standard output.
    sieves = [Sieve(1), Sieve(2)]
    try:
        # In a separate process group: Ctrl-C goes to Python, which then ends Java's work in order.
        gateway = launch_gateway(conf, {"stdout": sieves[0].writing, "stderr": sieves[1].writing, "process_group": 0})
    except Exception as error:
        for sieve in sieves:
            sieve.let_go()
        words = [line for sieve in reversed(sieves) for line in sieve.last_words(10)]
        failure = SparkError(f"Spark's Java did not start: {why(words) or error}; see rocketd spark doctor")
        failure.add_note("\n".join(words))
        raise failure from error
    for sieve in sieves:
        sieve.let_go()
        sieve.started()
    return gateway


def gateway_is_given() -> bool:
    """Tell whether spark-submit has started Java, and this process from it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
