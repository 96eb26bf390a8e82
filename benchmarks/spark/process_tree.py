"""CPU time of a process with everything that it started: JVM, Python workers, planners that have ended."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def session_cpu_seconds(session: int) -> float:
    """User and system time of all processes of a session (``setsid``), reaped children included, in seconds."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            line = stat.read_text()
        except OSError:  # it has just ended: its parent's time of reaped children tells
            continue
        # The name of the program stands in brackets and may contain anything, blanks and brackets too.
        fields = line[line.rindex(")") + 2 :].split()
        if int(fields[3]) == session:
            total += sum(int(field) for field in fields[11:15])
    return total / _TICKS
