"""CPU time of a process with everything that it started: JVM, Python workers, planners that have ended."""

from __future__ import annotations

import threading
from pathlib import Path

from benchmarks.usage import TICKS, cpu_of_stat, fields_of_stat

_INTERVAL = 0.1


class SessionUsage:
    """Watches the processes of a session (``setsid``) in a thread of its own; any thread may ask.

    Each counts until it was seen last: what an ended worker has used is in nobody's times of children, as PySpark's
    daemon ignores that its workers end. What a process uses within its last 100 ms is missed.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._ticks: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu_seconds(self) -> float:
        """User and system time of all its processes since the watch began, those that have ended included."""
        self._look()
        with self._lock:
            return sum(self._ticks.values()) / TICKS

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self._look()

    def _look(self) -> None:
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                line = path.read_text()
            except OSError:  # it has just ended
                continue
            fields = fields_of_stat(line)
            if int(fields[3]) == self._session:
                # With its start: a process id may be given again.
                known = path.parent.name, int(fields[19])
                with self._lock:
                    self._ticks[known] = max(self._ticks.get(known, 0), cpu_of_stat(line))
