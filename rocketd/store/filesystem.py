"""The one seam between the store and the disk.

Apache has no counterpart: it calls `RandomAccessFile`, `MappedByteBuffer` and `File` where it needs them.
Everything the store does on disk goes through `IFileSystem`, so that a crash, a full disk or a torn write is a test
and not an accident.
"""

import contextlib
import errno
import mmap
import os
import sys
import threading
from typing import NamedTuple, Protocol

from rocketd.store.errors import StoreLockedError

_ZEROS = bytes(1 << 18)
_O_TMPFILE = getattr(os, "O_TMPFILE", 0)
"""Open a file that has no name yet: Linux, and most of its file systems."""


class DiskUsage(NamedTuple):
    """Space of the file system that holds a path, in bytes, as an unprivileged process sees it."""

    used: int
    available: int

    @property
    def ratio(self) -> float:
        """Used part of what can be used, 0.0 to 1.0."""
        total = self.used + self.available
        return self.used / total if total else 0.0


class IFileSystem(Protocol):
    """What the store asks of a disk. Offsets and sizes are bytes, times are milliseconds; failures are OSError."""

    def open(self, path: str, size: int | None = None) -> int:
        """Open a file for reading and writing and return its descriptor.

        With `size`, the file is made where it is missing and brought to that length with zero bytes (sparse);
        without, a missing file is a FileNotFoundError. Where the system can do so, a new file has its length from
        the moment it has its name.
        """

    def close(self, fd: int) -> None:
        """Close a descriptor; mappings made from it stay."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at an offset; returns how many bytes were taken, which may be fewer than given."""

    def fdatasync(self, fd: int) -> None:
        """Return when all bytes of the file, written or mapped, are on the disk. Lets other threads run meanwhile."""

    def map(self, fd: int, size: int, writable: bool) -> mmap.mmap:
        """Shared mapping of the first `size` bytes."""

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Reserve disk space for a range, so that storing into its mapping cannot run out of it (which would be a
        signal).
        """

    def clear_from(self, fd: int, offset: int) -> None:
        """Make all bytes from the offset to the end of the file zero; its length stays."""

    def data_ranges(self, path: str, offset: int) -> list[tuple[int, int]]:
        """Begins and ends of the bytes that were written, from an offset to the end of a file; holes lie between."""

    def identity(self, path: str) -> str:
        """What tells this file, as this run of the system has it, from any other and from itself after a restart.

        Empty where the system cannot tell. As long as it stays the same, what was ever written to the file system that
        holds the file can be read, flushed or not.
        """

    def file_size(self, path: str) -> int:
        """Length of a file."""

    def modified(self, path: str) -> int:
        """When the bytes of a file were last changed, in ms since 1970."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of this name."""

    def listdir(self, path: str) -> list[str]:
        """Sorted names in a directory; empty where the directory is missing."""

    def makedirs(self, path: str) -> None:
        """Make a directory and its parents where they are missing."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory; a missing or filled one is no error."""

    def rename(self, source: str, target: str) -> None:
        """Rename within one file system, replacing the target."""

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on the disk."""

    def read_file(self, path: str) -> bytes:
        """The whole of a small file."""

    def write_file(self, path: str, data: bytes) -> None:
        """Replace the whole of a small file; its bytes are on the disk when this returns."""

    def disk_usage(self, path: str) -> DiskUsage:
        """Space of the file system that holds the path."""

    def lock(self, path: str, content: bytes) -> int:
        """Lock byte 0 of a file exclusively, as Java's FileLock does, and write the content into it.

        Returns the descriptor to give to `unlock`. Raises StoreLockedError, naming the file's directory, when
        somebody else has it.
        """

    def unlock(self, fd: int) -> None:
        """Give the lock back and close the descriptor."""


def make_durable_dir(fs: IFileSystem, path: str) -> None:
    """Make a directory and its parents where they are missing, and return when their names are on the disk."""
    path = os.path.abspath(path)
    missing = []
    while not fs.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        fs.makedirs(directory)
        fs.sync_dir(os.path.dirname(directory))


class RealFileSystem(IFileSystem):
    """The disk of this machine. All methods may be called from any thread."""

    _locks_guard = threading.Lock()
    # POSIX record locks do not keep two users within one process apart, so those are told apart here.
    _locks_held: dict[int, tuple[int, int]] = {}

    def open(self, path: str, size: int | None = None) -> int:
        """See IFileSystem."""
        made = None if size is None else _make_whole(path, size)
        if made is not None:
            return made
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (0 if size is None else os.O_CREAT), 0o644)
        if size is not None:
            try:
                if os.fstat(fd).st_size != size:
                    os.ftruncate(fd, size)
            except BaseException:
                os.close(fd)
                raise
        return fd

    def close(self, fd: int) -> None:
        """See IFileSystem."""
        os.close(fd)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """See IFileSystem."""
        return os.pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """See IFileSystem."""
        os.fdatasync(fd)

    def map(self, fd: int, size: int, writable: bool) -> mmap.mmap:
        """See IFileSystem."""
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        if sys.version_info >= (3, 13):
            mapping = mmap.mmap(fd, size, access=access, trackfd=False)
        else:
            mapping = mmap.mmap(fd, size, access=access)
        if writable:
            # Such files are stored into bit by bit: reading ahead would bring in, and zero, much more than is ever
            # used.
            mapping.madvise(mmap.MADV_RANDOM)
        return mapping

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """See IFileSystem."""
        try:
            os.posix_fallocate(fd, offset, size)
        except OSError as error:
            # A file system that cannot reserve space must do without.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise

    def clear_from(self, fd: int, offset: int) -> None:
        """See IFileSystem."""
        # Not by cutting the file and making it long again: the process may end in between. What is zero is left alone,
        # as a file of zeros that was made in advance may be long.
        for begin, end in data_ranges_of(fd, offset):
            for at in range(begin, end, len(_ZEROS)):
                zeros = _ZEROS[: end - at]
                if os.pread(fd, len(zeros), at) != zeros:
                    os.pwrite(fd, zeros, at)

    def data_ranges(self, path: str, offset: int) -> list[tuple[int, int]]:
        """See IFileSystem."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return data_ranges_of(fd, offset)
        finally:
            os.close(fd)

    def identity(self, path: str) -> str:
        """See IFileSystem."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                boot_id = file.read().strip()
        except OSError:
            return ""
        figures = os.stat(path)
        return f"{boot_id} {figures.st_dev} {figures.st_ino}"

    def file_size(self, path: str) -> int:
        """See IFileSystem."""
        return os.stat(path).st_size

    def modified(self, path: str) -> int:
        """See IFileSystem."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def exists(self, path: str) -> bool:
        """See IFileSystem."""
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        """See IFileSystem."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def makedirs(self, path: str) -> None:
        """See IFileSystem."""
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        """See IFileSystem."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rmdir(self, path: str) -> None:
        """See IFileSystem."""
        with contextlib.suppress(OSError):
            os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        """See IFileSystem."""
        os.replace(source, target)

    def sync_dir(self, path: str) -> None:
        """See IFileSystem."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_file(self, path: str) -> bytes:
        """See IFileSystem."""
        with open(path, "rb") as file:
            return file.read()

    def write_file(self, path: str, data: bytes) -> None:
        """See IFileSystem."""
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def disk_usage(self, path: str) -> DiskUsage:
        """See IFileSystem."""
        figures = os.statvfs(path)
        return DiskUsage((figures.f_blocks - figures.f_bfree) * figures.f_frsize, figures.f_bavail * figures.f_frsize)

    def lock(self, path: str, content: bytes) -> int:
        """See IFileSystem."""
        with self._locks_guard:
            # Asked before the file is opened: closing any descriptor of it would drop the lock of the whole process.
            with contextlib.suppress(FileNotFoundError):
                figures = os.stat(path)
                if (figures.st_dev, figures.st_ino) in self._locks_held.values():
                    raise StoreLockedError(os.path.dirname(path))
            import fcntl  # here: a client, which keeps offsets in files, is imported where there is none, too

            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as error:
                os.close(fd)
                raise StoreLockedError(os.path.dirname(path)) from error
            os.pwrite(fd, content, 0)
            os.fsync(fd)
            figures = os.fstat(fd)
            self._locks_held[fd] = (figures.st_dev, figures.st_ino)
            return fd

    def unlock(self, fd: int) -> None:
        """See IFileSystem."""
        with self._locks_guard:
            self._locks_held.pop(fd, None)
            os.close(fd)


def data_ranges_of(fd: int, offset: int) -> list[tuple[int, int]]:
    """Begins and ends of the bytes that were written to an open file, from an offset on; holes lie between."""
    ranges = []
    try:
        while True:
            begin = os.lseek(fd, offset, os.SEEK_DATA)
            offset = os.lseek(fd, begin, os.SEEK_HOLE)
            ranges.append((begin, offset))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return ranges


def _make_whole(path: str, size: int) -> int | None:
    """Make a file and give it its length before its name; None where it is there already, or it cannot be done so.

    A broker that is killed in between leaves nothing then. It would leave an empty file otherwise, with which Apache's
    broker does not start.
    """
    if not _O_TMPFILE or os.path.exists(path):
        return None
    try:
        fd = os.open(os.path.dirname(path) or ".", _O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        os.ftruncate(fd, size)
        # A directory is named only to have linkat called, which can follow the link; with an absolute path it is
        # not looked at.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except OSError:
        os.close(fd)
        return None
    return fd
