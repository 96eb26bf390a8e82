"""One server process: started with its output in a file, awaited by a condition, ended politely or not.

Used for every server of the tests, rocketd's and others: the peers of benchmarks and the servers of the interop ring.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from weakref import WeakSet

_POLL = 0.05
_numbers = count()
_known: WeakSet[ServerProcess] = WeakSet()


def latest_servers(limit: int) -> list[ServerProcess]:
    """Return the servers that were started last and are still of use to a test, the oldest first."""
    return sorted(_known, key=lambda server: server.number)[-limit:]


class ServerError(RuntimeError):
    """A server ended, or did not get ready or stop in its time; the message ends with the last lines it wrote."""


class ServerProcess:
    """A child process whose standard output and standard error go to ``log``."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, cwd: Path, env: Mapping[str, str] | None = None
    ) -> None:
        """Start it; ``env`` are variables beside (and over) those of this process."""
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **(env or {})},
            )
        self.number = next(_numbers)
        _known.add(self)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it do nothing for the time of the block: all its threads have stopped when the block begins."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            # A thread on another core goes on for a moment, and may still answer. The system tells of the last one's stop.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._child.poll()

    def wait_for(self, what: str, condition: Callable[[], bool], limit: float) -> None:
        """Return once the condition holds; ServerError when the process ends first, or after ``limit`` seconds."""
        deadline = time.monotonic() + limit
        while not condition():
            if self._ended_within(_POLL):
                raise self._error(f"ended with {self.exit_code} before {what}")
            if time.monotonic() > deadline:
                raise self._error(f"waited {limit:g} s in vain: {what}")

    def wait(self) -> int:
        """Wait for its end, however long it takes, and return its exit code."""
        return self._child.wait()

    def stop(self, limit: float = 60.0) -> int:
        """Send SIGTERM, wait for the end, return the exit code; ServerError (and SIGKILL) after ``limit`` seconds."""
        if self.exit_code is None:
            self._child.send_signal(signal.SIGTERM)
        if not self._ended_within(limit):
            self.kill()
            raise self._error(f"still running {limit:g} s after SIGTERM")
        return self._child.wait()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._child.kill()
        self._child.wait()

    def tail(self, lines: int = 30) -> str:
        """The last lines it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _error(self, what: str) -> ServerError:
        return ServerError(f"{self.name} {what}\n{self.log}:\n{self.tail()}")
