"""A line on the terminal with a job's progress, its speed, and the remaining time."""

import sys
import threading
import time
from collections.abc import Callable
from typing import IO

_BAR = 24
_INTERVAL = 0.2
_UNITS = ("", "k", "M", "G", "T")


class JobProgressBar:
    """A progress bar on standard error, if it is a terminal; else nothing. Any thread may advance it.

    Steps are counted in `unit`. `total` is their number, None if unknown.
    """

    def __init__(
        self, file: IO[str] | None = None, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = sys.stderr if file is None else file
        self._shown = not quiet and self._file.isatty()
        self._quiet = quiet
        self._clock = clock
        self._lock = threading.Lock()
        self._width = 0
        self._begin("", None, "")

    def begin(self, what: str, total: int | None = None, unit: str = "messages") -> None:
        """Start a bar with a title and the number of steps."""
        with self._lock:
            self._begin(what, total, unit)
            self._draw(self._started)

    def _begin(self, what: str, total: int | None, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._done = 0
        self._started = self._clock()
        self._drawn_at = 0.0

    @property
    def done(self) -> int:
        """The number of finished steps."""
        return self._done

    def advance(self, steps: int = 1) -> None:
        """Count steps as done; the bar is redrawn at most five times a second."""
        with self._lock:
            self._done += steps
            now = self._clock()
            if now - self._drawn_at >= _INTERVAL:
                self._draw(now)

    def note(self, line: str) -> None:
        """Print a permanent line above the bar, unless the output is quiet."""
        if self._quiet:
            return
        with self._lock:
            self._clear()
            print(line, file=self._file, flush=True)
            self._draw(self._clock())

    def end(self) -> None:
        """Remove the bar."""
        with self._lock:
            self._clear()
            self._what = ""

    def _draw(self, now: float) -> None:
        if not self._shown or not self._what:
            return
        self._drawn_at = now
        line = progress_line(self._what, self._done, self._total, self._unit, now - self._started)
        self._file.write("\r" + line.ljust(self._width))
        self._file.flush()
        self._width = len(line)

    def _clear(self) -> None:
        if self._width:
            self._file.write("\r" + " " * self._width + "\r")
            self._file.flush()
            self._width = 0


def progress_line(what: str, done: int, total: int | None, unit: str, seconds: float) -> str:
    """Return one line: bar, percentage, rate and remaining time, as far as they are known."""
    rate = done / seconds if seconds > 0 else 0.0
    speed = f" {short(rate)} {unit}/s" if done and seconds >= 1 else ""
    if not total:
        if not done:
            return f"{what} ..."
        return f"{what} {short(done)} {unit}{speed}"
    part = min(1.0, done / total)
    bar = "#" * int(part * _BAR)
    left = f", {clock_time((total - done) / rate)} left" if speed and done < total else ""
    return f"{what} [{bar:{_BAR}}] {part:4.0%}{speed}{left}"


def short(number: float) -> str:
    """Return a number in at most five characters: 950, 1.5k, 12k, 3.4M."""
    for unit in _UNITS:
        if number < 999.5 or unit == _UNITS[-1]:
            break
        number /= 1000
    digits = 1 if (unit or number % 1) and number < 9.95 else 0
    return f"{number:.{digits}f}{unit}"


def clock_time(seconds: float) -> str:
    """Return seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
