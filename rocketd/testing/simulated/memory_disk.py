"""A disk in memory: files in anonymous memory, reset by a power cut to their synced content.

Only the names are simulated. A file is a descriptor of memory without a name, so mapping, holes and positioned writes
are those of the system.
"""

import errno
import mmap
import os
import threading
from itertools import count
from uuid import uuid4

from rocketd.store.base.errors import StoreLockedError
from rocketd.store.base.filesystem import DiskUsage, RealFileSystem, data_ranges_of
from rocketd.testing.simulated.memory_file import MemoryFile
from rocketd.testing.simulated.virtual_time import VirtualTime

HALF_FULL = DiskUsage(1 << 34, 1 << 34)


class MemoryDisk(RealFileSystem):
    """Files by name. All methods may be called from any thread.

    ``slow_fsync_seconds`` is the duration of each sync in the cluster's time.
    """

    def __init__(self, virtual: VirtualTime) -> None:
        self._virtual = virtual
        self._guard = threading.RLock()
        self._numbers = count(1)
        self._files: dict[str, MemoryFile] = {}
        self._durable: dict[str, MemoryFile] = {}
        self._directories = {"/"}
        self._by_inode: dict[int, MemoryFile] = {}
        self._locked: dict[int, MemoryFile] = {}
        self._run = uuid4()
        self.slow_fsync_seconds = 0.0

    # ------------------------------------------------------------ the end of a process

    def survivors(self, *, power_cut: bool) -> "MemoryDisk":
        """Return the disk of the next process: all written data, or after a power cut only synced data.

        This disk stays usable, so the old process can end in order.
        """
        after = MemoryDisk(self._virtual)
        after.slow_fsync_seconds = self.slow_fsync_seconds
        with self._guard:
            after._directories = set(self._directories)
            if not power_cut:
                after._run = self._run
            copies: dict[MemoryFile, MemoryFile] = {}
            for files, found in ((self._files, after._files), (self._durable, after._durable)):
                for path, file in files.items():
                    if power_cut and files is self._files:
                        continue
                    if file not in copies:
                        copies[file] = after._adopt(file.copied(power_cut=power_cut))
                    found[path] = copies[file]
            if power_cut:
                after._files = dict(after._durable)
            after._numbers = self._numbers
            self.slow_fsync_seconds = 0.0
        self._virtual.wake_sleepers()
        return after

    def close_all(self) -> None:
        """Release all memory."""
        with self._guard:
            for file in {*self._files.values(), *self._durable.values()}:
                file.close()
            self._files.clear()
            self._durable.clear()
            self._by_inode.clear()

    def _adopt(self, file: MemoryFile) -> MemoryFile:
        self._by_inode[os.fstat(file.descriptor).st_ino] = file
        return file

    def _find(self, path: str) -> MemoryFile:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def _make(self, path: str) -> MemoryFile:
        if os.path.dirname(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        file = self._files[path] = self._adopt(MemoryFile(next(self._numbers)))
        file.modified_ms = self._virtual.now_ms()
        return file

    def _let_go(self, file: MemoryFile) -> None:
        """Release the memory of a file without a name."""
        if file not in self._files.values() and file not in self._durable.values():
            self._by_inode.pop(os.fstat(file.descriptor).st_ino, None)
            file.close()

    # ------------------------------------------------------------ files

    def open(self, path: str, size: int | None = None) -> int:
        """See IFileSystem."""
        with self._guard:
            file = self._find(path) if size is None or path in self._files else self._make(path)
            if size is not None and file.size != size:
                os.ftruncate(file.descriptor, size)
            return os.dup(file.descriptor)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """See IFileSystem."""
        with self._guard:
            taken = os.pwrite(fd, data, offset)
            file = self._by_inode.get(os.fstat(fd).st_ino)
            if file is not None:
                file.written(offset, offset + taken, self._virtual.now_ms())
            return taken

    def fdatasync(self, fd: int) -> None:
        """See IFileSystem."""
        if self.slow_fsync_seconds:
            self._virtual.sleep(self.slow_fsync_seconds, lambda: not self.slow_fsync_seconds)
        with self._guard:
            file = self._by_inode.get(os.fstat(fd).st_ino)
            if file is not None:
                file.sync()

    def map(self, fd: int, size: int, writable: bool) -> mmap.mmap:
        """See IFileSystem."""
        with self._guard:
            file = self._by_inode.get(os.fstat(fd).st_ino)
            if file is not None and writable:
                file.mapped = True
        return super().map(fd, size, writable)

    def map_for_stores(self, fd: int, size: int) -> memoryview:
        """See IFileSystem."""
        with self._guard:
            file = self._by_inode.get(os.fstat(fd).st_ino)
            if file is not None:
                file.mapped = True
        return super().map_for_stores(fd, size)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """See IFileSystem. Memory always has space."""

    def clear_from(self, fd: int, offset: int) -> None:
        """See IFileSystem."""
        with self._guard:
            super().clear_from(fd, offset)
            file = self._by_inode.get(os.fstat(fd).st_ino)
            if file is not None:
                file.written(offset, file.size, self._virtual.now_ms())

    def data_ranges(self, path: str, offset: int) -> list[tuple[int, int]]:
        """See IFileSystem."""
        return data_ranges_of(self._find(path).descriptor, offset)

    def identity(self, path: str) -> str:
        """See IFileSystem."""
        return f"{self._run} {self._find(path).number}"

    def file_size(self, path: str) -> int:
        """See IFileSystem."""
        return self._find(path).size

    def modified(self, path: str) -> int:
        """See IFileSystem."""
        return self._find(path).modified_ms

    def read_file(self, path: str) -> bytes:
        """See IFileSystem."""
        with self._guard:
            file = self._find(path)
            return os.pread(file.descriptor, file.size, 0)

    def read_at(self, path: str, offset: int, count: int) -> bytes:
        """See IFileSystem."""
        with self._guard:
            return os.pread(self._find(path).descriptor, count, offset)

    def write_file(self, path: str, data: bytes) -> None:
        """See IFileSystem."""
        with self._guard:
            file = self._files.get(path) or self._make(path)
            os.ftruncate(file.descriptor, 0)
            os.pwrite(file.descriptor, data, 0)
            file.written(0, len(data), self._virtual.now_ms())
            file.sync()

    def disk_usage(self, path: str) -> DiskUsage:
        """See IFileSystem. It is always half full."""
        return HALF_FULL

    # ------------------------------------------------------------ names

    def exists(self, path: str) -> bool:
        """See IFileSystem."""
        return path in self._files or path in self._directories

    def listdir(self, path: str) -> list[str]:
        """See IFileSystem."""
        with self._guard:
            names = [*self._files, *self._directories]
        return sorted(os.path.basename(name) for name in names if name != path and os.path.dirname(name) == path)

    def makedirs(self, path: str) -> None:
        """See IFileSystem."""
        path = os.path.abspath(path)
        with self._guard:
            while path not in self._directories:
                self._directories.add(path)
                path = os.path.dirname(path)

    def remove(self, path: str) -> None:
        """See IFileSystem."""
        with self._guard:
            file = self._files.pop(path, None)
            if file is not None:
                self._let_go(file)

    def rmdir(self, path: str) -> None:
        """See IFileSystem."""
        with self._guard:
            if not self.listdir(path):
                self._directories.discard(path)

    def rename(self, source: str, target: str) -> None:
        """See IFileSystem."""
        with self._guard:
            file = self._find(source)
            del self._files[source]
            before = self._files.get(target)
            self._files[target] = file
            if before is not None:
                self._let_go(before)

    def sync_dir(self, path: str) -> None:
        """See IFileSystem."""
        with self._guard:
            before = {name: file for name, file in self._durable.items() if os.path.dirname(name) == path}
            for name in before:
                del self._durable[name]
            self._durable.update({name: file for name, file in self._files.items() if os.path.dirname(name) == path})
            for file in set(before.values()):
                self._let_go(file)

    # ------------------------------------------------------------ locks

    def lock(self, path: str, content: bytes | None) -> int:
        """See IFileSystem."""
        with self._guard:
            file = self._files.get(path) or self._make(path)
            if file in self._locked.values():
                raise StoreLockedError(os.path.dirname(path))
            if content is not None:
                os.pwrite(file.descriptor, content, 0)
            fd = os.dup(file.descriptor)
            self._locked[fd] = file
            return fd

    def unlock(self, fd: int) -> None:
        """See IFileSystem."""
        with self._guard:
            self._locked.pop(fd, None)
            os.close(fd)
