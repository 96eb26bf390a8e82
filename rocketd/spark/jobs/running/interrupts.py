"""Ctrl-C and SIGTERM: a job is stopped in order, and prints one line.

Spark's handler, installed with each session, would handle only the first, and print traces of Java.
"""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

STATUS = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedJobError(KeyboardInterrupt):
    """The user or the system wants the job to stop."""


class Interrupts:
    """Makes both signals raise InterruptedJobError in the main thread. A second signal ends the process at once."""

    def __init__(self) -> None:
        self._seen = False
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Install the handlers, also if other code has replaced them since. Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            before = signal.signal(number, self._handle)
            if number not in self._before:
                self._before[number] = before

    def restore(self) -> None:
        """Restore the previous handlers."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
        if self._seen:
            logging.disable(logging.NOTSET)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            os._exit(STATUS)
        self._seen = True
        # Py4j logs a trace, from no specific logger, when a call into Java is interrupted.
        logging.disable(logging.ERROR)
        raise InterruptedJobError


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Handle the signals while the block runs."""
    interrupts = Interrupts()
    interrupts.install()
    try:
        yield interrupts
    finally:
        interrupts.restore()
