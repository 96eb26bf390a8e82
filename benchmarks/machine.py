"""Parts of every run: the machine with its load, and the file of results."""

from __future__ import annotations

import datetime
import json
import mmap
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.usage import TICKS
from rocketd import core

QUIET_LOAD = 0.25
"""The highest load average of a quiet machine, for each of its cores."""

QUIET_SHARE = 0.05
"""The largest share of its cores that other processes take."""

FORMAT = 1
"""Of the files of results."""

_CHUNK_MB = 512
_CGROUP = Path("/sys/fs/cgroup")

_RESULTS = Path(__file__).with_name("results")


def touch_memory(left_mb: int = 3072) -> int:
    """Use the free memory once, except so many MB, and return the number of MB used.

    A virtual machine gets a page of memory from its host at the first use, and the process that writes to it pays. In the
    first minutes of a machine, a broker pays 2.4 µs for a message of 1 KB, whichever broker comes first. Files in the
    machine's cache may be dropped from it.
    """
    touched = []
    while _available_mb() > left_mb + _CHUNK_MB:
        touched.append(mmap.mmap(-1, _CHUNK_MB << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
    for chunk in touched:
        chunk.close()
    return len(touched) * _CHUNK_MB


def _available_mb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:"))
    try:  # a container may use less
        limit = int((_CGROUP / "memory.max").read_text())
        return min(available, (limit - int((_CGROUP / "memory.current").read_text())) >> 20)
    except (OSError, ValueError):
        return available


class Watch:
    """Watches the machine during a run: what it is, and how much of its cores other processes take.

    Make it before anything is started, and ask for the form when all started processes have ended.
    """

    def __init__(self) -> None:
        """Note the time, the load average and the counters at the start."""
        self._begin = datetime.datetime.now(datetime.UTC)
        self.load_average = [round(value, 2) for value in os.getloadavg()]
        self._counters = _counters()

    def form(self) -> dict[str, Any]:
        """The measurements depend on all of this beside the servers."""
        return {**_machine(), "load_average": self.load_average, "others": round(self.others(), 3)}

    def publish(
        self, form: dict[str, Any], tables: str, remarks: Sequence[str] = (), failures: Sequence[str] = ()
    ) -> int:
        """Write the file of results, print the machine and the tables, and return the exit code."""
        machine = self.form()
        file = _write_results(self._begin, {"machine": machine, **form})
        print(f"\n{describe(machine)}\n\n{tables}")
        for title, lines in (("Remarks", remarks), ("FAILED", failures)):
            if lines:
                print(f"\n{title}:\n" + "\n".join(f"- {line}" for line in lines))
        print(f"\nwritten: {file}")
        return 1 if failures else 0

    def others(self) -> float:
        """The share of the cores that processes outside this run have taken since the start, between 0 and 1."""
        begin, end = self._counters, _counters()
        return share_of_others(end.busy - begin.busy, end.own - begin.own, end.all - begin.all)


def _write_results(begin: datetime.datetime, form: dict[str, Any]) -> Path:
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / f"{begin:%Y%m%dT%H%M%SZ}.json"
    head = {"format": FORMAT, "when": begin.isoformat(timespec="seconds")}
    file.write_text(json.dumps({**head, **form}, indent=1, ensure_ascii=False) + "\n")
    return file


@dataclass(frozen=True)
class _Counters:
    """CPU seconds since the boot: of all processes, of this one and its ended children, and of the cores in total."""

    busy: float
    own: float
    all: float


def _counters() -> _Counters:
    fields = [int(text) / TICKS for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, interrupt, soft, stolen = fields  # between them: idle, and waiting for a disk
    times = os.times()
    return _Counters(
        busy=user + nice + system + interrupt + soft + stolen,
        own=times.user + times.system + times.children_user + times.children_system,
        all=sum(fields),
    )


def share_of_others(busy: float, own: float, total: float) -> float:
    """The share of ``total`` core seconds that is busy and not this run's own."""
    return min(1.0, max(0.0, busy - own) / total) if total > 0 else 0.0


def quiet(machine: dict[str, Any]) -> bool:
    """Whether the measurements of a run on this machine can be published."""
    return bool(machine["load_average"][0] <= QUIET_LOAD * machine["cpus"] and machine["others"] <= QUIET_SHARE)


def describe(machine: dict[str, Any]) -> str:
    """The lines that every run prints: commit, machine, load average, and a warning if the machine was not quiet."""
    load = " ".join(f"{value:g}" for value in machine["load_average"])
    lines = [
        f"commit {machine['commit']}, {machine['core']}, Python {machine['python']}, {machine['java']}",
        f"{machine['cpus']} cores ({machine['model']}), {machine['memory_gb']} GB, kernel {machine['kernel']}",
        f"load average at the start {load}; other processes took {machine['others']:.0%} of the cores",
    ]
    if not quiet(machine):
        lines.append("THE MACHINE WAS NOT QUIET: do not publish these figures, and compare CPU only.")
    return "\n".join(lines)


def _machine() -> dict[str, Any]:
    checkout = Path(__file__).resolve().parents[1]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": os.cpu_count(),
        "model": _model(Path("/proc/cpuinfo").read_text()),
        "memory_gb": round(pages / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _said("java", "-version"),
        "core": core.kind(),
        "commit": _said("git", "-C", str(checkout), "describe", "--always", "--dirty"),
    }


def _model(cpuinfo: str) -> str:
    names = [line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _said(*command: str) -> str | None:
    """The first line that a program prints, or None when it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False)
    lines = done.stdout.splitlines()
    return lines[0] if done.returncode == 0 and lines else None
