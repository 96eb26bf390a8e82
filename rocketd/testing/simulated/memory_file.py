"""A file in anonymous memory that remembers its synced content."""

import os
import tempfile

from rocketd.store.base.filesystem import data_ranges_of

_PIECE = 1 << 20


class MemoryFile:
    """The bytes of a file, and its synced bytes. Guarded by the disk's lock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.descriptor = _anonymous()
        self.synced: int | None = None
        self.modified_ms = 0
        self.mapped = False
        self.changed: tuple[int, int] | None = None
        """Range written since the last sync, except through a mapping."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self.descriptor).st_size

    def written(self, begin: int, end: int, now_ms: int) -> None:
        """Record a write."""
        self.modified_ms = now_ms
        before = self.changed or (begin, end)
        self.changed = min(begin, before[0]), max(end, before[1])

    def sync(self) -> None:
        """Remember the present bytes."""
        if self.synced is None or self.mapped:
            self.synced = _anonymous() if self.synced is None else self.synced
            _copy(self.descriptor, self.synced)
        elif self.changed is not None:
            os.ftruncate(self.synced, self.size)
            _copy_range(self.descriptor, self.synced, *self.changed)
        self.changed = None

    def copied(self, *, power_cut: bool) -> "MemoryFile":
        """Return a copy with these bytes, or with the synced ones, of the same length."""
        copy = MemoryFile(self.number)
        copy.modified_ms = self.modified_ms
        if self.synced is not None:
            copy.synced = _anonymous()
            _copy(self.synced, copy.synced)
        if not power_cut:
            _copy(self.descriptor, copy.descriptor)
            copy.changed = self.changed
        elif copy.synced is not None:
            _copy(copy.synced, copy.descriptor)
        os.ftruncate(copy.descriptor, self.size)
        return copy

    def close(self) -> None:
        """Release its memory."""
        os.close(self.descriptor)
        if self.synced is not None:
            os.close(self.synced)


def _anonymous() -> int:
    """Return a descriptor of exclusive memory, or of a file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rocketd-testing")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _copy(source: int, target: int) -> None:
    """Make one file equal to another, including holes."""
    os.ftruncate(target, 0)
    os.ftruncate(target, os.fstat(source).st_size)
    for begin, end in data_ranges_of(source, 0):
        _copy_range(source, target, begin, end)


def _copy_range(source: int, target: int, begin: int, end: int) -> None:
    for at in range(begin, end, _PIECE):
        os.pwrite(target, os.pread(source, min(_PIECE, end - at), at), at)
