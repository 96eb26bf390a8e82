"""The journals of the workers: what was acknowledged and handled, in files that a SIGKILL leaves whole."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

READY = "ready"
"""Nothing more: the worker begins."""
SENT = "sent"
"""TOPIC ID: a broker has acknowledged the message."""
UNSENT = "unsent"
"""TOPIC ID ERROR: whether the message is stored is unknown."""
BEGUN, DONE, FAILED = "begun", "done", "failed"
"""ID STORED QUEUE OFFSET: a handler has begun, is about to return, is about to raise. STORED tells copies apart."""
DECIDED = "decided"
"""ID COMMIT|ROLLBACK: the result of a transaction, as its producer knows it."""
CHECKED = "checked"
"""ID: a broker has asked about a transaction."""
ANSWERED, UNANSWERED = "answered", "unanswered"
"""ID: the result of a request."""
WRONG = "wrong"
"""body|reply ID: it is not the one that was sent."""
CLOSED = "closed"
"""THREADS: the worker has closed its clients, and has so many threads beside its main thread."""


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a journal. ``seconds`` is the time of the machine's monotonic clock."""

    seconds: float
    worker: str
    kind: str
    words: tuple[str, ...]

    @property
    def role(self) -> str:
        """The role of the worker, which is its name without the number."""
        return self.worker.rpartition("-")[0]


class Journal:
    """The journal of one worker. Any thread may write."""

    def __init__(self, directory: Path, worker: str) -> None:
        """Make the file."""
        self._file = os.open(directory / worker, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL)

    def note(self, kind: str, *words: object) -> None:
        """Write one line, which is in the file once this returns."""
        os.write(self._file, f"{time.monotonic():.6f} {kind} {' '.join(map(str, words))}\n".encode())


def read_journals(directory: Path) -> list[Event]:
    """Return the events of all journals in the order of time."""
    events = []
    for file in directory.iterdir():
        *lines, _ = file.read_text().split("\n")  # behind the last line feed is nothing, or a line being written
        for line in lines:
            seconds, kind, *words = line.split()
            events.append(Event(float(seconds), file.name, kind, tuple(words)))
    return sorted(events, key=lambda event: event.seconds)
