"""A throttle for log lines that a peer or a lasting fault can cause at any rate.

One line per kind and interval is written. The next one tells how many were suppressed since. A kind is a constant such as
"bad frame", or one with the name of a group or broker behind it. Kinds are limited in number and length, since a peer may
choose that name, and values are shortened before they are logged.
"""

import threading
from collections.abc import Callable
from time import monotonic

from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

INTERVAL = 60.0
"""Seconds between two lines of one kind."""

KINDS = 1000
"""Kinds that a throttle remembers. Further kinds share one entry, OTHER_KINDS."""

OTHER_KINDS = "(other kinds)"

KIND_LENGTH = 200
"""Characters of a kind that count."""

VALUE_LENGTH = 400
"""Characters that are logged of one value."""


class LogThrottle:
    """Decides which log lines are written. Thread-safe; ``now`` gives monotonic seconds."""

    def __init__(
        self, now: Callable[[], float] = monotonic, *, interval: float | None = None, kinds: int = KINDS
    ) -> None:
        self._now = now
        self._interval = INTERVAL if interval is None else interval
        self._limit = kinds
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int]] = {}
        """When a line of the kind was last written, and how many were suppressed since."""

    def admit(self, kind: str) -> str | None:
        """Return a suffix for the line, with the count of those suppressed, or None if the line is suppressed."""
        now = self._now()
        with self._lock:
            kind = self._known(kind[:KIND_LENGTH], now)
            written_at, suppressed = self._kinds.get(kind, (None, 0))
            if written_at is not None and now - written_at < self._interval:
                self._kinds[kind] = written_at, suppressed + 1
                return None
            self._kinds[kind] = now, 0
        return f" ({suppressed} more like this were not logged)" if suppressed else ""

    def clear(self, kind: str) -> None:
        """Forget a kind, because its cause is over: the next line of it is written at once."""
        with self._lock:
            self._kinds.pop(kind[:KIND_LENGTH], None)

    def overdue(self) -> list[tuple[str, int]]:
        """Return the kinds whose interval has passed with suppressed lines, and how many; they count from 0 again."""
        now = self._now()
        with self._lock:
            found = [(k, n) for k, (at, n) in self._kinds.items() if n and now - at >= self._interval]
            for kind, _ in found:
                self._kinds[kind] = now, 0
        return found

    def _known(self, kind: str, now: float) -> str:
        if kind in self._kinds or len(self._kinds) < self._limit:
            return kind
        self._kinds = {k: (at, n) for k, (at, n) in self._kinds.items() if n or now - at < self._interval}
        return kind if len(self._kinds) < self._limit else OTHER_KINDS


class ThrottledLog:
    """A log whose lines are throttled by kind, with shortened values. Thread-safe.

    ``flush`` is to be called now and then: it tells the counts of kinds that no further line told.
    """

    def __init__(self, log: Logger, throttle: LogThrottle | None = None) -> None:
        self._log = log
        self._throttle = throttle or LogThrottle()

    def info(self, kind: str, text: str, **values: object) -> None:
        """Log a line of a kind, or count it."""
        self.emit(LogLevel.info, kind, text, **values)

    def warn(self, kind: str, text: str, **values: object) -> None:
        """Log a warning of a kind, or count it."""
        self.emit(LogLevel.warn, kind, text, **values)

    def error(self, kind: str, text: str, **values: object) -> None:
        """Log an error of a kind, or count it."""
        self.emit(LogLevel.error, kind, text, **values)

    def failure(self, kind: str, text: str, failure: Failure, **values: object) -> None:
        """Log a failure with its traceback, or count it."""
        suffix = self._throttle.admit(kind)
        if suffix is not None:
            shortened = _shortened(values)
            self._log.failure(text + "{suffix}", failure, LogLevel.critical, suffix=suffix, **shortened)

    def flush(self) -> None:
        """Log how many lines were suppressed of each kind that has been quiet for an interval since."""
        for kind, count in self._throttle.overdue():
            self._log.warn("{kind}: {count} lines like the last one were not logged", kind=kind, count=count)

    def emit(self, level: LogLevel, kind: str, text: str, **values: object) -> None:
        """Log a line of a kind at a level, or count it."""
        suffix = self._throttle.admit(kind)
        if suffix is not None:
            self._log.emit(level, text + "{suffix}", suffix=suffix, **_shortened(values))


def shorten(value: object, length: int = VALUE_LENGTH) -> str:
    """Return a value's text, cut to a length, with a mark and its full length if it was cut."""
    text = str(value)
    return text if len(text) <= length else f"{text[:length]}... ({len(text)} characters)"


def _shortened(values: dict[str, object]) -> dict[str, object]:
    return {name: value if isinstance(value, int | float) else shorten(value) for name, value in values.items()}
