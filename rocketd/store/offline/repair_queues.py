"""Builds consume queues from the log of a stopped store.

Apache dispatches a lost queue again at a start after a crash. Here an old entry is kept if no record of the log claims its
queue offset, and if it points to a whole record, even one with another queue offset. No checksum tells which of the two is
right.
"""

import os
from collections.abc import Callable

from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_UNIT, FILLER_SIZE, offset_to_file_name
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.offline.stopped_store import LogReader, QueueReader

_FILLER = CONSUME_QUEUE_ENTRY.pack(0, FILLER_SIZE, 0)
_BUFFER = 200 * CONSUME_QUEUE_UNIT

LIKELY_GAP = 1000
"""Most entries that may be lost in one place on the evidence of a single record."""


class QueueBuilder:
    """Writes the files of one queue into a directory, from the records of the log in order.

    If a record's queue offset does not follow that of the last one, the record may be damaged itself. It is taken only
    if the old queue or the next record agrees.
    """

    def __init__(
        self, fs: IFileSystem, old: QueueReader, directory: str, log: LogReader, is_damaged: Callable[[int], bool]
    ) -> None:
        """`is_damaged` tells whether a record was at an offset but is not readable any more."""
        self.directory = directory
        self.old = old
        self._fs = fs
        self._log = log
        self._is_damaged = is_damaged
        self._file_size = -(-old.file_size // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT
        self._pending: DispatchRequest | None = None
        self._next = -1
        self._highest = -1
        self._buffer = bytearray()
        self._buffer_at = 0
        if old.segments:
            old.find_end()
            self._copy_expired()

    def put(self, request: DispatchRequest) -> None:
        """Take the next record of the queue. Raises OSError."""
        if request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
            return
        index = request.queue_offset
        pending, self._pending = self._pending, None
        if pending is not None and self._is_likely(pending, index):
            self._write(pending)
        if index == self._next or (self._next >= 0 and self._is_in_old(request)):
            self._write(request)
        else:
            self._pending = request

    def finish(self) -> bool:
        """Flush everything to the disk. Return whether the queue has entries. Raises OSError."""
        if self._pending is not None and self._is_likely(self._pending, None):
            self._write(self._pending)
        self._pending = None
        while 0 <= self._next < self.old.end and self._points_to_damage(self._next):
            # The number of a message that is merely unreadable must not be given to the next message.
            self._append(self._kept(self._next))
        if self._next < 0 or self._highest < 0:
            return False
        self._flush()
        self._cut()
        for name in self._fs.listdir(self.directory):
            fd = self._fs.open(os.path.join(self.directory, name))
            try:
                self._fs.fdatasync(fd)
            finally:
                self._fs.close(fd)
        self._fs.sync_dir(self.directory)
        return True

    def _copy_expired(self) -> None:
        """Start with the entries of expired records: they keep the numbers of the later ones."""
        old = self.old
        self._next = old.begin
        first = old.begin
        while first < old.end:
            entry = old.entry(first)
            if entry is None or min(entry[:2]) < 0 or not entry[1]:
                break
            if entry[1] != FILLER_SIZE and entry[0] >= self._log.min_offset:
                break
            first += 1
        # Fillers before live records are added together with these.
        while first > old.begin and (entry := old.entry(first - 1)) is not None and entry[1] == FILLER_SIZE:
            first -= 1
        for index in range(old.begin, first):
            entry = old.entry(index)
            assert entry is not None
            self._append(CONSUME_QUEUE_ENTRY.pack(*entry))

    def _is_in_old(self, request: DispatchRequest) -> bool:
        """Return whether the old queue has the record at its place."""
        entry = self.old.entry(request.queue_offset) if request.queue_offset < self.old.end else None
        return entry is not None and entry[:2] == (request.physical_offset, request.size)

    def _is_likely(self, request: DispatchRequest, following: int | None) -> bool:
        """Return whether a record out of order is in its place, given the queue offset of the next one."""
        index = request.queue_offset
        if index < 0 or following == self._next:
            return False
        if following == index + 1 or self._is_in_old(request):
            return True
        if self._next < 0:
            return following is None or index < following
        return index == 0 or 0 < index - self._next <= LIKELY_GAP

    def _write(self, request: DispatchRequest) -> None:
        index = request.queue_offset
        if self._next < 0:
            self._next = index - index % (self._file_size // CONSUME_QUEUE_UNIT)
        if index < self._next:
            # The topic was deleted and recreated.
            self._flush()
            self._next = index
        while self._next < index:
            self._append(self._kept(self._next))
        self._append(CONSUME_QUEUE_ENTRY.pack(request.physical_offset, request.size, request.tags_code))

    def _kept(self, index: int) -> bytes:
        """Return the entry for a number not claimed by any record of the log."""
        entry = self.old.entry(index) if self.old.begin <= index < self.old.end else None
        if entry is None or entry[1] <= 0 or entry[1] == FILLER_SIZE or entry[0] < 0:
            return _FILLER
        record = self._log.record_at(entry[0])
        whole = record is not None and record.size == entry[1]
        return CONSUME_QUEUE_ENTRY.pack(*entry) if whole or self._is_damaged(entry[0]) else _FILLER

    def _points_to_damage(self, index: int) -> bool:
        entry = self.old.entry(index)
        return entry is not None and entry[1] > 0 and self._is_damaged(entry[0])

    def _append(self, data: bytes) -> None:
        if not self._buffer:
            self._buffer_at = self._next
        self._buffer += data
        self._next += 1
        self._highest = max(self._highest, self._next)
        if len(self._buffer) >= _BUFFER or self._next * CONSUME_QUEUE_UNIT % self._file_size == 0:
            self._flush()

    def _flush(self) -> None:
        if self._buffer:
            offset = self._buffer_at * CONSUME_QUEUE_UNIT
            position = offset % self._file_size
            self._fs.makedirs(self.directory)
            path = os.path.join(self.directory, offset_to_file_name(offset - position))
            fd = self._fs.open(path, self._file_size)
            try:
                write_all(self._fs, fd, bytes(self._buffer), position)
            finally:
                self._fs.close(fd)
            self._buffer.clear()

    def _cut(self) -> None:
        """Remove the rest after the end, left by a queue that restarted."""
        end = self._next * CONSUME_QUEUE_UNIT
        for name in self._fs.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if int(name) >= end:
                self._fs.remove(path)
            elif int(name) + self._file_size > end:
                fd = self._fs.open(path)
                try:
                    self._fs.clear_from(fd, end - int(name))
                finally:
                    self._fs.close(fd)


def write_all(fs: IFileSystem, fd: int, data: bytes, offset: int) -> None:
    """Write all of the data at an offset. Raises OSError."""
    done = 0
    while done < len(data):
        taken = fs.pwrite(fd, data[done:], offset + done)
        if taken <= 0:
            raise OSError(f"only {done} of {len(data)} bytes were written")
        done += taken
