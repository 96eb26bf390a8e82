"""The log of a slave: the bytes of its master's log, at the same offsets.

Counterpart: `CommitLog.appendData` and the checks of `HAClient.dispatchReadRequest` (Apache). Unlike Apache, a slave's
log always ends after a whole record; the part of the next one waits in memory. The master sends the last bytes of this
log again for comparison. If they differ, or if bytes do not form records at their offset, the two logs have diverged.
"""

import struct
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.store.base.errors import StoreError
from rocketd.store.base.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.record import MIN_RECORD_SIZE
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from rocketd.store.log.append import AppendedGroup
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.mapped_file import LogFile

OVERLAP = 32 * 1024
"""Bytes at the end of the log requested again: the last records, with properties unique to each message."""

_BEGIN = struct.Struct(">ii")

_log = Logger()


class ReplicaError(StoreError):
    """Bytes of the master cannot be appended. The text has the reason and the next step."""


class ReplicaLog:
    """Writer of a slave's log. Belongs to the storage thread.

    ``confirmed`` is the offset up to which this log is known to equal the master's.
    """

    def __init__(self, commit_log: CommitLog, scanner: RecordScanner) -> None:
        self._log = commit_log
        self._scanner = scanner
        self._end = 0
        self._partial = bytearray()
        self._needed = 0
        """The number of bytes from the end of this log on without which no further record is whole."""
        self.confirmed = 0

    def begin(self) -> int:
        """Drop the part of a record received, and return the offset to request from the master.

        The offset is 0 in an empty log, otherwise somewhat before the end, in the same file.
        """
        self._partial.clear()
        end = self._end = self._log.max_offset
        # Older files may have expired at the master. A report of 0 would mean that the log is empty.
        self.confirmed = min(end, max(1, end - OVERLAP, end - end % self._log.file_size, self._log.min_offset))
        return self.confirmed

    def append(self, offset: int, data: bytes, appended: Callable[[AppendedGroup], None]) -> None:
        """Append the master's bytes from an offset on, and call `appended` with the records that are whole now, if any.

        Bytes already present are compared. An empty log begins at the first offset received, if a file can begin there.

        Raises ReplicaError, after `appended` was called for the bytes appended before, if the bytes

        - do not continue this log,
        - differ from the bytes present,
        - do not form records,
        - or cannot be written.
        """
        if not self._end and not self._log.queue.files and not self._partial:
            self._end = self.confirmed = self._first(offset)
        expected = self.confirmed + len(self._partial)
        if offset != expected:
            raise ReplicaError(
                f"the master sends from offset {offset}, but this log goes on at {expected}: the two logs differ, or "
                "the master has lost a part of its log; move this store away and start again with an empty one"
            )
        if self.confirmed < self._end:
            data = data[self._compare(data) :]
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data = bytes(self._partial)
        start = self._end
        requests: list[DispatchRequest] = []
        position = 0
        try:
            while position < len(data):
                found, end = self._whole_records(data, position, start)
                if end == position:
                    break
                self._write(data if end - position == len(data) else data[position:end], found)
                requests += found
                position = end
                self.confirmed = self._end = start + end
        finally:
            self._partial = bytearray(data[position:])
            if position:
                appended(AppendedGroup(start, self._end, requests))

    def _compare(self, data: bytes) -> int:
        """Compare the first bytes with the bytes present. Return the number of bytes compared."""
        size = min(len(data), self._end - self.confirmed)
        position = 0
        while position < size:
            here = self._log.data_from(self.confirmed)
            length = 0 if here is None else min(len(here), size - position)
            if here is None or not length or here[:length] != data[position : position + length]:
                raise ReplicaError(
                    f"the master's log has other bytes at {self.confirmed} than this one, which ends at {self._end}: "
                    "the logs have diverged; move this store away and start again with an empty one"
                )
            position += length
            self.confirmed += length
        return size

    def _first(self, offset: int) -> int:
        if offset % self._log.file_size:
            raise ReplicaError(
                f"the master begins a file at offset {offset}, not a multiple of mappedFileSizeCommitLog="
                f"{self._log.file_size} here: set it to the master's value"
            )
        return offset

    def _whole_records(self, data: bytes, position: int, begin: int) -> tuple[list[DispatchRequest], int]:
        """Return the whole records from a position up to the end of their file, and the end of what can be written.

        The data starts at the offset ``begin``.
        """
        requests: list[DispatchRequest] = []
        with memoryview(data) as view:
            while True:
                scan = self._scanner.scan(view, position, len(view), begin, check_crc=False)
                requests += scan.requests
                position = scan.position
                if scan.end is ScanEnd.LIMIT:
                    self._needed = 0
                    return requests, position
                if scan.end is not ScanEnd.MORE:
                    return requests, position + self._filler_size(view, position, begin + position)

    def _filler_size(self, view: memoryview, position: int, offset: int) -> int:
        """Return the size of the filler at a position without a whole record, 0 if more bytes must come."""
        here = len(view) - position
        if here < _BEGIN.size:
            self._needed = _BEGIN.size
            return 0
        size, magic = _BEGIN.unpack_from(view, position)
        room = self._log.roll(offset) - offset
        self._needed = size
        if magic == BLANK_MAGIC and size == room:
            return size if here >= size else 0
        if magic == MESSAGE_MAGIC and MIN_RECORD_SIZE <= size <= room - END_OF_FILE_BLANK and here < size:
            return 0
        raise ReplicaError(
            f"the bytes from the master at offset {offset} (size {size}, magic {magic & 0xFFFFFFFF:#x}) are not a record "
            f"that fits into a file of mappedFileSizeCommitLog={self._log.file_size}: set it to the master's value; if it "
            "is the same, the two logs have diverged: move this store away and start again with an empty one"
        )

    def _write(self, data: bytes, requests: list[DispatchRequest]) -> None:
        file = self._log.next_file(self._end)
        if file.file_from_offset + file.wrote_position != self._end:
            raise ReplicaError(f"{file.path} ends at {file.wrote_position}, but offset {self._end} has to be appended")
        try:
            file.append(data)
        except OSError as error:
            self._clear(file)
            raise ReplicaError(f"cannot append to {file.path}: {error}") from error
        if requests:
            file.store_timestamp = requests[-1].store_timestamp

    def _clear(self, file: LogFile) -> None:
        try:
            # A part may have been written and would count at the next recovery.
            file.clear_from(file.wrote_position)
        except OSError as error:
            _log.error("cannot clear the rest of {path}: {error}", path=file.path, error=error)
