"""Output of ``rocketd store`` for people: tables and a progress bar."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from types import TracebackType
from typing import IO, Self

from rocketd.store.offline.summary import StoreSummary

_BAR = 30
_INTERVAL = 0.1
_STOPS = {
    "clean": "cleanly",
    "killed": "not cleanly: the process ended, the system went on",
    "crashed": "not cleanly: there is an abort file, and maybe the system has crashed",
}


def summary_lines(summary: StoreSummary) -> Iterator[str]:
    """Yield a summary as text."""
    yield f"store      {summary.root}"
    yield f"stopped    {_STOPS[summary.last_stop]}"
    yield f"lock       not held{'' if summary.lock else '; no lock file'}"
    if summary.checkpoint is None:
        yield "checkpoint missing"
    else:
        times = summary.checkpoint
        yield (
            f"checkpoint log {_time(times.physic_msg_timestamp)}, queues {_time(times.logics_msg_timestamp)}, "
            f"index {_time(times.index_msg_timestamp)}"
        )
    yield f"log        {summary.min_offset} to {summary.max_offset}"
    yield f"size       {summary.size} bytes, {summary.on_disk} on the disk"
    yield ""
    yield f"{'log file':20} {'ends at':>20} {'used':>12} {'of':>12}  stored from, to"
    for file in summary.log:
        name = os.path.basename(file.path)
        times_of = f"{_time(file.first_store_time)}, {_time(file.last_store_time)}"
        yield f"{name} {file.end_offset:20} {file.used:12} {file.size:12}  {times_of}"
    yield ""
    yield f"{'queue':40} {'first':>12} {'next':>12} {'files':>6}"
    for queue in summary.queues:
        name = f"{queue.topic}:{queue.queue_id}"
        yield f"{name:40} {queue.min_offset:12} {queue.max_offset:12} {queue.files:6}"
    yield ""
    yield f"{'index file':20} {'entries':>12} {'slots used':>12}  stored from, to"
    for index in summary.index:
        name = os.path.basename(index.path)
        times_of = f"{_time(index.begin_store_time)}, {_time(index.end_store_time)}"
        yield f"{name:20} {index.entries:12} {index.slots_used:12}  {times_of}"
    yield ""
    for other in summary.config:
        yield f"{os.path.relpath(other.path, summary.root):40} {other.size:12}"
    for problem in summary.problems:
        yield f"unreadable: {problem}"


def _time(stamp: int) -> str:
    if stamp <= 0:
        return "-"
    try:
        return datetime.fromtimestamp(stamp / 1000).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(stamp)


class ProgressBar:
    """A progress bar, shown only on a terminal. It is removed at the end."""

    def __init__(self, file: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._shown_at: float | None = None
        self._terminal = file.isatty()

    def __enter__(self) -> Self:
        return self

    def show(self, done: int, total: int) -> None:
        """Show the share of work done, at most ten times a second."""
        now = self._clock()
        if not self._terminal or (self._shown_at is not None and now - self._shown_at < _INTERVAL):
            return
        self._shown_at = now
        part = done / total if total else 1.0
        bar = "#" * int(part * _BAR)
        self._file.write(f"\r[{bar:{_BAR}}] {part:4.0%}")
        self._file.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown_at is not None:
            self._file.write("\r" + " " * (_BAR + 8) + "\r")
            self._file.flush()
