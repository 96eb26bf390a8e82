"""Counts how often limits were reached, and logs each kind at most once a minute.

No counterpart in Apache.
"""

from collections import Counter
from collections.abc import Callable
from threading import Lock
from time import monotonic

from twisted.logger import Logger

INTERVAL_SECONDS = 60.0


class LimitLog:
    """The limits of one server. Thread-safe; ``now`` gives monotonic seconds."""

    def __init__(self, log: Logger, now: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._now = now
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, int]] = {}
        """When a kind was logged, and its count then."""

    @property
    def counts(self) -> dict[str, int]:
        """How often each limit was reached, by kind."""
        with self._lock:
            return dict(self._counts)

    def reached(self, kind: str, line: str, count: int = 1, **values: object) -> None:
        """Count an event of a kind, a constant such as "one-way lost"; warn of it unless that was done lately."""
        now = self._now()
        with self._lock:
            self._counts[kind] += count
            total = self._counts[kind]
            logged_at, before = self._logged.get(kind, (None, 0))
            if logged_at is not None and now - logged_at < INTERVAL_SECONDS:
                return
            self._logged[kind] = now, total
        self._log.warn(
            line + " ({kind}: {new} since the last such line, {total} in all)",
            kind=kind,
            new=total - before,
            total=total,
            **values,
        )
