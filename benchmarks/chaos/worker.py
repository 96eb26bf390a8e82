"""One client process: ``python -m benchmarks.chaos.worker NAME``, where NAME is a role and a number.

SIGUSR1 has it send nothing more, SIGTERM close its clients and leave. Both are blocked until it is ready.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time
from pathlib import Path

from benchmarks.chaos import consumers, journal, producers
from benchmarks.chaos.context import Context

ROLES = {**producers.ROLES, **consumers.ROLES}
_THREADS_SECONDS = 2.0  # until a thread that was told to end counts as left


class _Monotonic(logging.Formatter):
    """Gives lines the times of the journals."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - of logging
        """Return the time."""
        return f"{time.monotonic():.3f}"


def main() -> None:
    """Do the work of a role until the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    log = logging.StreamHandler()
    log.setFormatter(_Monotonic("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    context = Context(given.worker, given.namesrv, given.dir, given.seed)
    signal.signal(signal.SIGUSR1, lambda *_: context.quiet.set())
    signal.signal(signal.SIGTERM, lambda *_: (context.quiet.set(), context.ending.set()))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGUSR1})
    context.journal.note(journal.READY)
    ROLES[given.worker.rpartition("-")[0]](context)
    context.journal.note(journal.CLOSED, _threads_left())


def _threads_left() -> int:
    deadline = time.monotonic() + _THREADS_SECONDS
    while threading.active_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    return threading.active_count() - 1


if __name__ == "__main__":
    main()
