"""A Java client sending as fast as it can, until its broker is gone: which of its messages were acknowledged."""

import contextlib
import json
import subprocess
import threading
from pathlib import Path

from tests.interop.toolchain import PROGRAMS

THREADS = 8
_LIMIT = 60.0  # seconds


class StoreLoad:
    """Sends messages numbered from ``first`` to one topic from a separate process; ``end`` has to be called."""

    def __init__(self, namesrv: str, topic: str, first: int, home: Path) -> None:
        program = PROGRAMS["java"]
        options = ["--namesrv", namesrv, "--topic", topic, "--group", "load", "--first", first, "--threads", THREADS]
        self._lines: list[bytes] = []
        self._more = threading.Condition()
        with (home / "stderr").open("wb") as errors:
            self._child = subprocess.Popen(
                [*program.command(program.built(), home, ()), "load", *map(str, options)],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._reader = threading.Thread(target=self._read, name="load", daemon=True)
        self._reader.start()

    def await_acknowledged(self, count: int) -> None:
        """Return once so many messages were acknowledged."""
        with self._more:
            assert self._more.wait_for(lambda: len(self._lines) >= count, _LIMIT), self._lines[-3:]

    def end(self) -> list[dict]:
        """Kill the client, and return its output for acknowledged messages."""
        self._child.kill()
        self._child.wait()
        self._reader.join()
        acknowledged = []
        for text in self._lines:
            with contextlib.suppress(json.JSONDecodeError):  # the last one may have been cut off
                acknowledged.append(json.loads(text))
        return acknowledged

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout:
            for line in self._child.stdout:
                with self._more:
                    self._lines.append(line)
                    self._more.notify()
