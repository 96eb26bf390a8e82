"""Counts how often limits were reached, and logs each kind at most once a minute.

No counterpart in Apache.
"""

from collections import Counter
from collections.abc import Callable
from threading import Lock
from time import monotonic

from twisted.logger import Logger

from rocketd.common.log_throttle import LogThrottle, ThrottledLog


class LimitLog:
    """The limits of one server. Thread-safe; ``now`` gives monotonic seconds."""

    def __init__(self, log: Logger, now: Callable[[], float] = monotonic) -> None:
        self._log = ThrottledLog(log, LogThrottle(now))
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """How often each limit was reached, by kind."""
        with self._lock:
            return dict(self._counts)

    def flush(self) -> None:
        """Log the counts of kinds that were suppressed, and have been quiet since; to be called now and then."""
        self._log.flush()

    def reached(self, kind: str, line: str, count: int = 1, **values: object) -> None:
        """Count an event of a kind, a constant such as "one-way lost"; warn of it unless that was done lately."""
        with self._lock:
            self._counts[kind] += count
            total = self._counts[kind]
        self._log.warn(
            kind, line + " ({limit_total} {limit_kind} since the start)", limit_total=total, limit_kind=kind, **values
        )
