"""Crash-safe writing of files, complete or not at all, and a lock against a second writer.

Errors of the disk are OSError. If another process was faster or holds the lock, the error is ArchiveError or
FileExistsError.
"""

import errno
import fcntl
import os
import threading
import time
from types import TracebackType

from rocketd.spark.archive.format.layout import random_part
from rocketd.spark.errors import ArchiveError

_WAIT_SECONDS = 0.05
_BUSY = (errno.EACCES, errno.EAGAIN, errno.ENOENT)
"""Errors meaning that another process holds the lock, or has just removed the file."""


def sync_dir(path: str) -> None:
    """Return once the names in a directory are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_dirs(path: str) -> None:
    """Create a directory and its parents. Returns once their names are on the disk."""
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
    """Create a file with this content, on the disk when this returns. Raises FileExistsError if it exists."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
    sync_dir(os.path.dirname(path))


def replace(path: str, data: bytes) -> None:
    """Replace the content of a file, on the disk when this returns. A crash leaves the old or the new content."""
    temporary = _write_temporary(path, data)
    os.rename(temporary, path)
    sync_dir(os.path.dirname(path))


class Lock:
    """An exclusive lock on a file, which is created; a context manager.

    The lock ends with the process, for whatever reason.
    """

    _held: set[str] = set()
    """Paths locked by this process: the operating system would let a process lock a file twice."""
    _guard = threading.Lock()

    def __init__(self, path: str, purpose: str, wait_seconds: float = 0.0) -> None:
        """`purpose` describes the locked object in the error; `wait_seconds` is how long to try."""
        self._path = os.path.abspath(path)
        self._purpose = purpose
        self._wait = wait_seconds
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. Raises ArchiveError if another process holds it."""
        deadline = time.monotonic() + self._wait
        while not self._try():
            if time.monotonic() >= deadline:
                raise ArchiveError(f"{self._purpose} is in use by {self._holder()}; wait until that has ended")
            time.sleep(_WAIT_SECONDS)

    def _try(self) -> bool:
        with self._guard:
            return self._path not in self._held and self._take()

    def _take(self) -> bool:
        # Not flock: a child process that inherits the descriptor would keep the lock after this process ends.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have removed the file meanwhile: then the next process would lock another file.
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
        """Release the lock, if it is held."""
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
