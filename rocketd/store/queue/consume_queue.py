"""One consume queue: the places in the log of the messages of one topic and queue id.

Counterpart: `ConsumeQueue` (Apache). An entry has 20 bytes: physical offset 8, record size 4, tags code 8. The entry of
queue offset n is at byte 20 n of the queue. In an extended queue, the tags code is replaced by the address of a unit in
the extension.

Threads: `put` belongs to the dispatching thread, `flush` to the thread that flushes queues, `load`, `recover` and
`truncate_dirty` to the thread that starts the store. Any thread may read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from twisted.logger import Logger

from rocketd.common.names import LMQ_PREFIX
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_UNIT, FILLER_SIZE
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.record import stored_topic
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.log.queue_file import QueueFile, QueueMappings
from rocketd.store.queue.consume_queue_ext import ConsumeQueueExt, is_ext_address, last_address
from rocketd.store.queue.request_groups import queue_entries

_FILLER_ENTRY = (0, FILLER_SIZE, 0)
_FILLER = CONSUME_QUEUE_ENTRY.pack(*_FILLER_ENTRY)
_RECOVERED_FILES = 3
MAX_OFFSET = (1 << 63) - 1
MAX_PROVED_TAGS = 256
"""Tags codes remembered of one queue. With more, its codes are not compared with records."""

_log = Logger()


class ConsumeQueue:
    """Entries of one topic and queue id.

    `max_physic_offset` is the end of the last record with an entry, -1 without entries.
    """

    def __init__(
        self,
        fs: IFileSystem,
        topic: str,
        queue_id: int,
        directory: str,
        file_size: int,
        ext: ConsumeQueueExt | None = None,
        extend: bool = False,
        mappings: QueueMappings | None = None,
    ) -> None:
        """`ext` is the extension that entries may point to. With `extend`, new entries point there as well.

        `mappings` counts the mapped files, also those of other queues.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.stored_topic = stored_topic(topic)
        """The topic as its records have it."""
        self.is_light = topic.startswith(LMQ_PREFIX)
        """Whether its records name another queue."""
        self.ext = ext
        self._extend = extend
        self.files = MappedFileQueue(fs, directory, file_size, (mappings or QueueMappings()).open_file)
        self._fs = fs
        self.proved_tags: set[int] | None = None if self.is_light else set()
        """Tags codes that records of this queue have. None if codes are not compared with records. Any thread may add."""
        self._written: dict[QueueFile, list[tuple[int, int]]] = {}
        self._ends: dict[int, int] = {}
        self.max_physic_offset = -1
        self._min_logic_offset = 0

    @property
    def min_offset(self) -> int:
        """Queue offset of the first entry whose record is still present."""
        return self._min_logic_offset // CONSUME_QUEUE_UNIT

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry: the offset of the next message."""
        files = self.files.files
        return (files[-1].file_from_offset + files[-1].wrote_position) // CONSUME_QUEUE_UNIT if files else 0

    def read(self, offset: int) -> Iterator[tuple[int, int, int]] | None:
        """Return an iterator over the entries from a queue offset to the end of its file, None if there are none.

        An entry is (physical offset, size, tags code).
        """
        begin = offset * CONSUME_QUEUE_UNIT
        if begin < self._min_logic_offset:
            return None
        file = self.files.find(begin)
        if file is None or begin >= file.file_from_offset + file.wrote_position:
            return None
        position = begin - file.file_from_offset
        return CONSUME_QUEUE_ENTRY.iter_unpack(file.view[position : file.wrote_position])

    def read_bytes(self, offset: int, count: int) -> bytes:
        """Return at most `count` entries from a queue offset on, as they are stored, all from one file."""
        begin = offset * CONSUME_QUEUE_UNIT
        file = self.files.find(begin)
        if file is None or begin < self._min_logic_offset:
            return b""
        position = begin - file.file_from_offset
        end = position + count * CONSUME_QUEUE_UNIT
        if end > file.wrote_position:
            end = file.wrote_position
        return file.view[position:end].tobytes()

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Return the entry (physical offset, size, tags code) of a queue offset, None if there is none."""
        entries = self.read(offset)
        return None if entries is None else next(entries)

    def prove_tag(self, tags_code: int) -> None:
        """Remember a tags code as that of a record."""
        proved = self.proved_tags
        if proved is not None:
            proved.add(tags_code)
            if len(proved) > MAX_PROVED_TAGS:
                self.proved_tags = None

    def tags_code_of(self, tags_code: int) -> int | None:
        """Return the tags code for the value in an entry. None if the unit is lost: any filter may want the message
        then.
        """
        if not is_ext_address(tags_code):
            return tags_code
        unit = None if self.ext is None else self.ext.get(tags_code)
        return None if unit is None else unit.tags_code

    def next_file_offset(self, offset: int) -> int:
        """Return the queue offset of the first entry in the file after the one with this offset."""
        per_file = self.files.file_size // CONSUME_QUEUE_UNIT
        return offset + per_file - offset % per_file

    def put(self, requests: Sequence[DispatchRequest]) -> None:
        """Add entries for records of this queue, in log order. Raises OSError if the disk is full.

        Records that have their entry already are skipped, so a dispatch cut short by a failure or a crash can be
        repeated.
        """
        first = requests[0]
        last = requests[-1]
        begin = first.queue_offset * CONSUME_QUEUE_UNIT
        files = self.files.files
        file = files[-1] if files else None
        if (
            file is not None
            and begin == file.file_from_offset + file.wrote_position
            and first.physical_offset >= self.max_physic_offset
            and last.queue_offset - first.queue_offset == len(requests) - 1
        ):
            data = self._encode(requests)
            if file.wrote_position + len(data) <= file.file_size:
                file.append(data)
            else:
                self._append(begin, data)
            self.max_physic_offset = last.physical_offset + last.size
            return
        if last.physical_offset + last.size > self.max_physic_offset:
            for request in requests:
                self._put_one(request)

    def _put_one(self, request: DispatchRequest) -> None:
        end = request.physical_offset + request.size
        if end <= self.max_physic_offset:
            return
        begin = request.queue_offset * CONSUME_QUEUE_UNIT
        current = self.files.max_offset
        if self.files.last is not None:
            if begin < current:
                _log.warn(
                    "queue {topic}-{queue} already has entry {offset}; the record at {physical} of the log is skipped",
                    topic=self.topic,
                    queue=self.queue_id,
                    offset=request.queue_offset,
                    physical=request.physical_offset,
                )
                return
            if begin > current:
                _log.error(
                    "queue {topic}-{queue} lacks entries {current} to {offset}; filled with placeholders",
                    topic=self.topic,
                    queue=self.queue_id,
                    current=current // CONSUME_QUEUE_UNIT,
                    offset=request.queue_offset,
                )
                self._append(current, _FILLER * ((begin - current) // CONSUME_QUEUE_UNIT))
        self._append(begin, self._encode((request,)))
        self.max_physic_offset = end

    def _encode(self, requests: Sequence[DispatchRequest]) -> bytes:
        """Return the entries of records. With `extend`, their units are stored first."""
        if not self._extend or self.ext is None:
            return queue_entries(requests)
        pack = CONSUME_QUEUE_ENTRY.pack
        extend = self.ext.extend
        return b"".join(
            [pack(r.physical_offset, r.size, extend(r.tags_code, r.store_timestamp, r.bitmap)) for r in requests]
        )

    def _append(self, begin: int, data: bytes) -> None:
        """Store entries at their byte offset: the end of the queue, or any offset if the queue has no files."""
        size = self.files.file_size
        done = 0
        while done < len(data):
            file = self.files.last
            if file is None or file.full:
                file = self._next_file(begin + done, file)
            taken = min(len(data) - done, size - file.wrote_position)
            file.append(data[done : done + taken] if taken < len(data) else data)
            done += taken

    def _next_file(self, begin: int, last: QueueFile | None) -> QueueFile:
        if last is not None:
            file = self.files.open_file(last.file_from_offset + self.files.file_size)
        else:
            file = self.files.open_file(begin - begin % self.files.file_size)
            if begin:
                # The queue does not start at 0: its earlier messages have expired, or their entries are lost.
                file.append(_FILLER * ((begin - file.file_from_offset) // CONSUME_QUEUE_UNIT))
                self._min_logic_offset = begin
                self.files.flushed_where = begin
        self.files.add(file)
        return file

    def begin_at(self, begin: int) -> None:
        """Make the next entry of a queue without files go to a byte. Raises OSError."""
        self._next_file(begin, None)

    def load(self) -> None:
        """Map the existing files. Raises StoreFileSizeError, OSError."""
        self.files.load(cut_at_empty=True)
        if self.ext is not None:
            self.ext.load()

    def recover(self, clean: bool, limit: int | None = None) -> None:
        """Find the end of the entries and zero everything after it.

        After a clean stop, all entries are present and their end is searched for. After another stop, the entries of
        records before `limit`, an offset of the log, are present. Without a limit, the last three files are read from
        their beginning, because pages in their middle may be lost.
        """
        files = self.files.files
        if not files:
            if self.ext is not None:
                # Its units are not referenced.
                self.ext.destroy()
            return
        if clean:
            end = self.search_end()
        elif limit is not None:
            end = self.search_end(limit)
        else:
            end = self._first_invalid(files[max(0, len(files) - _RECOVERED_FILES) :])
        self._written.clear()
        self._ends.clear()
        self.files.truncate(end, clear=not clean)
        self.files.flushed_where = end
        self.max_physic_offset = self._last_physic_offset()
        if self.ext is not None:
            self.ext.recover(last_address(self.files.files[-_RECOVERED_FILES:]))

    def last_record(self, limit: int = MAX_OFFSET, end: int | None = None) -> tuple[int, int]:
        """Return (begin, end) of the last record before a limit with an entry, (-1, 0) without one.

        As far as known before the recovery. `end` is the byte of the queue after that entry, if it is
        known.
        """
        entry = self.entry_before(self.search_end(limit) if end is None else end)
        return (-1, 0) if entry is None or entry[1] == FILLER_SIZE else (entry[0], entry[0] + entry[1])

    def record_from(self, physical_offset: int) -> int:
        """Return the start of the first record at or after an offset of the log with an entry, MAX_OFFSET without one.

        For use before the recovery.
        """
        entry = self._entry_written(self.search_end(physical_offset))
        return entry[0] if entry[1] > 0 else MAX_OFFSET

    def entry_before(self, end: int) -> tuple[int, int, int] | None:
        """Return the entry that ends at a byte of the queue, None if its file is missing. For use before the recovery."""
        begin = end - CONSUME_QUEUE_UNIT
        return None if self.files.find(begin) is None else self._entry_written(begin)

    def is_zero_behind(self, end: int) -> bool:
        """Return whether all bytes after a byte of the queue are zero. For use before the recovery."""
        for file in self.files.files:
            position = max(0, end - file.file_from_offset)
            for first, last in self._written_in(file):
                begin = max(first, position)
                if last > begin and bytes(file.view[begin:last]) != bytes(last - begin):
                    return False
        return True

    def cut(self, end: int) -> None:
        """Remove the entries from a byte of the queue on. They are gone from the disk when this returns.

        For use before the recovery.
        """
        self._written.clear()
        self._ends.clear()
        files = self.files.files
        if files and end <= files[0].file_from_offset:
            self.files.destroy()
        else:
            self.files.truncate(end, clear=True)

    def forget_flushed(self, physical_offset: int) -> None:
        """Treat the entries of records from an offset of the log on as not flushed."""
        for file in reversed(self.files.files):
            self.files.forget_flushed(file.file_from_offset)
            # The recovery may have emptied the last file.
            if file.wrote_position and self._entry_at(file, 0)[0] < physical_offset:
                break
        if self.ext is not None:
            self.ext.forget_flushed()

    def truncate_dirty(self, physical_offset: int) -> None:
        """Remove the entries of records from a physical offset on."""
        kept = self._index_of(physical_offset)
        if kept is not None:
            self.files.truncate(kept * CONSUME_QUEUE_UNIT, clear=True)
            last = self.files.last
            if last is not None and last.wrote_position == 0:
                last.destroy()
                self.files.files = self.files.files[:-1]
        self.max_physic_offset = self._last_physic_offset()
        if self.ext is not None and (address := last_address(self.files.files[-_RECOVERED_FILES:])) is not None:
            self.ext.truncate_by_max_address(address)

    def correct_min_offset(self, physical_offset: int) -> None:
        """Begin the queue with the first entry whose record is at or after a physical offset, at its end without one.

        The files of its extension before that are deleted.
        """
        first = self._index_of(physical_offset)
        files = self.files.files
        if first is not None:
            self._min_logic_offset = max(first * CONSUME_QUEUE_UNIT, self._filler_end())
        elif files:
            expired = self._expired_end(files, physical_offset)
            self._min_logic_offset = expired if expired >= 0 else max(self.files.min_offset, self._filler_end())
        if self.ext is not None and (entry := self.entry(self.min_offset)) is not None:
            self.ext.truncate_by_min_address(entry[2])

    def flush(self, least_pages: int) -> bool:
        """Flush the entries, unless they are fewer than `least_pages` pages. Return whether all are on disk."""
        # First, so entries are never on disk before their units.
        done = self.ext is None or self.ext.flush(least_pages)
        return self.files.flush(least_pages) and done

    def destroy(self) -> None:
        """Remove all files. Views of them stay readable."""
        self.files.destroy()
        if self.ext is not None:
            self.ext.destroy()
        self.max_physic_offset = -1
        self._min_logic_offset = 0

    def _filler_end(self) -> int:
        """Return the byte offset after the fillers at the beginning of the first file."""
        file = self.files.files[0]
        count = file.wrote_position // CONSUME_QUEUE_UNIT
        if not count or CONSUME_QUEUE_ENTRY.unpack_from(file.view, 0)[1] != FILLER_SIZE:
            return file.file_from_offset
        end = self._search(file, count, lambda entry: entry[1] != FILLER_SIZE)
        return file.file_from_offset + end * CONSUME_QUEUE_UNIT

    def _index_of(self, physical_offset: int) -> int | None:
        """Return the queue offset of the first entry with a record at or after a physical offset, None without one."""
        for file in self.files.files:
            count = file.wrote_position // CONSUME_QUEUE_UNIT
            if count and self._entry_at(file, count - 1)[0] >= physical_offset:
                at = self._search(file, count, lambda entry: entry[0] >= physical_offset)
                return file.file_from_offset // CONSUME_QUEUE_UNIT + at
        return None

    @classmethod
    def _expired_end(cls, files: Sequence[QueueFile], physical_offset: int) -> int:
        """Return the byte after the last entry, -1 unless its record is before a physical offset.

        Placeholders and damaged entries do not show that the records before them are gone. Entries may be put meanwhile.
        """
        for file in reversed(files):
            number = file.wrote_position // CONSUME_QUEUE_UNIT - 1
            if number >= 0:
                offset, size, _ = cls._entry_at(file, number)
                before = cls._entry_at(file, number - 1) if number else _FILLER_ENTRY
                expired = size != FILLER_SIZE and offset < physical_offset and not _is_torn(offset, size, before)
                return file.file_from_offset + (number + 1) * CONSUME_QUEUE_UNIT if expired else -1
        return -1

    @staticmethod
    def _entry_at(file: QueueFile, index: int) -> tuple[int, int, int]:
        physical_offset, size, tags_code = CONSUME_QUEUE_ENTRY.unpack_from(file.view, index * CONSUME_QUEUE_UNIT)
        return physical_offset, size, tags_code

    @classmethod
    def _search(cls, file: QueueFile, count: int, wanted: Callable[[tuple[int, int, int]], bool]) -> int:
        """Return the number of the first wanted one of `count` entries, `count` without one.

        All entries after a wanted one must be wanted as well.
        """
        return bisect_left(range(count), True, key=lambda number: wanted(cls._entry_at(file, number)))

    def _last_physic_offset(self) -> int:
        for file in reversed(self.files.files):
            if file.wrote_position:
                offset, size, _ = CONSUME_QUEUE_ENTRY.unpack_from(file.view, file.wrote_position - CONSUME_QUEUE_UNIT)
                return -1 if size == FILLER_SIZE else offset + size
        return -1

    def search_end(self, limit: int = MAX_OFFSET) -> int:
        """Return the byte of the queue after the last entry of a record before a limit, 0 without files.

        For use before the recovery, which drops the remembered result.
        """
        end = self._ends.get(limit)
        if end is None:
            end = self._ends[limit] = self._search_end(self.files.files, limit)
        return end

    def _search_end(self, files: Sequence[QueueFile], limit: int) -> int:
        def is_beyond(file: QueueFile, number: int) -> bool:
            offset, size, _ = self._entry_in(file, number)
            if size <= 0 or not 0 <= offset < limit:
                return True
            # A crash may have kept only the second part of an entry across two sectors. Its offset is 0 then.
            before = self._entry_in(file, number - 1) if number else _FILLER_ENTRY
            return _is_torn(offset, size, before)

        for file in reversed(files):
            if not is_beyond(file, 0):
                numbers = range(file.file_size // CONSUME_QUEUE_UNIT)
                count = bisect_left(numbers, True, key=lambda number: is_beyond(file, number))
                return file.file_from_offset + count * CONSUME_QUEUE_UNIT
        return files[0].file_from_offset if files else 0

    def _entry_written(self, begin: int) -> tuple[int, int, int]:
        """Return the entry at a byte of the queue, zeros if nothing was written there."""
        file = self.files.find(begin)
        if file is None:
            return 0, 0, 0
        return self._entry_in(file, (begin - file.file_from_offset) // CONSUME_QUEUE_UNIT)

    def _entry_in(self, file: QueueFile, number: int) -> tuple[int, int, int]:
        """Return an entry by its number in a file, zeros if nothing was written there."""
        begin = number * CONSUME_QUEUE_UNIT
        # Do not look at holes: a full memory file system has no space for the zeros of a mapped hole.
        for first, last in self._written_in(file):
            if first <= begin and begin + CONSUME_QUEUE_UNIT <= last:
                return self._entry_at(file, number)
        return 0, 0, 0

    def _written_in(self, file: QueueFile) -> list[tuple[int, int]]:
        """Return (begin, end) of the written ranges of a file. Remembered until the recovery."""
        ranges = self._written.get(file)
        if ranges is None:
            ranges = self._written[file] = self._fs.data_ranges(file.path, 0)
        return ranges

    def _first_invalid(self, files: Sequence[QueueFile]) -> int:
        for file in files:
            ranges = self._written_in(file)
            written = ranges[0][1] if ranges and not ranges[0][0] else 0
            before = _FILLER_ENTRY
            count = written // CONSUME_QUEUE_UNIT
            for number, entry in enumerate(CONSUME_QUEUE_ENTRY.iter_unpack(file.view[: count * CONSUME_QUEUE_UNIT])):
                offset, size, _ = entry
                if offset < 0 or size <= 0 or _is_torn(offset, size, before):
                    return file.file_from_offset + number * CONSUME_QUEUE_UNIT
                before = entry
            if count * CONSUME_QUEUE_UNIT < file.file_size:
                return file.file_from_offset + count * CONSUME_QUEUE_UNIT
        return files[-1].file_from_offset + files[-1].file_size


def _is_torn(offset: int, size: int, before: tuple[int, int, int]) -> bool:
    """Return whether an entry is torn: its record is not after the record of the entry before it."""
    return size != FILLER_SIZE and before[1] != FILLER_SIZE and offset <= before[0]
