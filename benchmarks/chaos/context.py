"""The surroundings of a worker: its name, its cluster, its journal, and the signs of its end."""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.journal import Journal


@dataclass
class Context:
    """One worker. ``quiet`` is set when it has to stop sending, and ``ending`` when it has to close its clients."""

    worker: str
    namesrv: str
    directory: Path
    seed: int
    quiet: threading.Event = field(default_factory=threading.Event)
    ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Open the journal, and derive the worker's own random numbers from the seed."""
        self.journal = Journal(self.directory / "journals", self.worker)
        self.chance = random.Random(zlib.crc32(f"{self.seed} {self.worker}".encode()))

    def group(self, role: str) -> str:
        """The name of a group on the wire."""
        return f"chaos-{role}"

    def paced(self, per_second: float, name: str = "") -> Iterator[str]:
        """Yield the ids of messages, so many a second, until it is time to stop sending. Blocks the calling thread."""
        for number, wait in self.pauses(per_second):
            if self.quiet.wait(wait):
                return
            yield f"{self.worker}{name}:{number}"

    def pauses(self, per_second: float) -> Iterator[tuple[int, float]]:
        """Yield the numbers of messages and the seconds to wait before each, until it is time to stop sending."""
        due, number = time.monotonic(), 0
        while not self.quiet.is_set():
            now = time.monotonic()
            yield number, max(0.0, due - now)
            due = max(due + 1 / per_second, now)  # what an outage took is not made up for
            number += 1
