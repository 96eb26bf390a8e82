"""Ends a child process at a line of rocketd's store, found by tracing all its threads.

This reaches the moments between two lines that are microseconds apart, which a timer cannot.
"""

import inspect
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from twisted.logger import LogLevel, formatEvent, globalLogPublisher

import rocketd.store

LIMIT = 60.0  # seconds for one process
_STORE = os.path.dirname(rocketd.store.__file__) + os.sep
_FOUND_A_FAULT = 3


class KillPoint:
    """Ends the process when it comes to a line of the store for the nth time, once it is armed.

    ``line`` None: any line of the file. ``file`` "": any file of the store. The place is written into the file ``note``.
    """

    def __init__(self, file: str, line: int | None, times: int, note: Path) -> None:
        self._file = _STORE + file
        self._wanted = line
        self._left = times
        self._note = note
        self.armed = False

    def install(self) -> None:
        """Follow this thread and those that it starts."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename.startswith(self._file) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "line" and self.armed and self._wanted in (None, frame.f_lineno):
            self._left -= 1
            if self._left == 0:
                code = frame.f_code
                where = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_qualname}"
                self._note.write_text(f"{where}, {threading.current_thread().name}")
                os.kill(os.getpid(), signal.SIGKILL)
        return self._line


@cache
def store_files() -> tuple[str, ...]:
    """The files of the store that have functions and are in use, by their paths in it; those of the index twice."""
    loaded = [module.__file__ or "" for name, module in sys.modules.items() if name.startswith("rocketd.store.")]
    names = {path.removeprefix(_STORE) for path in loaded if path.endswith(".py")} - {"testing.py"}
    return (*(name for name in sorted(names) if functions_of(name)), "index/file.py", "index/service.py")


@cache
def functions_of(file: str) -> tuple[tuple[int, ...], ...]:
    """Lines of each function in a file of the store."""
    found = []
    waiting = [compile(Path(_STORE + file).read_text(), file, "exec")]
    while waiting:
        code = waiting.pop()
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
        if code.co_flags & inspect.CO_OPTIMIZED:
            found.append(tuple(sorted({line for _, _, line in code.co_lines() if line})))
    return tuple(sorted(found))


def kill_point(random: Random, limit: int, note: Path) -> KillPoint:
    """One of three kinds: after at most so many lines of the store, or of one of its files, or at a line of a function
    however seldom it is called.
    """

    def up_to(limit: int) -> int:
        return int(math.exp(random.uniform(0, math.log(limit))))

    kind = random.randrange(4)
    if kind == 0:
        return KillPoint("", None, up_to(limit), note)
    file = random.choice(store_files())
    if kind == 1:
        return KillPoint(file, None, up_to(limit // 10), note)
    return KillPoint(file, random.choice(random.choice(functions_of(file))), up_to(20), note)


def in_child(work: Callable[[], None]) -> int:
    """Do it in a forked process, which then ends itself by SIGKILL; returns its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(int(LIMIT))
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            os._exit(_FOUND_A_FAULT)
    return os.waitpid(pid, 0)[1]


def refuse_errors() -> None:
    """End the process as a fault if the store logs an error or worse: none is expected."""

    def observe(event: dict[str, Any]) -> None:
        if event["log_level"] in (LogLevel.error, LogLevel.critical):
            print(f"logged: {formatEvent(event)}", flush=True)
            failure = event.get("log_failure")
            if failure is not None:
                print(failure.getTraceback(), flush=True)
            os._exit(_FOUND_A_FAULT)

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
