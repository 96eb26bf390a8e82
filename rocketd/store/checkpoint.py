"""The store's checkpoint file: up to which store time the log, the queues and the index are on the disk.

Answers to Apache's `StoreCheckpoint`. Promises the same 4096-byte file; a missing or short one reads as zeros, which
makes recovery begin with the oldest file.
"""

import os
import struct
import threading
import zlib
from typing import Final, NamedTuple

from rocketd.store.filesystem import IFileSystem, RealFileSystem
from rocketd.store.last_stop import LastStop

CHECKPOINT_FILE_SIZE: Final = 4096
RECOVERY_MARGIN_MS: Final = 3000
"""Recovery goes back this far behind the time that is known to be on the disk."""

_TIMESTAMPS: Final = struct.Struct(">qqq")

PROGRESS_POSITION: Final = 1024
"""Ours, where Apache's file is never written to."""
_PROGRESS: Final = struct.Struct(">8sqqqqqqqq")
_PROGRESS_MAGIC: Final = b"rocketd\1"
_CHECKSUM: Final = struct.Struct(">I")

_NOTED_POSITION: Final = 2048
_NOTED: Final = struct.Struct(">8sqqq")
_NOTED_MAGIC: Final = b"rocketd\2"


class Progress(NamedTuple):
    """How far the store has come, in offsets of the log; each is the end of a record, whose beginning is `..._last`.

    Up to `flushed` the log is on the disk, up to `durable` the entries of the queues are too, up to `dispatched` they
    have been made. An end of 0 has -1 as its beginning.
    """

    flushed: int
    durable: int
    durable_last: int
    dispatched: int
    dispatched_last: int

    def end(self, last_stop: LastStop) -> int:
        """Up to where log and entries are there for sure, after such a stop."""
        return self.durable if last_stop is LastStop.CRASHED else self.dispatched


class StoreCheckpoint:
    """The three timestamps of the file at `path`, in ms since 1970: read by the constructor, written by `flush`.

    The attributes may be read and set in every thread, each by the one that flushes what it stands for: the flusher of
    the log `physic_msg_timestamp`, that of the queues `logics_msg_timestamp`, those of finished index files
    `index_msg_timestamp`. `progress` is set by the thread that flushes the queues; it is None where none is known, as
    after another program has written the file. `files_noted` says that the notes of the store's files are of this store
    as it is; it is False after another program, too. `flush` waits for the disk: any thread but the reactor's.
    """

    def __init__(self, path: str, file_system: IFileSystem | None = None) -> None:
        self.path = path
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.progress: Progress | None = None
        self.files_noted = False
        self._written = (0, 0, 0)
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
        ) = self._written = _TIMESTAMPS.unpack(data[: _TIMESTAMPS.size].ljust(_TIMESTAMPS.size, b"\0"))
        progress = self._read(_PROGRESS, _PROGRESS_MAGIC, data[PROGRESS_POSITION:])
        self.progress = None if progress is None else Progress(*progress)
        self.files_noted = self._read(_NOTED, _NOTED_MAGIC, data[_NOTED_POSITION:]) is not None

    def _read(self, layout: struct.Struct, magic: bytes, data: bytes) -> list[int] | None:
        """What stands behind the timestamps in a part of ours; None where it is not valid."""
        packed = data[: layout.size]
        checksum = data[layout.size : layout.size + _CHECKSUM.size]
        if len(checksum) < _CHECKSUM.size or _CHECKSUM.unpack(checksum)[0] != zlib.crc32(packed):
            return None
        found, *numbers = layout.unpack(packed)
        # Apache's program keeps our bytes but writes its own timestamps: then they are of the past.
        if found != magic or tuple(numbers[:3]) != self._written:
            return None
        return numbers[3:]

    def flush(self) -> None:
        """Write all and wait until it is on the disk. Makes file and directory; raises OSError."""
        self._write(wait=True)

    def go_back_to(self, timestamp: int) -> None:
        """Say, on the disk when this returns, that queues and index may lack what was stored from a time in ms on. Raises
        OSError.
        """
        if self.progress is not None or self.logics_msg_timestamp > timestamp:
            self.progress = None
            self.logics_msg_timestamp = min(self.logics_msg_timestamp, timestamp)
            self.flush()

    def note_progress(self) -> None:
        """Write the progress alone, which a crash of the system may lose. Raises OSError."""
        self._write(wait=False)

    def _write(self, wait: bool) -> None:
        file_system = self._file_system
        with self._flushing:
            parent = os.path.dirname(self.path)
            if parent:
                file_system.makedirs(parent)
            descriptor = file_system.open(self.path, CHECKPOINT_FILE_SIZE)
            try:
                # In place and less than a sector, so that a crash leaves the old timestamps or the new ones.
                if wait:
                    written = (self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
                    self._put(descriptor, _TIMESTAMPS.pack(*written), 0)
                    self._written = written
                progress, noted = self.progress, self.files_noted
                packed = b"" if progress is None else _PROGRESS.pack(_PROGRESS_MAGIC, *self._written, *progress)
                self._put_ours(descriptor, packed, _PROGRESS, PROGRESS_POSITION, wait)
                packed = _NOTED.pack(_NOTED_MAGIC, *self._written) if noted else b""
                self._put_ours(descriptor, packed, _NOTED, _NOTED_POSITION, wait)
                if wait:
                    file_system.fdatasync(descriptor)
            finally:
                file_system.close(descriptor)

    def _put_ours(self, descriptor: int, packed: bytes, layout: struct.Struct, position: int, always: bool) -> None:
        if packed:
            self._put(descriptor, packed + _CHECKSUM.pack(zlib.crc32(packed)), position)
        elif always:
            # An older one must not be believed.
            self._put(descriptor, bytes(layout.size + _CHECKSUM.size), position)

    def _put(self, descriptor: int, data: bytes, position: int) -> None:
        taken = self._file_system.pwrite(descriptor, data, position)
        if taken != len(data):
            raise OSError(f"{self.path}: only {taken} of {len(data)} bytes were written")

    def min_timestamp(self) -> int:
        """Time up to which log and queues are surely on the disk: three seconds before the older, at least 0."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_MARGIN_MS)

    def min_timestamp_with_index(self) -> int:
        """The same with the index: `min_timestamp` or the index's timestamp, whichever is older."""
        return min(self.min_timestamp(), self.index_msg_timestamp)
