"""Counts how often limits were reached, and logs each kind at most once a minute."""

import re
from collections import Counter
from collections.abc import Callable
from threading import Lock
from time import monotonic

from twisted.logger import Logger

from rocketd.common.logs.throttle import LogThrottle, ThrottledLog


class LimitLog:
    """The limits of one server. Thread-safe. ``now`` returns monotonic seconds."""

    def __init__(self, log: Logger, now: Callable[[], float] = monotonic) -> None:
        self._log = ThrottledLog(log, LogThrottle(now))
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """Number of times each limit was reached, by kind."""
        with self._lock:
            return dict(self._counts)

    def flush(self, *, last: bool = False) -> None:
        """Log the counts of suppressed kinds that have been quiet since. Call it from time to time.

        With ``last``, log all of them: the process is about to end.
        """
        self._log.flush(last=last)

    def table(self) -> dict[str, str]:
        """Return the counts for runtime information: ``limitOneWayRequestsLost`` for "one-way requests lost"."""
        return {_key(kind): str(count) for kind, count in self.counts.items()}

    def count(self, kind: str, count: int = 1) -> int:
        """Count an event of a kind without a log line. Return the number since the start."""
        with self._lock:
            self._counts[kind] += count
            return self._counts[kind]

    def reached(self, kind: str, line: str, count: int = 1, *, cause: object = "", **values: object) -> None:
        """Count an event of a kind, a constant such as "one-way lost", and warn unless it was logged recently.

        Each ``cause``, such as a response code, is logged separately, so a frequent cause does not hide another one.
        """
        total = self.count(kind, count)
        self._log.warn(
            f"{kind} {cause}" if cause else kind,
            line + " ({limit_total} {limit_kind} since the start)",
            limit_total=total,
            limit_kind=kind,
            **values,
        )


def _key(kind: str) -> str:
    return "limit" + "".join([word[0].upper() + word[1:] for word in re.findall("[A-Za-z0-9]+", kind)])
