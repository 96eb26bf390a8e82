"""What every run does beside measuring: say on what machine it was, write its results, end politely on signals."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import outcome

_RESULTS = Path(__file__).with_name("results")


def end_on_signals() -> None:
    """Have SIGTERM and SIGHUP end the run as Ctrl-C does: through the code that ends the servers."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def write_results(begin: datetime.datetime, machine: dict[str, Any], form: dict[str, Any]) -> Path:
    """Write the JSON form of a run that began at this UTC time; returns the file."""
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / f"{begin:%Y%m%dT%H%M%SZ}.json"
    head = {"format": outcome.FORMAT, "when": begin.isoformat(timespec="seconds"), "machine": machine}
    file.write_text(json.dumps({**head, **form}, indent=1, ensure_ascii=False) + "\n")
    return file


def machine_form() -> dict[str, Any]:
    """What the figures depend on beside the servers."""
    checkout = Path(__file__).resolve().parents[1]
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _said("java", "-version"),
        "commit": _said("git", "-C", str(checkout), "describe", "--always", "--dirty"),
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def _said(*command: str) -> str | None:
    """The first line that a program prints, or None when it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False)
    lines = done.stdout.splitlines()
    return lines[0] if done.returncode == 0 and lines else None
