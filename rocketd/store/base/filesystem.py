"""The only interface between the store and the disk.

Apache calls `RandomAccessFile`, `MappedByteBuffer` and `File` all over its store. Here every access goes through
`IFileSystem`, so tests can simulate a crash, a full disk or a torn write.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import sys
import threading
import weakref
from typing import NamedTuple, Protocol

from rocketd.store.base.errors import StoreLockedError

_ZEROS = bytes(1 << 18)
_O_TMPFILE = getattr(os, "O_TMPFILE", 0)
"""Flag to open a file without a name. Linux has it, and most of its file systems do."""


class DiskUsage(NamedTuple):
    """Space in bytes of the file system that holds a path, as seen by an unprivileged process."""

    used: int
    available: int

    @property
    def ratio(self) -> float:
        """Used share of the usable space, 0.0 to 1.0."""
        total = self.used + self.available
        return self.used / total if total else 0.0


class IFileSystem(Protocol):
    """Disk operations of the store. Offsets and sizes are bytes, times are milliseconds. Failures raise OSError."""

    def open(self, path: str, size: int | None = None) -> int:
        """Open a file for reading and writing and return its descriptor.

        With `size`, a missing file is created, and the file gets that length with zero bytes (sparse). Without `size`,
        a missing file raises FileNotFoundError. If the system allows it, a new file has its full length as soon as it
        has its name.
        """

    def close(self, fd: int) -> None:
        """Close a descriptor. Mappings made from it stay valid."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at an offset and return the number of bytes taken, possibly fewer than given."""

    def fdatasync(self, fd: int) -> None:
        """Return when all bytes of the file, written or mapped, are on disk. Other threads run meanwhile."""

    def map(self, fd: int, size: int, writable: bool) -> mmap.mmap:
        """Return a shared mapping of the first `size` bytes."""

    def map_for_stores(self, fd: int, size: int) -> memoryview:
        """Return a writable shared mapping of the first `size` bytes. It keeps no descriptor and lasts as long as a view."""

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Reserve disk space for a range. Without it, a store into the mapping on a full disk raises a signal."""

    def clear_from(self, fd: int, offset: int) -> None:
        """Fill the file with zeros from the offset to its end. The length does not change."""

    def data_ranges(self, path: str, offset: int) -> list[tuple[int, int]]:
        """Return (begin, end) of each range of written bytes from an offset to the end of the file. Holes lie between."""

    def identity(self, path: str) -> str:
        """Return an id of this file during this boot of the system. Empty if the system has none.

        It differs from the id of any other file, and from the id of the same file after a reboot. As long as it is
        unchanged, all bytes ever written to the file's file system can be read, flushed or not.
        """

    def file_size(self, path: str) -> int:
        """Return the length of a file."""

    def modified(self, path: str) -> int:
        """Return the time of the last change to the file's bytes, in ms since 1970."""

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name exists."""

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory, an empty list if the directory is missing."""

    def makedirs(self, path: str) -> None:
        """Create a directory and its parents if they are missing."""

    def remove(self, path: str) -> None:
        """Remove a file. A missing file is ignored."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory. A missing or non-empty one is ignored."""

    def rename(self, source: str, target: str) -> None:
        """Rename within one file system, replacing the target."""

    def sync_dir(self, path: str) -> None:
        """Return when the names in a directory are on disk."""

    def read_file(self, path: str) -> bytes:
        """Return the content of a small file."""

    def read_at(self, path: str, offset: int, count: int) -> bytes:
        """Return `count` bytes of a file from an offset on, fewer at its end."""

    def write_file(self, path: str, data: bytes) -> None:
        """Replace the content of a small file. It is on disk when this returns."""

    def disk_usage(self, path: str) -> DiskUsage:
        """Return the space of the file system that holds the path."""

    def lock(self, path: str, content: bytes | None) -> int:
        """Lock byte 0 of a file exclusively, as Java's FileLock does, and write the content into it.

        None leaves the content of the file as it is, and follows no symbolic link.

        Return the descriptor for `unlock`. Raises StoreLockedError, naming the file's directory, if another process or
        another store of this process holds the lock.
        """

    def unlock(self, fd: int) -> None:
        """Release the lock and close the descriptor."""


def make_durable_dir(fs: IFileSystem, path: str) -> None:
    """Create a directory and its missing parents. Return when their names are on disk."""
    path = os.path.abspath(path)
    missing = []
    while not fs.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        fs.makedirs(directory)
        fs.sync_dir(os.path.dirname(directory))


def make_safe_dir(fs: IFileSystem, path: str) -> None:
    """Create a directory and its missing parents. Return when the names of all are on disk, up to the mount point.

    Names that were there are synced as well: the process that made them may have been killed before. A directory that
    cannot be synced was not changed by such a process.
    """
    path = os.path.abspath(path)
    fs.makedirs(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
        try:
            fs.sync_dir(path)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS):
                raise
            return


def sync_names(fs: IFileSystem, path: str, count: int) -> None:
    """Return when the name of a file is on disk, and those of the directories above it: `count` names in all."""
    for _ in range(count):
        path = os.path.dirname(path)
        fs.sync_dir(path)


class RealFileSystem(IFileSystem):
    """The disk of this machine. All methods may be called from any thread."""

    _locks_guard = threading.Lock()
    # POSIX record locks do not exclude two users within one process. This table does.
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
            # Such files are stored into bit by bit. Reading ahead would load, and zero, far more than is ever used.
            mapping.madvise(mmap.MADV_RANDOM)
        return mapping

    def map_for_stores(self, fd: int, size: int) -> memoryview:
        """See IFileSystem."""
        return map_without_descriptor(fd, size)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """See IFileSystem."""
        try:
            os.posix_fallocate(fd, offset, size)
        except OSError as error:
            # Some file systems cannot reserve space. The store works without.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise

    def clear_from(self, fd: int, offset: int) -> None:
        """See IFileSystem."""
        # Do not truncate and extend the file: the process may end in between. Skip zeros, because a preallocated file
        # of zeros may be long.
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
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(fd)

    def read_file(self, path: str) -> bytes:
        """See IFileSystem."""
        with open(path, "rb") as file:
            return file.read()

    def read_at(self, path: str, offset: int, count: int) -> bytes:
        """See IFileSystem."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, count, offset)
        finally:
            os.close(fd)

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

    def lock(self, path: str, content: bytes | None) -> int:
        """See IFileSystem."""
        with self._locks_guard:
            # Check before the file is opened: closing any descriptor of it would drop the lock of the whole process.
            with contextlib.suppress(FileNotFoundError):
                figures = os.stat(path)
                if (figures.st_dev, figures.st_ino) in self._locks_held.values():
                    raise StoreLockedError(os.path.dirname(path))
            import fcntl  # imported late: clients store offsets in files, also on systems without fcntl

            follow = os.O_NOFOLLOW if content is None else 0
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | follow, 0o644)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            except OSError as error:
                os.close(fd)
                raise StoreLockedError(os.path.dirname(path)) from error
            if content is not None:
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
    """Return (begin, end) of each range of written bytes of an open file, from an offset on. Holes lie between."""
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
    """Create a file of full length before it gets its name. Return None if it exists, or if the system cannot do it.

    A broker killed in between leaves no file. Otherwise it would leave an empty one, and Apache's broker does not start
    with an empty file.
    """
    if not _O_TMPFILE or os.path.exists(path):
        return None
    try:
        fd = os.open(os.path.dirname(path) or ".", _O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        os.ftruncate(fd, size)
        # linkat follows the link only if a directory is passed. The directory is ignored, because the path is absolute.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except OSError:
        os.close(fd)
        return None
    return fd


def map_without_descriptor(fd: int, size: int) -> memoryview:
    """Return a writable shared mapping of a file that keeps no descriptor. Raises OSError.

    `mmap.mmap` keeps a duplicate of the descriptor before Python 3.13, so the limit of open files would bound the queues.
    """
    address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"mapping {size} bytes: {os.strerror(error)}")
    owner = (ctypes.c_ubyte * size).from_address(address)
    # The views keep the owner alive. At the end of the process, threads may still use them.
    weakref.finalize(owner, _libc.munmap, address, size).atexit = False
    _libc.madvise(address, size, mmap.MADV_RANDOM)
    return memoryview(owner).cast("B")


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_MAP_FAILED = ctypes.c_void_p(-1).value
