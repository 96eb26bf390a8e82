"""A throttle for log lines that a peer or a lasting fault can cause at any rate.

One line per kind and interval is written, or several if each is about another event. The next one has the number of
suppressed lines. A kind is a constant such as "bad frame", or one followed by the name of a group or broker. The number
and length of kinds are limited, because a peer may choose that name. Values are shortened before they are logged. When
a fault is over, its kind is cleared, so the next fault is logged at once.

A pair of lines for the start and the end of a state, such as "unreachable" and "reachable again", needs no throttle: its
writer knows the state. The same is true of reminders of a lasting state. No other code of rocketd limits log lines by time.
"""

import threading
from collections.abc import Callable
from time import monotonic

from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

INTERVAL = 60.0
"""Seconds between two lines of one kind."""

KINDS = 1000
"""Kinds remembered by a throttle. Further kinds share one entry, OTHER_KINDS."""

OTHER_KINDS = "(other kinds)"

KIND_LENGTH = 200
"""Significant characters of a kind."""

VALUE_LENGTH = 400
"""Characters logged of one value."""

EVENT_LINES = 100
"""Lines of one kind of event per interval: administrators' commands, and names created by clients."""

SWEEP_SECONDS = 1.0
"""Interval at which a full throttle drops old kinds. A peer that invents kinds must not cause a sweep for each."""


class LogThrottle:
    """Decides which log lines are written. Thread-safe. ``now`` returns monotonic seconds."""

    def __init__(
        self, now: Callable[[], float] = monotonic, *, interval: float | None = None, kinds: int = KINDS, lines: int = 1
    ) -> None:
        """``lines`` of each kind are written in an interval. The interval begins with the first of them."""
        self._lines = lines
        self._now = now
        self._interval = INTERVAL if interval is None else interval
        self._limit = kinds
        self._lock = threading.Lock()
        self._next_sweep = float("-inf")
        self._kinds: dict[str, tuple[float, int]] = {}
        """Begin of the kind's interval, and the number of lines in it beyond the first."""

    def admit(self, kind: str) -> str | None:
        """Return a suffix for the line, with the count of suppressed ones, or None if the line is suppressed."""
        now = self._now()
        with self._lock:
            kind = self._known(kind[:KIND_LENGTH], now)
            began, further = self._kinds.get(kind, (None, 0))
            if began is not None and now - began < self._interval:
                self._kinds[kind] = began, further + 1
                return "" if further + 1 < self._lines else None
            self._kinds[kind] = now, 0
        suppressed = self._suppressed(further)
        return f" ({suppressed} more like this were not logged)" if suppressed else ""

    def clear(self, kind: str) -> None:
        """Drop a kind because its cause is over: its next line is written at once."""
        with self._lock:
            self._kinds.pop(kind[:KIND_LENGTH], None)

    def overdue(self, *, last: bool = False) -> list[tuple[str, int]]:
        """Return (kind, suppressed lines) for the kinds whose interval has passed. Their counts restart from 0.

        With ``last``, intervals under way count as passed: the process is about to end.
        """
        now = self._now()
        with self._lock:
            over = [
                (kind, further)
                for kind, (began, further) in self._kinds.items()
                if self._suppressed(further) and (last or now - began >= self._interval)
            ]
            for kind, _ in over:
                self._kinds[kind] = now, 0
        return [(kind, self._suppressed(further)) for kind, further in over]

    def _suppressed(self, further: int) -> int:
        return max(0, further + 1 - self._lines)

    def _known(self, kind: str, now: float) -> str:
        if kind in self._kinds or len(self._kinds) < self._limit:
            return kind
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS
            self._sweep(now)
        return kind if len(self._kinds) < self._limit else OTHER_KINDS

    def _sweep(self, now: float) -> None:
        self._kinds = {
            k: (at, n) for k, (at, n) in self._kinds.items() if self._suppressed(n) or now - at < self._interval
        }


class ThrottledLog:
    """A log whose lines are throttled by kind, with shortened values. Thread-safe.

    Call ``flush`` from time to time: it logs the counts of kinds without a further line.
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

    def clear(self, *kinds: str) -> None:
        """Let the next line of these kinds be logged at once, because their cause is over."""
        for kind in kinds:
            self._throttle.clear(kind)

    def flush(self, *, last: bool = False) -> None:
        """Log the number of suppressed lines for each kind that has been quiet for an interval since.

        With ``last``, log it for every kind: the process is about to end.
        """
        for kind, count in self._throttle.overdue(last=last):
            self._log.warn("{kind}: {count} lines like the last one were not logged", kind=kind, count=count)

    def emit(self, level: LogLevel, kind: str, text: str, **values: object) -> None:
        """Log a line of a kind at a level, or count it."""
        suffix = self._throttle.admit(kind)
        if suffix is not None:
            self._log.emit(level, text + "{suffix}", suffix=suffix, **_shortened(values))


def event_log(log: Logger) -> ThrottledLog:
    """Return a log for events that each deserve a line, up to EVENT_LINES of a kind in an interval."""
    return ThrottledLog(log, LogThrottle(lines=EVENT_LINES))


def shorten(value: object, length: int = VALUE_LENGTH) -> str:
    """Return a value's text, cut to a length, with a mark and its full length if it was cut."""
    text = str(value)
    return text if len(text) <= length else f"{text[:length]}... ({len(text)} characters)"


def _shortened(values: dict[str, object]) -> dict[str, object]:
    return {name: value if isinstance(value, int | float) else shorten(value) for name, value in values.items()}
