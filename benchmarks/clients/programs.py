"""The client programs: how each is started, and how a running one is asked for a load and watched from outside."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.generator import MeasurementError
from benchmarks.measurement import Measurement
from benchmarks.usage import anonymous_mb, cpu_seconds
from tests.support.apache import fetch_jars
from tests.support.jars import PeerUnavailableError, cache_dir

WHEEL = "rocketmq==0.4.4"
JVM = ("-Xms1g", "-Xmx1g")
START_LIMIT = 120.0

_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parents[1]


@dataclass(frozen=True)
class Program:
    """A client: what it is called in the table, and how it is started for a name server and a name of its own."""

    title: str
    command: Callable[[str, str], Sequence[str]]
    path: str = ""  # PYTHONPATH


def _python(file: str) -> Callable[[str, str], Sequence[str]]:
    return lambda namesrv, name: [sys.executable, str(_HERE / file), "--namesrv", namesrv, "--name", name]


def _java(namesrv: str, name: str) -> Sequence[str]:
    quiet = "-Drocketmq.client.logLevel=ERROR"
    return ["java", *JVM, quiet, "-cp", f"{fetch_jars()}/*", str(_HERE / "Load.java"), namesrv, name]


def fetch_wheel() -> Path:
    """The directory with the C++ client's wheel, filled by pip the first time; PeerUnavailableError when it cannot be."""
    root = cache_dir()
    root.mkdir(parents=True, exist_ok=True)
    target = root / f"wheel-{hashlib.sha256(WHEEL.encode()).hexdigest()[:12]}"
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            scratch = root / f"{target.name}.new"
            command = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", f"--target={scratch}", WHEEL]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise PeerUnavailableError(f"pip could not fetch {WHEEL}:\n{done.stdout}{done.stderr}")
            scratch.rename(target)
    return target


def programs(names: Collection[str]) -> dict[str, Program]:
    """The named ones of all programs (sync, aio, java, cpp); their jars and wheel are fetched."""
    known = {
        "sync": Program("rocketd sync", _python("load_sync.py"), str(_CHECKOUT)),
        "aio": Program("rocketd asyncio", _python("load_aio.py"), str(_CHECKOUT)),
        "java": Program("Java 4.9.7", _java),
    }
    if "java" in names:
        fetch_jars()
    if "cpp" in names:
        known["cpp"] = Program("C++ wheel 0.4.4", _python("load_cpp.py"), str(fetch_wheel()))
    return {name: program for name, program in known.items() if name in names}


class RunningProgram:
    """One client process, which is asked for one load after the other."""

    def __init__(self, program: Program, namesrv: str, name: str, directory: Path) -> None:
        """Start it; what it writes to standard error goes to a file of its name in the directory."""
        self._title = program.title
        self._log = directory / f"{name}.log"
        environment = {**os.environ, "PYTHONPATH": program.path, "HOME": str(directory), "PYTHONSAFEPATH": ""}
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                program.command(namesrv, name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env=environment,
            )
        self._answer(START_LIMIT)

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._child.poll() is None

    def measure(self, load: str, limit: float) -> Measurement:
        """CPU for one message in µs, messages a second and memory of one load; MeasurementError after `limit` seconds."""
        assert self._child.stdin is not None
        before = cpu_seconds(self._child.pid)
        self._child.stdin.write(f"{load}\n".encode())
        self._child.stdin.flush()
        answer = self._answer(limit)
        if not answer["ops"]:
            raise MeasurementError(f"{self._title}: nothing was done within {load}")
        used = cpu_seconds(self._child.pid) - before
        rate = answer["ops"] / answer["seconds"]
        memory = anonymous_mb(self._child.pid)
        return Measurement({"cpu_us": used / answer["ops"] * 1e6, "rate": rate, "anonymous_mb": memory})

    def stop(self) -> None:
        """End it: when it reads no more lines it leaves; it is killed when it does not."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _answer(self, limit: float) -> dict[str, Any]:
        """The next line that is an answer: the C++ library prints lines of its own."""
        assert self._child.stdout is not None
        output = self._child.stdout
        deadline = time.monotonic() + limit
        line = b""
        while not line.startswith(b"{"):
            line = b""
            while not line.endswith(b"\n"):
                ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
                byte = os.read(output.fileno(), 1) if ready else b""
                if not byte:
                    self._child.kill()
                    self._child.wait()
                    what = "ended" if ready else f"did not answer within {limit:g} s"
                    raise MeasurementError(f"{self._title} {what}\n{self._log.read_text(errors='replace')[-2000:]}")
                line += byte
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MeasurementError(f"{self._title}: {answer['error']}")
        return answer
