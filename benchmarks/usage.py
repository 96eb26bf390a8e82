"""What a process has used, from /proc (Linux): CPU time of all its threads, and memory that is its own."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of the process since its start, in seconds; OSError when there is no such process."""
    return cpu_of_stat(Path(f"/proc/{pid}/stat").read_text()) / TICKS


def cpu_of_stat(stat: str) -> int:
    """``utime`` and ``stime`` of a line of /proc/PID/stat, added, in clock ticks."""
    fields = fields_of_stat(stat)
    return int(fields[11]) + int(fields[12])


def fields_of_stat(stat: str) -> list[str]:
    """The fields of a line of /proc/PID/stat from the third on, the process's state."""
    # The name of the program stands in brackets and may contain anything, blanks and brackets too.
    return stat[stat.rindex(")") + 2 :].split()


def anonymous_mb(pid: int) -> float:
    """Resident anonymous memory (no mapped files) in units of 2**20 bytes; OSError when there is no such process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} has no memory any more")
