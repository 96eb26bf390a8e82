"""Reasons why the store cannot be read or written at the moment.

Counterpart: `RunningFlags` (Apache). The thread that meets a fault sets the flag; all threads read the flags. A change
is one assignment.
"""

import threading

NOT_READABLE = 1
NOT_WRITABLE = 1 << 1
WRITE_LOGICS_QUEUE_ERROR = 1 << 2
WRITE_INDEX_FILE_ERROR = 1 << 3
DISK_FULL = 1 << 4
FLUSH_ERROR = 1 << 5

_NAMES = {
    NOT_READABLE: "reading is switched off",
    NOT_WRITABLE: "writing is switched off",
    WRITE_LOGICS_QUEUE_ERROR: "a consume queue could not be written",
    WRITE_INDEX_FILE_ERROR: "the index could not be written",
    DISK_FULL: "the disk is full",
    FLUSH_ERROR: "the log could not be flushed to the disk; check the disk and restart the broker",
}


class RunningFlags:
    """Bit set of faults. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.bits = 0
        self._guard = threading.Lock()

    def set(self, flag: int, on: bool) -> bool:
        """Set or clear one flag. Return whether the bits changed."""
        with self._guard:
            before = self.bits
            self.bits = before | flag if on else before & ~flag
            return self.bits != before

    @property
    def readable(self) -> bool:
        """Whether messages may be read."""
        return not self.bits & NOT_READABLE

    @property
    def writable(self) -> bool:
        """Whether messages may be appended: no flag except NOT_READABLE is set."""
        return not self.bits & ~NOT_READABLE

    @property
    def queue_writable(self) -> bool:
        """Whether consume queues may be written. A full disk does not prevent it, so accepted messages become visible."""
        return not self.bits & (NOT_WRITABLE | WRITE_LOGICS_QUEUE_ERROR | WRITE_INDEX_FILE_ERROR)

    def describe(self) -> str:
        """Return the set flags in words, empty if none is set."""
        return ", ".join(words for flag, words in _NAMES.items() if self.bits & flag)
