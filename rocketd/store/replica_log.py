"""What a slave writes: the bytes of its master's log, at the same offsets.

Answers to Apache's `CommitLog.appendData` and the checks of `HAClient.dispatchReadRequest`. Unlike Apache's, the log of a
slave ends behind a whole record at any time: what has come of the next one waits in memory. The master is asked to send
the last bytes of this log once more, to see that they are its own; they, and bytes that are no records at their place,
show that the two logs have parted.
"""

import struct
from collections.abc import Callable

from twisted.logger import Logger

from rocketd.store.append import AppendedGroup
from rocketd.store.commit_log import CommitLog
from rocketd.store.errors import StoreError
from rocketd.store.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC
from rocketd.store.mapped_file import LogFile
from rocketd.store.message import DispatchRequest
from rocketd.store.record import MIN_RECORD_SIZE
from rocketd.store.record_scanner import RecordScanner, ScanEnd

OVERLAP = 32 * 1024
"""Bytes at the end of the log that the master sends again: the last records, with what no two messages share."""

_BEGIN = struct.Struct(">ii")

_log = Logger()


class ReplicaError(StoreError):
    """What the master sent cannot be appended; the text says why and what to do."""


class ReplicaLog:
    """Writer of a slave's log; all of it belongs to the storage thread.

    ``confirmed`` is the offset up to which this log is known to be the master's.
    """

    def __init__(self, commit_log: CommitLog, scanner: RecordScanner) -> None:
        self._log = commit_log
        self._scanner = scanner
        self._end = 0
        self._partial = bytearray()
        self.confirmed = 0

    def begin(self) -> int:
        """Forget what has come of a record, and return the offset from which the master is to send: in an empty log 0,
        in others somewhat before the end, in the same file.
        """
        self._partial.clear()
        end = self._end = self._log.max_offset
        # Older files may have expired at the master. A report of 0 would say that the log is empty.
        self.confirmed = min(end, max(1, end - OVERLAP, end - end % self._log.file_size, self._log.min_offset))
        return self.confirmed

    def append(self, offset: int, data: bytes, appended: Callable[[AppendedGroup], None]) -> None:
        """Append the master's bytes from an offset on, and tell of the records that are whole now, if there are any.

        What is here already is compared. An empty log begins at whatever offset comes first, if it is that of a file.
        Raises ReplicaError when the bytes do not go on where this log ends, are other than what is here, are no records,
        or the disk refuses them; what was appended before is told of.
        """
        if not self._end and not self._log.queue.files and not self._partial:
            self._end = self.confirmed = self._first(offset)
        expected = self.confirmed + len(self._partial)
        if offset != expected:
            raise ReplicaError(
                f"the master sends from offset {offset}, this log goes on at {expected}: it is another log than the "
                "master's, or some of the master's is gone; move this store away and start again with an empty one"
            )
        if self.confirmed < self._end:
            data = data[self._compare(data) :]
        self._partial += data
        start = self._end
        requests: list[DispatchRequest] = []
        try:
            while self._partial:
                found, size = self._whole_records()
                if not size:
                    break
                self._write(bytes(self._partial[:size]), found)
                requests += found
                self._end += size
                self.confirmed = self._end
                del self._partial[:size]
        finally:
            if self._end > start:
                appended(AppendedGroup(start, self._end, requests))

    def _compare(self, data: bytes) -> int:
        """Compare the first bytes with those that are here; returns how many they are."""
        size = min(len(data), self._end - self.confirmed)
        position = 0
        while position < size:
            here = self._log.data_from(self.confirmed)
            length = 0 if here is None else min(len(here), size - position)
            if here is None or not length or here[:length] != data[position : position + length]:
                raise ReplicaError(
                    f"the master's log has other bytes at {self.confirmed} than this one, which ends at {self._end}: the "
                    "logs have parted; move this store away and start again with an empty one"
                )
            position += length
            self.confirmed += length
        return size

    def _first(self, offset: int) -> int:
        if offset % self._log.file_size:
            raise ReplicaError(
                f"the master begins a file at offset {offset}, which is no multiple of mappedFileSizeCommitLog="
                f"{self._log.file_size} here: set that to what the master has"
            )
        return offset

    def _whole_records(self) -> tuple[list[DispatchRequest], int]:
        """The whole records at hand up to the end of their file, and the size of all that can be written."""
        requests: list[DispatchRequest] = []
        position = 0
        with memoryview(self._partial) as view:
            while True:
                scan = self._scanner.scan(view, position, len(view), self._end, check_crc=False)
                requests += scan.requests
                position = scan.position
                if scan.end is ScanEnd.LIMIT:
                    return requests, position
                if scan.end is not ScanEnd.MORE:
                    return requests, position + self._filler_size(view, position)

    def _filler_size(self, view: memoryview, position: int) -> int:
        """Size of the filler at a position where no whole record is; 0 when more bytes are to come."""
        here = len(view) - position
        if here < _BEGIN.size:
            return 0
        size, magic = _BEGIN.unpack_from(view, position)
        offset = self._end + position
        room = self._log.roll(offset) - offset
        if magic == BLANK_MAGIC and size == room:
            return size if here >= size else 0
        if magic == MESSAGE_MAGIC and MIN_RECORD_SIZE <= size <= room - END_OF_FILE_BLANK and here < size:
            return 0
        raise ReplicaError(
            f"what the master sends at offset {offset} (size {size}, magic {magic & 0xFFFFFFFF:#x}) is no record that fits "
            f"into a file of mappedFileSizeCommitLog={self._log.file_size}: set that to what the master has; if it is, the "
            "two logs have parted: move this store away and start again with an empty one"
        )

    def _write(self, data: bytes, requests: list[DispatchRequest]) -> None:
        file = self._log.next_file(self._end)
        if file.file_from_offset + file.wrote_position != self._end:
            raise ReplicaError(f"{file.path} ends at {file.wrote_position}, where {self._end} was to be appended")
        try:
            file.append(data)
        except OSError as error:
            self._clear(file)
            raise ReplicaError(f"cannot append to {file.path}: {error}") from error
        if requests:
            file.store_timestamp = requests[-1].store_timestamp

    def _clear(self, file: LogFile) -> None:
        try:
            # A part may have been written, and would count at the next recovery.
            file.clear_from(file.wrote_position)
        except OSError as error:
            _log.error("cannot clear the rest of {path}: {error}", path=file.path, error=error)
