"""The store's checkpoint file: the store times up to which the log, the queues and the index are on disk.

Counterpart: `StoreCheckpoint` (Apache), with the same 4096-byte file. A missing or short file reads as zeros, so
recovery begins with the oldest log file.
"""

import os
import struct
import threading
import zlib
from typing import Final, NamedTuple

from rocketd.store.base.filesystem import IFileSystem, RealFileSystem
from rocketd.store.state.last_stop import LastStop

CHECKPOINT_FILE_SIZE: Final = 4096
RECOVERY_MARGIN_MS: Final = 3000
"""Recovery goes back this far before the time known to be on disk."""

_TIMESTAMPS: Final = struct.Struct(">qqq")

PROGRESS_POSITION: Final = 1024
"""Position of our own data. Apache never writes to this part of its file."""
_PROGRESS: Final = struct.Struct(">8sqqqqqqqq")
_PROGRESS_MAGIC: Final = b"rocketd\1"
_CHECKSUM: Final = struct.Struct(">I")

_NOTED_POSITION: Final = 2048
_NOTED: Final = struct.Struct(">8sqqq")
_NOTED_MAGIC: Final = b"rocketd\2"


class DispatchProgress(NamedTuple):
    """Progress of the store in offsets of the log. Each is the end of a record; `..._last` is the start of that record.

    - `flushed`: the log is on disk up to here.
    - `durable`: the log and the queue entries are on disk up to here.
    - `dispatched`: queue entries have been made up to here.

    The begin that belongs to an end of 0 is -1.
    """

    flushed: int
    durable: int
    durable_last: int
    dispatched: int
    dispatched_last: int

    def end(self, last_stop: LastStop) -> int:
        """Return the offset up to which log and entries are certainly present after such a stop."""
        return self.durable if last_stop is LastStop.CRASHED else self.dispatched


class StoreCheckpoint:
    """The three timestamps of the file at `path`, in ms since 1970. The constructor reads them, `flush` writes them.

    All threads may read the attributes. Each is set by the thread that flushes the data behind it:

    - `physic_msg_timestamp` by the flusher of the log,
    - `logics_msg_timestamp` and `progress` by the flusher of the queues,
    - `index_msg_timestamp` by the flushers of finished index files.

    `progress` is None if it is unknown, as after another program wrote the file. `files_noted` tells that the notes of
    the store's files match this store; it is False after another program as well. `flush` waits for the disk: do not
    call it on the reactor thread.
    """

    def __init__(self, path: str, file_system: IFileSystem | None = None) -> None:
        self.path = path
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.progress: DispatchProgress | None = None
        self.files_noted = False
        self._written = (0, 0, 0)
        self._file_system = file_system or RealFileSystem()
        self._flushing = threading.Lock()
        self.load()

    def load(self) -> None:
        """Read the file. Missing values are 0. Raises OSError if it exists but cannot be read."""
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
        self.progress = None if progress is None else DispatchProgress(*progress)
        self.files_noted = self._read(_NOTED, _NOTED_MAGIC, data[_NOTED_POSITION:]) is not None

    def _read(self, layout: struct.Struct, magic: bytes, data: bytes) -> list[int] | None:
        """Return the numbers after the timestamps in a part of our own, None if the part is not valid."""
        packed = data[: layout.size]
        checksum = data[layout.size : layout.size + _CHECKSUM.size]
        if len(checksum) < _CHECKSUM.size or _CHECKSUM.unpack(checksum)[0] != zlib.crc32(packed):
            return None
        found, *numbers = layout.unpack(packed)
        # Apache keeps our bytes but writes its own timestamps. Our bytes are outdated then.
        if found != magic or tuple(numbers[:3]) != self._written:
            return None
        return numbers[3:]

    def flush(self) -> None:
        """Write all values and wait until they are on disk. Creates file and directory. Raises OSError."""
        self._write(wait=True)

    def set_back_to(self, timestamp: int) -> None:
        """Record that queues and index may lack messages stored at or after a time in ms. Raises OSError.

        The record is on disk when this returns.
        """
        if self.progress is not None or self.logics_msg_timestamp > timestamp:
            self.progress = None
            self.logics_msg_timestamp = min(self.logics_msg_timestamp, timestamp)
            self.flush()

    def limit_to(self, now: int) -> None:
        """Lower times after the present one, in ms, because the clock was set back. Raises OSError.

        Later records are stored at such times but are not on disk yet. The lower times are on disk when this returns.
        """
        if max(self.physic_msg_timestamp, self.logics_msg_timestamp) > now:
            self.physic_msg_timestamp = min(self.physic_msg_timestamp, now)
            self.logics_msg_timestamp = min(self.logics_msg_timestamp, now)
            self.flush()

    def note_progress(self) -> None:
        """Write the progress only, without waiting for the disk: a crash of the system may lose it. Raises OSError."""
        self._write(wait=False)

    def _write(self, wait: bool) -> None:
        file_system = self._file_system
        with self._flushing:
            parent = os.path.dirname(self.path)
            if parent:
                file_system.makedirs(parent)
            descriptor = file_system.open(self.path, CHECKPOINT_FILE_SIZE)
            try:
                # In place and within one sector, so a crash leaves the old timestamps or the new ones.
                if wait:
                    written = (self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
                    self._put(descriptor, _TIMESTAMPS.pack(*written), 0)
                    self._written = written
                progress, noted = self.progress, self.files_noted
                packed = b"" if progress is None else _PROGRESS.pack(_PROGRESS_MAGIC, *self._written, *progress)
                self._write_own_part(descriptor, packed, _PROGRESS, PROGRESS_POSITION, wait)
                packed = _NOTED.pack(_NOTED_MAGIC, *self._written) if noted else b""
                self._write_own_part(descriptor, packed, _NOTED, _NOTED_POSITION, wait)
                if wait:
                    file_system.fdatasync(descriptor)
            finally:
                file_system.close(descriptor)

    def _write_own_part(
        self, descriptor: int, packed: bytes, layout: struct.Struct, position: int, always: bool
    ) -> None:
        if packed:
            self._put(descriptor, packed + _CHECKSUM.pack(zlib.crc32(packed)), position)
        elif always:
            # Invalidate the older one.
            self._put(descriptor, bytes(layout.size + _CHECKSUM.size), position)

    def _put(self, descriptor: int, data: bytes, position: int) -> None:
        taken = self._file_system.pwrite(descriptor, data, position)
        if taken != len(data):
            raise OSError(f"{self.path}: only {taken} of {len(data)} bytes were written")

    def min_timestamp(self) -> int:
        """Return the time up to which log and queues are certainly on disk: three seconds before the older, at least 0."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_MARGIN_MS)

    def min_timestamp_with_index(self) -> int:
        """Return the older of `min_timestamp` and the index's timestamp."""
        return min(self.min_timestamp(), self.index_msg_timestamp)
