"""The extension of one consume queue: facts for filters that do not fit into the 20-byte entry.

Counterpart: `ConsumeQueueExt` (Apache). A unit is size 2, tags code 8, store time 8, bitmap length 2, bitmap. The entry
holds the unit's address instead of the tags code. The short -1 marks the end of the units in a file, and 4 bytes of
every file are reserved for it.

The extension is not essential: if a unit is lost, any filter may want the message. But an address in an entry must
never come to mean another unit.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, MAX_EXT_ADDRESS
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.log.queue_file import QueueFile, QueueMappings

MIN_UNIT_SIZE = 20
MAX_UNIT_SIZE = 0x7FFF
"""Size of a unit in bytes, including its bitmap."""

DEFAULT_EXT_FILE_SIZE = 48 * 1024 * 1024

END_BLANK_SIZE = 4
"""Bytes at the end of every file without units."""

ADDRESS_BASE = -(1 << 63)
"""Address of offset 0. The address of offset n is n more."""

_HEAD = struct.Struct(">hqqh")
_SIZE = struct.Struct(">h")
_END = _SIZE.pack(-1)

_log = Logger()


class CqExtUnit(NamedTuple):
    """Facts about one message: tags code, store time in ms, and the bitmap of matching filters."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes | None = None


def is_ext_address(tags_code: int) -> bool:
    """Return whether the tags code field of a queue entry holds the address of a unit."""
    return tags_code <= MAX_EXT_ADDRESS


def last_address(files: Sequence[QueueFile]) -> int | None:
    """Return the last address in the entries of these queue files, None without one."""
    for file in reversed(files):
        for end in range(file.wrote_position, 0, -CONSUME_QUEUE_UNIT):
            tags_code = int.from_bytes(file.view[end - 8 : end], "big", signed=True)
            if is_ext_address(tags_code):
                return tags_code
    return None


class ConsumeQueueExt:
    """Units of one topic and queue id, in separate files.

    Threads: `put` belongs to the dispatching thread, `flush` to the thread that flushes queues,
    `truncate_by_min_address` to the thread that deletes files. `load`, `recover` and `truncate_by_max_address` belong
    to the thread that starts the store. Any thread may read. Addresses have the form found in entries.
    """

    def __init__(
        self,
        fs: IFileSystem,
        topic: str,
        queue_id: int,
        directory: str,
        file_size: int,
        mappings: QueueMappings | None = None,
    ) -> None:
        """`file_size` is in bytes. Larger units are refused. `mappings` counts the mapped files, also those of others."""
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(fs, directory, file_size, (mappings or QueueMappings()).open_file)
        self._free_from = 0
        self._failing = False

    @property
    def min_address(self) -> int:
        """Address of the first byte present, that of offset 0 without files."""
        return max(self.files.min_offset, 0) + ADDRESS_BASE

    @property
    def max_address(self) -> int:
        """Address after the last unit, that of offset 0 without files."""
        return self.files.max_offset + ADDRESS_BASE

    def put(self, unit: CqExtUnit) -> int | None:
        """Store a unit and return its address. None, after logging the reason, if it cannot be stored.

        The entry then holds the tags code itself, and only the bitmap is lost.
        """
        bitmap = unit.bitmap or b""
        size = MIN_UNIT_SIZE + len(bitmap)
        if size > min(MAX_UNIT_SIZE, self.files.file_size - END_BLANK_SIZE):
            self._refuse(f"a unit of {size} bytes does not fit into a file of {self.files.file_size} bytes")
            return None
        data = _HEAD.pack(size, unit.tags_code, unit.store_timestamp, len(bitmap)) + bitmap
        try:
            file = self._file_for(size)
            if file is None:
                self._refuse("all addresses are used up")
                return None
            offset = file.file_from_offset + file.wrote_position
            file.append(data)
        except OSError as error:
            self._refuse(str(error))
            return None
        self._failing = False
        return offset + ADDRESS_BASE

    def extend(self, tags_code: int, store_timestamp: int, bitmap: bytes | None) -> int:
        """Store a unit and return its address, or return the tags code if it cannot be stored."""
        address = self.put(CqExtUnit(tags_code, store_timestamp, bitmap))
        return tags_code if address is None else address

    def get(self, address: int) -> CqExtUnit | None:
        """Return the unit at an address, None if it is missing or damaged."""
        offset = address - ADDRESS_BASE
        file = self.files.find(offset) if is_ext_address(address) else None
        return None if file is None else self._unit_at(file, offset - file.file_from_offset)

    def load(self) -> None:
        """Map the existing files. `recover` must follow. Raises StoreFileSizeError, OSError."""
        self.files.load()

    def recover(self, max_address: int | None) -> None:
        """Find the end of the units: after the unit with the highest address in an entry (`max_address`, None without
        one).

        Only if that unit is lost, the other units of the last file are walked. Bytes that entries still point to are
        never written again. Raises OSError.
        """
        wanted = -1 if max_address is None or not is_ext_address(max_address) else max_address - ADDRESS_BASE
        # In any state of the files, new units begin after this.
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
                    "the extension of queue {topic}-{queue} lacks units from {end} to {wanted}, although entries point to "
                    "them: filters let those messages pass",
                    topic=self.topic,
                    queue=self.queue_id,
                    end=end,
                    wanted=wanted,
                )
                file.end_file(_END)

    def truncate_by_min_address(self, address: int) -> None:
        """Delete the files before the one with the address of the queue's first entry, but never the last file.

        If a file cannot be deleted, it and the later ones stay, and the reason is logged.
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
        """Drop the units after that of the queue's last entry. Raises OSError."""
        unit = self.get(address)
        if unit is not None:
            self._free_from = 0
            self.files.truncate(address - ADDRESS_BASE + _size_of(unit), clear=True)

    def flush(self, least_pages: int) -> bool:
        """Flush the units, unless they are fewer than `least_pages` pages. Return whether all are on disk."""
        return self.files.flush(least_pages)

    def forget_flushed(self) -> None:
        """Flush the last files again: data readable after a crash may not be on disk."""
        for file in self.files.files[-2:]:
            self.files.forget_flushed(file.file_from_offset)

    def destroy(self) -> None:
        """Remove all files."""
        self.files.destroy()
        self._free_from = 0

    def _file_for(self, size: int) -> QueueFile | None:
        """Return the file with space for a unit, created if necessary. None if all addresses are used up."""
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
            # Cut off by a crash. The tags code cannot be trusted, so filters must not see it.
            return None
        bitmap = bytes(file.view[position + MIN_UNIT_SIZE : end]) if bitmap_size else None
        return CqExtUnit(tags_code, store_timestamp, bitmap)

    @classmethod
    def _walk(cls, file: QueueFile) -> int:
        """Return the position after the last of the adjacent units of a file."""
        position = 0
        while (unit := cls._unit_at(file, position)) is not None:
            position += _size_of(unit)
        return position


def _size_of(unit: CqExtUnit) -> int:
    return MIN_UNIT_SIZE + len(unit.bitmap or b"")
