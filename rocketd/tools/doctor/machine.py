"""Facts of this machine that the doctor judges. Each is None if the system does not tell."""

import ctypes
import os
import resource
import struct
import sys
import time
from dataclasses import dataclass

from rocketd import core
from rocketd.store.base.layout import lock_path

_CLOCK_ERROR = 5
_TIMEX_BYTES = 512
"""More than any system's struct timex has."""
_FLOCK = "hhqqi4x"
_WRITE_LOCK, _NO_LOCK = 1, 2


@dataclass(frozen=True, slots=True)
class LockOwner:
    """The process that has a store open: its id, 0 if it is in another container, and its command line."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Limits, Python and clock of this machine."""

    open_files: int
    """The hard limit of a process that this user starts."""
    mappings: int | None
    python: tuple[int, int]
    core: str
    now: float
    clock_is_synchronized: bool | None


def read_machine() -> MachineFacts:
    """Return the facts of this machine."""
    _, open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MachineFacts(
        open_files=sys.maxsize if open_files == resource.RLIM_INFINITY else open_files,
        mappings=_number_in("/proc/sys/vm/max_map_count"),
        python=sys.version_info[:2],
        core=core.kind(),
        now=time.time(),
        clock_is_synchronized=_clock_is_synchronized(),
    )


def file_system_of(path: str) -> str | None:
    """Return the type of the file system of an absolute path, such as ``ext4``."""
    try:
        device = os.stat(path).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        mount, _, rest = line.partition(" - ")
        if mount.split()[2:3] == [wanted] and rest:
            return rest.split()[0]
    return None


def lock_owner(root: str) -> LockOwner | None:
    """Return the process that has a store open. Raises OSError if the lock cannot be read."""
    import fcntl

    try:
        fd = os.open(lock_path(root), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        question = struct.pack(_FLOCK, _WRITE_LOCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    finally:
        os.close(fd)
    return None if kind == _NO_LOCK else LockOwner(pid, _command_of(pid))


def open_files_of(pid: int) -> int | None:
    """Return the limit of open files of a process."""
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii") as file:
            for line in file:
                if line.startswith("Max open files"):
                    soft = line.split()[3]
                    return int(soft) if soft.isdigit() else sys.maxsize
    except OSError:
        pass
    return None


def _command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _number_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _clock_is_synchronized() -> bool | None:
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else bool(state != _CLOCK_ERROR)
