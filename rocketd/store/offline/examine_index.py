"""Compares the index files of a stopped store with themselves and with its log.

Chains are followed in the order of writing, so one pass finds every entry that does not point to an older entry of its
slot. Entries and log are both in log order, so a second pass beside the log's compares them. Memory: the slots of one
file, 20 MB with the default settings.
"""

import mmap
import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rocketd.common.java_hash import PrefixedHasher
from rocketd.store.base.findings import Disorder, Finding, Remedy, Severity
from rocketd.store.base.search import positions_of
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.properties import fewer_index_keys
from rocketd.store.index.entries import index_key_hash
from rocketd.store.index.layout import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    ENTRY,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    index_file_size,
)
from rocketd.store.offline.examine_queues import DamagedRanges

_MAX_INT = 0x7FFFFFFF
_ENTRIES_PER_SLOT = (DEFAULT_ENTRIES // DEFAULT_SLOTS, 2, 1)


class IndexShape(NamedTuple):
    """Slots and entries of the index files."""

    slots: int
    entries: int


class IndexReader:
    """One index file, mapped for reading. Times in ms, offsets in bytes. Raises OSError, ValueError."""

    def __init__(self, path: str) -> None:
        self.path = path
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(fd).st_size
            if self.size < index_file_size(1, 2):
                raise ValueError(f"the file has {self.size} bytes, too few for an index file")
            self.data = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.index_count,
        ) = HEADER.unpack_from(self.data, 0)
        self.count = max(1, self.index_count)

    def shape(self) -> IndexShape | None:
        """Return slots and entries, derived from the file's length and its newest entry. None if they do not agree."""
        for ratio in _ENTRIES_PER_SLOT:
            slots, rest = divmod(self.size - HEADER_SIZE, SLOT_SIZE + ratio * ENTRY_SIZE)
            if not rest and self._fits(slots):
                return IndexShape(slots, slots * ratio)
        wanted = self.end_offset.to_bytes(8, "big", signed=True)
        if self.count <= 1 or self.end_offset <= 0:
            return None
        for at in positions_of(wanted, self.data, HEADER_SIZE, self.size):
            slots, rest = divmod(at - 4 - HEADER_SIZE - (self.count - 1) * ENTRY_SIZE, SLOT_SIZE)
            if not rest and slots > 0 and self._fits(slots):
                return IndexShape(slots, (self.size - HEADER_SIZE - slots * SLOT_SIZE) // ENTRY_SIZE)
        return None

    def _fits(self, slots: int) -> bool:
        """Return whether the newest entry, or else the first, is where this number of slots would put it."""
        if (self.size - HEADER_SIZE - slots * SLOT_SIZE) % ENTRY_SIZE:
            return False
        if self.count <= 1:
            return True
        for number, offset in ((self.count - 1, self.end_offset), (1, self.begin_offset)):
            at = HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
            if at + ENTRY_SIZE > self.size:
                continue
            key_hash, physical_offset, _, previous = ENTRY.unpack_from(self.data, at)
            if key_hash < 0 or physical_offset != offset or not 0 <= previous < number:
                continue
            (newest,) = SLOT.unpack_from(self.data, HEADER_SIZE + key_hash % slots * SLOT_SIZE)
            if newest == number or (number == 1 and newest >= 1):
                return True
        return False

    def entries(self, shape: IndexShape, first: int = 1) -> Iterator[tuple[int, int, int, int]]:
        """Yield the entries from a number on: key hash, physical offset, time difference, previous entry."""
        begin = HEADER_SIZE + shape.slots * SLOT_SIZE
        stop = min(self.count, (self.size - begin) // ENTRY_SIZE)
        view = memoryview(self.data)
        return ENTRY.iter_unpack(view[begin + first * ENTRY_SIZE : begin + max(first, stop) * ENTRY_SIZE])

    def position_of(self, shape: IndexShape, number: int) -> int:
        """Return the position of an entry in the file."""
        return HEADER_SIZE + shape.slots * SLOT_SIZE + number * ENTRY_SIZE


def check_file(reader: IndexReader, shape: IndexShape, in_doubt: bool) -> Iterator[Finding]:
    """Check one file by itself: header, every chain, every slot.

    `in_doubt`: the process may have ended between entries and header, so slots may point beyond the counted entries.
    """
    if not 0 <= reader.index_count <= shape.entries:
        text = f"the header counts {reader.index_count} entries, there is room for {shape.entries}"
        yield _damage(reader, Disorder.INDEX_HEADER, 36, text)
        return
    newest = array("i", bytes(SLOT_SIZE * shape.slots))
    slots = shape.slots
    first_offset = last_offset = -1
    for number, (key_hash, physical_offset, _, previous) in enumerate(reader.entries(shape), 1):
        if key_hash < 0:
            text = f"entry {number} has the hash {key_hash}"
            yield _damage(reader, Disorder.INDEX_CHAIN, reader.position_of(shape, number), text)
            continue
        slot = key_hash % slots
        if previous != newest[slot]:
            text = f"entry {number} leads to entry {previous}; the one before it in its slot is {newest[slot]}"
            yield _damage(reader, Disorder.INDEX_CHAIN, reader.position_of(shape, number), text)
        newest[slot] = number
        last_offset = physical_offset
        if number == 1:
            first_offset = physical_offset
    used = slots - newest.count(0)
    if sys.byteorder == "little":
        newest.byteswap()
    if memoryview(newest).cast("B") != memoryview(reader.data)[HEADER_SIZE : HEADER_SIZE + slots * SLOT_SIZE]:
        if sys.byteorder == "little":
            newest.byteswap()
        for slot, number in enumerate(newest):
            if HEADER_SIZE + (slot + 1) * SLOT_SIZE > reader.size:
                text = f"the file has {reader.size} bytes, and ends within its {slots} slots"
                yield _damage(reader, Disorder.INDEX_HEADER, reader.size, text)
                return
            (found,) = SLOT.unpack_from(reader.data, HEADER_SIZE + slot * SLOT_SIZE)
            # Entries beyond the count are as good as empty.
            if found != number and (0 < found < reader.count or (number and not (in_doubt and found >= reader.count))):
                text = f"slot {slot} leads to entry {found}, but its newest entry is {number}"
                yield _damage(reader, Disorder.INDEX_CHAIN, HEADER_SIZE + slot * SLOT_SIZE, text)
    if reader.slots_used != used:
        text = f"the header counts {reader.slots_used} slots in use, {used} are"
        yield _damage(reader, Disorder.INDEX_HEADER, 32, text)
    if reader.count > 1 and first_offset != reader.begin_offset:
        text = f"the header says that the first record is at {reader.begin_offset}, the first entry says {first_offset}"
        yield _damage(reader, Disorder.INDEX_HEADER, 16, text)
    if reader.count > 1 and last_offset != reader.end_offset:
        text = f"the header says that the last record is at {reader.end_offset}, the last entry says {last_offset}"
        yield _damage(reader, Disorder.INDEX_HEADER, 24, text)


def _damage(reader: IndexReader, problem: Disorder, position: int, text: str) -> Finding:
    return Finding(Severity.DAMAGE, problem, Remedy.REPAIR, reader.path, position, text)


def _fewer_keys(request: DispatchRequest) -> list[tuple[str, ...]]:
    """Return smaller sets of keys with which the record may validly be indexed."""
    return [keys for keys in fewer_index_keys(request.properties) if keys]


class _At(NamedTuple):
    """The current entry of a comparison."""

    reader: IndexReader
    number: int
    key_hash: int
    physical_offset: int
    difference: int


class IndexCheck:
    """Checks the index against the log: call `record` for each record in order, then `finish`. Both yield findings."""

    def __init__(
        self,
        readers: Sequence[IndexReader],
        shape: IndexShape,
        log_begin: int,
        damaged: DamagedRanges,
        replayed_from: int,
    ) -> None:
        """`readers` are ordered by age. Records from `replayed_from` on are indexed at the next start if necessary."""
        self._shape = shape
        self._damaged = damaged
        self._replayed_from = replayed_from
        self._entries = self._all(readers, log_begin)
        self._hasher = PrefixedHasher()
        self._ahead = next(self._entries, None)
        self._at: _At | None = None
        self._strays: list[_At] = []
        self._unindexed = 0
        self._partly = 0
        self._late = 0
        self._previous: IndexReader | None = None
        self._step()

    def _all(self, readers: Sequence[IndexReader], log_begin: int) -> Iterator[_At]:
        for reader in readers:
            if reader.end_offset < log_begin:
                continue
            for number, (key_hash, offset, difference, _) in enumerate(reader.entries(self._shape), 1):
                if offset >= log_begin:
                    yield _At(reader, number, key_hash, offset, difference)

    def record(self, request: DispatchRequest) -> Iterator[Finding]:
        """Compare one record with its entries."""
        offset = request.physical_offset
        if self._strays:
            yield from self._stray()
        at = self._at
        while at is not None and at.physical_offset < offset:
            if at.physical_offset not in self._damaged:
                text = f"entry {at.number} says offset {at.physical_offset}, where no record with a key begins"
                yield self._finding(at, Disorder.INDEX_ENTRY, text)
            self._step()
            at = self._at
        if not request.index_keys:
            return
        if at is None or at.physical_offset != offset:
            yield from self._missing_entries(request, at)
            return
        hash_of = self._hasher.hash_unsigned
        prefix = f"{request.topic}#"
        expected = {index_key_hash(hash_of(prefix, key)) for key in request.index_keys}
        found: set[int] = set()
        while at is not None and at.physical_offset == offset:
            found.add(at.key_hash)
            if at.key_hash not in expected:
                text = (
                    f"entry {at.number} has the hash {at.key_hash}, which does not belong to a key of the record at "
                    f"{offset}"
                )
                yield self._finding(at, Disorder.INDEX_ENTRY, text)
            # The first entry of a file counts from the end of the previous file.
            elif at.number > 1:
                begin = at.reader.begin_timestamp
                proper = min(max(0, (request.store_timestamp - begin) // 1000), _MAX_INT) if begin > 0 else 0
                if at.difference != proper:
                    text = f"entry {at.number} was made {at.difference} s after the file, its record at {offset} {proper} s"
                    yield self._finding(at, Disorder.INDEX_ENTRY, text)
            if at.number == 1 and at.reader.begin_timestamp != request.store_timestamp:
                yield self._wrong_time(at.reader, 0, "first", at.reader.begin_timestamp, request)
            if at.number == at.reader.count - 1 and at.reader.end_timestamp != request.store_timestamp:
                yield self._wrong_time(at.reader, 8, "last", at.reader.end_timestamp, request)
            last = at
            self._step()
            at = self._at
        if expected - found:
            if any(found >= {index_key_hash(hash_of(prefix, key)) for key in keys} for keys in _fewer_keys(request)):
                self._partly += 1
                return
            text = f"{len(expected - found)} of {len(expected)} keys of the record at {offset} have no entry"
            yield self._finding(last, Disorder.INDEX_LACKS, text)

    def _step(self) -> None:
        """Advance to the next entry in log order."""
        passed = -1
        if self._at is not None:
            self._previous = self._at.reader
            passed = self._at.physical_offset
        while True:
            at = self._at = self._ahead
            self._ahead = ahead = next(self._entries, None)
            if at is None or ahead is None or not passed <= ahead.physical_offset < at.physical_offset:
                return
            self._strays.append(at)

    def _stray(self) -> Iterator[Finding]:
        strays, self._strays = self._strays, []
        for at in strays:
            text = f"entry {at.number} says offset {at.physical_offset}, the next entry a smaller one"
            yield self._finding(at, Disorder.INDEX_ENTRY, text)

    def _missing_entries(self, request: DispatchRequest, at: _At | None) -> Iterator[Finding]:
        """Yield the findings about a record without entries."""
        if at is not None and at.number > 1 and self._previous is at.reader:
            text = f"the record at {request.physical_offset} has keys, but no entry before entry {at.number}"
            yield self._finding(at, Disorder.INDEX_LACKS, text)
        elif at is None and request.physical_offset >= self._replayed_from:
            self._late += 1
        elif at is None and self._previous is not None:
            path = self._previous.path
            text = (
                f"the record at {request.physical_offset} has keys, but no entry, although later ones were dispatched"
            )
            position = self._previous.position_of(self._shape, self._previous.count)
            yield Finding(Severity.DAMAGE, Disorder.INDEX_LACKS, Remedy.REPAIR, path, position, text)
        else:
            self._unindexed += 1

    def finish(self, log_end: int, directory: str) -> Iterator[Finding]:
        """Report the remaining entries, and sum up the normal cases."""
        yield from self._stray()
        at = self._at
        if at is not None:
            text = f"entry {at.number} says offset {at.physical_offset}, where no record with a key begins"
            if at.physical_offset >= log_end:
                text = f"entries from {at.number} on lead to records behind the end of the log at {log_end}"
            yield self._finding(at, Disorder.INDEX_ENTRY, text)
        if self._late:
            text = f"{self._late} records with keys at the end of the log are not indexed yet"
            yield Finding(Severity.NOTE, Disorder.INDEX_LACKS, Remedy.START, directory, 0, text)
        if self._partly:
            text = f"{self._partly} records of batches are found by their own keys or by the batch's only, as Apache's "
            text += "broker indexes them; rocketd store repair --write --index adds the others"
            yield Finding(Severity.NOTE, Disorder.INDEX_MISSING, Remedy.NONE, directory, 0, text)
        if self._unindexed:
            text = (
                f"{self._unindexed} records with keys are not indexed, as after a crash or without messageIndexEnable"
            )
            text += "; rocketd store repair --write --index indexes them"
            yield Finding(Severity.NOTE, Disorder.INDEX_MISSING, Remedy.NONE, directory, 0, text)

    @staticmethod
    def _wrong_time(reader: IndexReader, position: int, which: str, time: int, request: DispatchRequest) -> Finding:
        text = f"the header says that the {which} record was stored at {time}, it was at {request.store_timestamp}"
        return _damage(reader, Disorder.INDEX_HEADER, position, text)

    def _finding(self, at: _At, problem: Disorder, text: str) -> Finding:
        return _damage(at.reader, problem, at.reader.position_of(self._shape, at.number), text)
