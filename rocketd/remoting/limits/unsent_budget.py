"""Total bytes of answers not taken by their connections yet.

Only memory of this process counts. Records sent from the mapped log count only while a transport holds a copy of them.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

from rocketd.remoting.limits.limit_log import LimitLog


class Debtor(Protocol):
    """A connection, as seen by the budget."""

    address: str
    unsent_memory: int

    def abort(self) -> None:
        """Close at once. The threads that read connections."""


class UnsentBudget:
    """Bounds the unsent bytes of all connections. ``add`` may be called by any thread, ``close_largest`` by the reactor
    thread.
    """

    def __init__(self, log: LimitLog, max_bytes: int, connections: Callable[[], Sequence[Debtor]]) -> None:
        self.max_bytes = max_bytes
        self.total = 0
        self._log = log
        self._connections = connections
        self._lock = Lock()

    def add(self, size: int) -> bool:
        """Count bytes, negative if they are gone. Return whether the limit is exceeded."""
        with self._lock:
            self.total += size
            return self.total > self.max_bytes

    def close_largest(self) -> None:
        """Close the connections with the most unsent bytes until the limit is kept."""
        over = self.total - self.max_bytes
        if over <= 0:
            return
        for connection in sorted(self._connections(), key=lambda each: -each.unsent_memory):
            size = connection.unsent_memory
            if over <= 0 or not size:
                return
            self._log.reached(
                "unsent answers dropped",
                "{address}: closing: it has not read {size} bytes of answers, and all connections together hold "
                "{total}, "
                "the limit is {limit} (serverUnsentMaxBytesInAll)",
                address=connection.address,
                size=size,
                total=self.total,
                limit=self.max_bytes,
            )
            connection.abort()
            over -= size


def memory_of(buffers: Sequence[bytes | memoryview]) -> int:
    """Return the bytes of buffers in process memory, not in mapped files."""
    return sum([len(buffer) for buffer in buffers if isinstance(_owner(buffer), bytes | bytearray)])


def _owner(buffer: bytes | memoryview) -> object:
    return buffer.obj if isinstance(buffer, memoryview) else buffer
