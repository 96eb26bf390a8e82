"""Writing files so that a crash leaves all of one or nothing, and a lock against a second writer.

Errors of the disk are OSError; that somebody else was faster, or holds the lock, is an ArchiveError.
"""

import errno
import fcntl
import os
import threading
import time
from types import TracebackType

from rocketd.spark.archive.layout import random_part
from rocketd.spark.errors import ArchiveError

_WAIT_SECONDS = 0.05
_BUSY = (errno.EACCES, errno.EAGAIN, errno.ENOENT)
"""What tells that another has it, or has removed it just now."""


def sync_dir(path: str) -> None:
    """Return when the names in a directory are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_dirs(path: str) -> None:
    """Make a directory and those above it; returns when their names are on the disk."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path) or "."
    for one in reversed(missing):
        try:
            os.mkdir(one)
        except FileExistsError:
            if not os.path.isdir(one):
                raise
            continue
        sync_dir(os.path.dirname(one) or ".")


def _write_temporary(path: str, data: bytes) -> str:
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{random_part()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    return temporary


def write_once(path: str, data: bytes) -> None:
    """Make a file with this content, on the disk when this returns. Raises FileExistsError when there is one."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
    sync_dir(os.path.dirname(path))


def replace(path: str, data: bytes) -> None:
    """Give a file new content, on the disk when this returns; a crash leaves the old or the new one."""
    temporary = _write_temporary(path, data)
    os.rename(temporary, path)
    sync_dir(os.path.dirname(path))


class Lock:
    """An exclusive lock of a file, which is made; a context manager. It ends with the process, however that ends."""

    _held: set[str] = set()
    """A process may lock one file twice as far as the system is concerned."""
    _guard = threading.Lock()

    def __init__(self, path: str, purpose: str, wait_seconds: float = 0.0) -> None:
        """`purpose` says what is locked, for the error; `wait_seconds` how long to try."""
        self._path = os.path.abspath(path)
        self._purpose = purpose
        self._wait = wait_seconds
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. Raises ArchiveError when another has it."""
        deadline = time.monotonic() + self._wait
        while not self._try():
            if time.monotonic() >= deadline:
                raise ArchiveError(f"{self._purpose} is in use by {self._holder()}; wait until that has ended")
            time.sleep(_WAIT_SECONDS)

    def _try(self) -> bool:
        with self._guard:
            return self._path not in self._held and self._take()

    def _take(self) -> bool:
        # Not locked by descriptor (flock): a child that inherits that would keep the lock when this process is gone.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who held it may have removed the file meanwhile: the next would lock another one.
            same = os.path.samestat(os.fstat(fd), os.stat(self._path))
        except OSError as error:
            os.close(fd)
            if error.errno in _BUSY:
                return False
            raise ArchiveError(
                f"{self._path} cannot be locked ({error.strerror}): use a directory where files have locks"
            ) from None
        if not same:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
        self._held.add(self._path)
        self._fd = fd
        return True

    def _holder(self) -> str:
        if self._path in self._held:
            return "this process"
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read() or "another process"
        except OSError:
            return "another process"

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        if self._fd >= 0:
            self._held.discard(self._path)
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
