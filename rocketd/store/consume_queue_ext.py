"""The extension of one consume queue: what a filter wants to know of a message, besides its 20-byte entry.

Answers to Apache's `ConsumeQueueExt`. A unit is size 2, tags code 8, store time 8, bitmap length 2, bitmap; the entry
then holds the unit's address in the place of the tags code. Where no unit follows in a file stands the short -1, and
every file keeps 4 bytes for it. Nothing that matters depends on the extension: of a message whose unit is lost no more
is known than that any filter may want it. But an address that an entry holds never comes to mean another unit.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.filesystem import IFileSystem
from rocketd.store.layout import CONSUME_QUEUE_UNIT, MAX_EXT_ADDRESS
from rocketd.store.mapped_file import QueueFile
from rocketd.store.mapped_file_queue import MappedFileQueue

MIN_UNIT_SIZE = 20
MAX_UNIT_SIZE = 0x7FFF
"""Bytes of a unit, its bitmap included."""

DEFAULT_EXT_FILE_SIZE = 48 * 1024 * 1024

END_BLANK_SIZE = 4
"""Bytes of every file that no unit reaches into."""

ADDRESS_BASE = -(1 << 63)
"""Address of offset 0; that of offset n is n more."""

_HEAD = struct.Struct(">hqqh")
_SIZE = struct.Struct(">h")
_END = _SIZE.pack(-1)

_log = Logger()


class CqExtUnit(NamedTuple):
    """What is kept of one message: tags code, store time in ms, and the bitmap of the filters that match it."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes | None = None


def is_ext_address(tags_code: int) -> bool:
    """Whether what a queue entry holds in the place of its tags code is the address of a unit."""
    return tags_code <= MAX_EXT_ADDRESS


def last_address(files: Sequence[QueueFile]) -> int | None:
    """The last address that an entry in these files of a queue holds, None where none does."""
    for file in reversed(files):
        for end in range(file.wrote_position, 0, -CONSUME_QUEUE_UNIT):
            tags_code = int.from_bytes(file.view[end - 8 : end], "big", signed=True)
            if is_ext_address(tags_code):
                return tags_code
    return None


class ConsumeQueueExt:
    """Units of one topic and queue id, in files of their own.

    Threads: `put` belongs to the dispatching thread, `flush` to the one that flushes queues, `truncate_by_min_address`
    to the one that deletes files, `load`, `recover` and `truncate_by_max_address` to the one that starts the store;
    reading may be done by any thread. Addresses are as entries hold them.
    """

    def __init__(self, fs: IFileSystem, topic: str, queue_id: int, directory: str, file_size: int) -> None:
        """`file_size` in bytes; units that do not fit into a file of this size are refused."""
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(fs, directory, file_size, QueueFile)
        self._free_from = 0
        self._failing = False

    @property
    def min_address(self) -> int:
        """Address of the first byte there is, that of offset 0 without files."""
        return max(self.files.min_offset, 0) + ADDRESS_BASE

    @property
    def max_address(self) -> int:
        """Address behind the last unit, that of offset 0 without files."""
        return self.files.max_offset + ADDRESS_BASE

    def put(self, unit: CqExtUnit) -> int | None:
        """Store a unit and return its address; None, with a line in the log, when it cannot be stored.

        The entry then holds the tags code itself, and nothing but the bitmap is lost.
        """
        bitmap = unit.bitmap or b""
        size = MIN_UNIT_SIZE + len(bitmap)
        if size > min(MAX_UNIT_SIZE, self.files.file_size - END_BLANK_SIZE):
            self._refuse(f"a unit of {size} bytes does not fit into a file of {self.files.file_size}")
            return None
        data = _HEAD.pack(size, unit.tags_code, unit.store_timestamp, len(bitmap)) + bitmap
        try:
            file = self._file_for(size)
            if file is None:
                self._refuse("there are no addresses left")
                return None
            offset = file.file_from_offset + file.wrote_position
            file.append(data)
        except OSError as error:
            self._refuse(str(error))
            return None
        self._failing = False
        return offset + ADDRESS_BASE

    def extend(self, tags_code: int, store_timestamp: int, bitmap: bytes | None) -> int:
        """Store a unit and return its address, or the tags code when it cannot be stored."""
        address = self.put(CqExtUnit(tags_code, store_timestamp, bitmap))
        return tags_code if address is None else address

    def get(self, address: int) -> CqExtUnit | None:
        """The unit at an address; None when there is none, not yet, no longer, or when its bytes are lost."""
        offset = address - ADDRESS_BASE
        file = self.files.find(offset) if is_ext_address(address) else None
        return None if file is None else self._unit_at(file, offset - file.file_from_offset)

    def load(self) -> None:
        """Map the files there are; `recover` must follow. Raises StoreFileSizeError, OSError."""
        self.files.load()

    def recover(self, max_address: int | None) -> None:
        """Find the end of the units: behind the one with the highest address that an entry holds, None without such.

        Only where that unit is lost are the others of the last file walked. What an entry still leads to is then
        never written again. Raises OSError.
        """
        wanted = -1 if max_address is None or not is_ext_address(max_address) else max_address - ADDRESS_BASE
        # Whatever has become of the files: no new unit begins before this.
        self._free_from = wanted + 1
        unit = None if max_address is None else self.get(max_address)
        if unit is not None:
            self.files.truncate(wanted + _size_of(unit), clear=True)
            self.files.flushed_where = self.files.max_offset
        elif (file := self.files.last) is not None:
            end = file.file_from_offset + self._walk(file)
            self.files.truncate(end, clear=end > wanted)
            self.files.flushed_where = end
            if end <= wanted:
                _log.warn(
                    "the extension of queue {topic}-{queue} lacks what entries lead to, from {end} to {wanted}: filters "
                    "let those messages pass",
                    topic=self.topic,
                    queue=self.queue_id,
                    end=end,
                    wanted=wanted,
                )
                file.end_file(_END)

    def truncate_by_min_address(self, address: int) -> None:
        """Delete the files before the one that holds the address of the queue's first entry, but never the last.

        One that cannot be deleted stays, with those behind it and a line in the log.
        """
        if not is_ext_address(address):
            return
        offset = address - ADDRESS_BASE
        while (files := self.files.files) and files[0].file_from_offset + self.files.file_size <= offset:
            try:
                if not self.files.delete_first(files[0]):
                    return
            except OSError as error:
                _log.error("cannot delete {path}: {error}", path=files[0].path, error=error)
                return

    def truncate_by_max_address(self, address: int) -> None:
        """Forget the units behind that of the queue's last entry. Raises OSError."""
        unit = self.get(address)
        if unit is not None:
            self._free_from = 0
            self.files.truncate(address - ADDRESS_BASE + _size_of(unit), clear=True)

    def flush(self, least_pages: int) -> bool:
        """Put the units on the disk, unless they are fewer pages than asked for; returns whether all are there now."""
        return self.files.flush(least_pages)

    def forget_flushed(self) -> None:
        """Have the last files flushed again: what was readable after a crash need not be on the disk."""
        for file in self.files.files[-2:]:
            self.files.forget_flushed(file.file_from_offset)

    def destroy(self) -> None:
        """Remove all files."""
        self.files.destroy()
        self._free_from = 0

    def _file_for(self, size: int) -> QueueFile | None:
        """The file that has room for a unit, made now if need be; None when no addresses are left."""
        file = self.files.last
        file_size = self.files.file_size
        if file is not None and not file.full and file.wrote_position + size + END_BLANK_SIZE > file_size:
            file.end_file(_END)
        if file is None or file.full:
            begin = 0 if file is None else file.file_from_offset + file_size
            begin = max(begin, -(-self._free_from // file_size) * file_size)
            if begin + file_size + ADDRESS_BASE > MAX_EXT_ADDRESS:
                return None
            file = self.files.open_file(begin)
            self.files.add(file)
        return file

    def _refuse(self, cause: str) -> None:
        if not self._failing:
            self._failing = True
            _log.error(
                "cannot extend queue {topic}-{queue}: {cause}", topic=self.topic, queue=self.queue_id, cause=cause
            )

    @staticmethod
    def _unit_at(file: QueueFile, position: int) -> CqExtUnit | None:
        if position + MIN_UNIT_SIZE > file.wrote_position:
            return None
        size, tags_code, store_timestamp, bitmap_size = _HEAD.unpack_from(file.view, position)
        end = position + MIN_UNIT_SIZE + bitmap_size
        if bitmap_size < 0 or position + size != end or end > file.wrote_position:
            return None
        if store_timestamp <= 0:
            # Cut off by a crash: of a tags code that cannot be trusted, a filter must not hear.
            return None
        bitmap = bytes(file.view[position + MIN_UNIT_SIZE : end]) if bitmap_size else None
        return CqExtUnit(tags_code, store_timestamp, bitmap)

    @classmethod
    def _walk(cls, file: QueueFile) -> int:
        """Position behind the last unit of a file whose units follow each other without a gap."""
        position = 0
        while (unit := cls._unit_at(file, position)) is not None:
            position += _size_of(unit)
        return position


def _size_of(unit: CqExtUnit) -> int:
    return MIN_UNIT_SIZE + len(unit.bitmap or b"")
