"""The store's checkpoint file: up to which store time the log, the queues and the index are on the disk.

Answers to Apache's `StoreCheckpoint`. Promises the same 4096-byte file; a missing or short one reads as zeros, which
makes recovery begin with the oldest file.
"""

import os
import struct
import threading
from typing import Final

from rocketd.store.filesystem import IFileSystem, RealFileSystem

CHECKPOINT_FILE_SIZE: Final = 4096
RECOVERY_MARGIN_MS: Final = 3000
"""Recovery goes back this far behind the time that is known to be on the disk."""

_TIMESTAMPS: Final = struct.Struct(">qqq")


class StoreCheckpoint:
    """The three timestamps of the file at `path`, in ms since 1970: read by the constructor, written by `flush`.

    The attributes may be read and set in every thread, each by the one that flushes what it stands for: the flusher of
    the log `physic_msg_timestamp`, that of the queues `logics_msg_timestamp`, those of finished index files
    `index_msg_timestamp`. `flush` waits for the disk: any thread but the reactor's.
    """

    def __init__(self, path: str, file_system: IFileSystem | None = None) -> None:
        self.path = path
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self._file_system = file_system or RealFileSystem()
        self._flushing = threading.Lock()
        self.load()

    def load(self) -> None:
        """Read the file; what it lacks is 0. Raises OSError when it is there but cannot be read."""
        try:
            data = self._file_system.read_file(self.path)
        except FileNotFoundError:
            data = b""
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
        ) = _TIMESTAMPS.unpack(data[: _TIMESTAMPS.size].ljust(_TIMESTAMPS.size, b"\0"))

    def flush(self) -> None:
        """Write the timestamps and wait until they are on the disk. Makes file and directory; raises OSError."""
        file_system = self._file_system
        with self._flushing:
            parent = os.path.dirname(self.path)
            if parent:
                file_system.makedirs(parent)
            descriptor = file_system.open(self.path, CHECKPOINT_FILE_SIZE)
            try:
                # In place and less than a sector, so that a crash leaves the old timestamps or the new ones.
                data = _TIMESTAMPS.pack(self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
                taken = file_system.pwrite(descriptor, data, 0)
                if taken != len(data):
                    raise OSError(f"{self.path}: only {taken} of {len(data)} bytes were written")
                file_system.fdatasync(descriptor)
            finally:
                file_system.close(descriptor)

    def min_timestamp(self) -> int:
        """Time up to which log and queues are surely on the disk: three seconds before the older, at least 0."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_MARGIN_MS)

    def min_timestamp_with_index(self) -> int:
        """The same with the index: `min_timestamp` or the index's timestamp, whichever is older."""
        return min(self.min_timestamp(), self.index_msg_timestamp)
