"""The frame of each command: a directory for its run, and an end in good order, whatever ends the run."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.generator import MeasurementError
from tests.support.jars import PeerUnavailableError
from tests.support.process import ServerError

FAILURES = (MeasurementError, ServerError, PeerUnavailableError, OSError)
"""Errors that mean that a measurement, or the whole run, was not possible."""


@contextlib.contextmanager
def run_directory(name: str, kept: Path | None = None) -> Iterator[Path]:
    """Make a temporary directory that is removed at the end, or the directory ``kept``, which stays.

    SIGTERM and SIGHUP end the run as Ctrl-C does: through the code that ends the servers. The exit code is 130 after
    Ctrl-C, and 1 after one of FAILURES, which is printed in a line.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    directory = Path(tempfile.mkdtemp(prefix=f"rocketd-{name}-")) if kept is None else kept.resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
    except KeyboardInterrupt:
        sys.exit(130)
    except FAILURES as error:
        sys.exit(f"benchmarks: {error}")
    finally:
        if kept is None:
            shutil.rmtree(directory, ignore_errors=True)
