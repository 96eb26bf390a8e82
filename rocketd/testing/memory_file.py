"""A file in anonymous memory of the system, which remembers what of it was synced.

No counterpart in Apache.
"""

import os
import tempfile

from rocketd.store.filesystem import data_ranges_of

_PIECE = 1 << 20


class MemoryFile:
    """The bytes of a file, and those of them that were synced. The disk's lock guards it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.descriptor = _anonymous()
        self.synced: int | None = None
        self.modified_ms = 0
        self.mapped = False
        self.changed: tuple[int, int] | None = None
        """What was written since the last sync, unless it was written through a mapping."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return os.fstat(self.descriptor).st_size

    def written(self, begin: int, end: int, now_ms: int) -> None:
        """Note what was written."""
        self.modified_ms = now_ms
        before = self.changed or (begin, end)
        self.changed = min(begin, before[0]), max(end, before[1])

    def sync(self) -> None:
        """Remember the bytes as they are."""
        if self.synced is None or self.mapped:
            self.synced = _anonymous() if self.synced is None else self.synced
            _copy(self.descriptor, self.synced)
        elif self.changed is not None:
            os.ftruncate(self.synced, self.size)
            _copy_range(self.descriptor, self.synced, *self.changed)
        self.changed = None

    def copied(self, *, power_cut: bool) -> "MemoryFile":
        """Return a file of its own with these bytes, or with those that were synced, as long as this one."""
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
        """Give its memory back."""
        os.close(self.descriptor)
        if self.synced is not None:
            os.close(self.synced)


def _anonymous() -> int:
    """Return a descriptor of memory, or of a file without a name, that nobody else has."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rocketd-testing")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _copy(source: int, target: int) -> None:
    """Make one file what another is, holes as well."""
    os.ftruncate(target, 0)
    os.ftruncate(target, os.fstat(source).st_size)
    for begin, end in data_ranges_of(source, 0):
        _copy_range(source, target, begin, end)


def _copy_range(source: int, target: int, begin: int, end: int) -> None:
    for at in range(begin, end, _PIECE):
        os.pwrite(target, os.pread(source, min(_PIECE, end - at), at), at)
