"""What a slave writes: the bytes of its master's log, at the same offsets.

Answers to Apache's `CommitLog.appendData` and the checks of `HAClient.dispatchReadRequest`. Unlike Apache's, the log of a
slave ends behind a whole record at any time: what has come of the next one waits in memory. And bytes that are no
records at their place are refused, since they come from another log than the one that is here.
"""

import struct

from twisted.logger import Logger

from rocketd.store.append import AppendedGroup
from rocketd.store.commit_log import CommitLog
from rocketd.store.errors import StoreError
from rocketd.store.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC
from rocketd.store.mapped_file import LogFile
from rocketd.store.message import DispatchRequest
from rocketd.store.record import MIN_RECORD_SIZE
from rocketd.store.record_scanner import RecordScanner, ScanEnd

_BEGIN = struct.Struct(">ii")

_log = Logger()


class ReplicaError(StoreError):
    """What the master sent cannot be appended; the text says why and what to do."""


class ReplicaLog:
    """Writer of a slave's log; all of it belongs to the storage thread."""

    def __init__(self, commit_log: CommitLog, scanner: RecordScanner) -> None:
        self._log = commit_log
        self._scanner = scanner
        self._begin = 0
        self._partial = bytearray()

    def begin(self) -> int:
        """Forget what has come of a record, and return the offset from which the master is to send: the log's end."""
        self._partial.clear()
        self._begin = self._log.max_offset
        return self._begin

    def append(self, offset: int, data: bytes) -> AppendedGroup | None:
        """Append the master's bytes from an offset on; the group of the records that are whole now, if there are any.

        An empty log begins at whatever offset comes first, if it is that of a file. Raises ReplicaError, with nothing
        appended, when the bytes do not go on where this log ends, are no records, or the disk refuses them.
        """
        if not self._log.max_offset and not self._log.queue.files and not self._partial:
            self._begin = self._first(offset)
        expected = self._begin + len(self._partial)
        if offset != expected:
            raise ReplicaError(
                f"the master sends from offset {offset}, this log goes on at {expected}: it is another log than the "
                "master's, or some of the master's is gone; move this store away and start again with an empty one"
            )
        self._partial += data
        start = self._begin
        requests: list[DispatchRequest] = []
        while self._partial:
            found, size = self._whole_records()
            if not size:
                break
            self._write(bytes(self._partial[:size]), found)
            requests += found
            self._begin += size
            del self._partial[:size]
        return AppendedGroup(start, self._begin, requests) if self._begin > start else None

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
                scan = self._scanner.scan(view, position, len(view), self._begin, check_crc=False)
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
        offset = self._begin + position
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
        file = self._log.next_file(self._begin)
        if file.file_from_offset + file.wrote_position != self._begin:
            raise ReplicaError(f"{file.path} ends at {file.wrote_position}, where {self._begin} was to be appended")
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
