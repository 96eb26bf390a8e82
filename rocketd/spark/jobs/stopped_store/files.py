"""Files of queues and index as arrays, mapped for reading.

`rocketd.store.offline.stopped_store` and `rocketd.store.offline.examine_index.IndexReader` read the same files entry by
entry. Reads only; imports neither PySpark nor Twisted.
"""

import mmap
import os
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketd.spark.jobs.stopped_store.index_keys import INDEX_ENTRY
from rocketd.spark.jobs.stopped_store.log_scan import Longs
from rocketd.spark.records.parse import ENTRY
from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, is_mapped_file_name

Entries = npt.NDArray[Any]
"""Of type `rocketd.spark.records.parse.ENTRY`, or INDEX_ENTRY for an index file."""

INDEX_HEADER = np.dtype(
    [
        ("begin_time", ">i8"),
        ("end_time", ">i8"),
        ("begin_offset", ">i8"),
        ("end_offset", ">i8"),
        ("slots_used", ">i4"),
        ("count", ">i4"),
    ]
)
"""Head of an index file: times (ms) and log offsets of its first and last entry, used slots, and number of entries + 1."""

_MAPPED = 64


def map_file(path: str) -> memoryview:
    """Map the bytes of a file for reading. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ) if size else b"")
    finally:
        os.close(fd)


def is_zero(data: memoryview, begin: int, end: int) -> bool:
    """Tell whether all bytes from `begin` to `end` are zero."""
    step = 1 << 22
    return not any(
        np.frombuffer(data[at : min(at + step, end)], np.uint8).any() for at in range(begin, max(begin, end), step)
    )


class MappedQueues:
    """Entries of the queues of one store; the last few files used stay mapped."""

    def __init__(self, queue_root: str) -> None:
        self._root = queue_root
        self._maps: OrderedDict[str, Entries] = OrderedDict()
        self._names: dict[tuple[str, int], list[tuple[int, str]]] = {}

    def files(self, topic: str, queue_id: int) -> list[tuple[int, str]]:
        """Return first queue offset and path of each file of a queue, in order; none if the queue does not exist."""
        key = topic, queue_id
        found = self._names.get(key)
        if found is None:
            directory = os.path.join(self._root, topic, str(queue_id))
            try:
                names = sorted(filter(is_mapped_file_name, os.listdir(directory)))
            except (FileNotFoundError, NotADirectoryError):
                names = []
            found = [(int(name) // CONSUME_QUEUE_UNIT, os.path.join(directory, name)) for name in names]
            self._names[key] = found
        return found

    def file(self, path: str) -> Entries:
        """Return all whole entries of a file, written or not."""
        entries = self._maps.get(path)
        if entries is None:
            data = map_file(path)
            entries = np.frombuffer(data[: len(data) // CONSUME_QUEUE_UNIT * CONSUME_QUEUE_UNIT], ENTRY)
            self._maps[path] = entries
            if len(self._maps) > _MAPPED:
                self._maps.popitem(last=False)
        self._maps.move_to_end(path)
        return entries

    def read(self, topic: str, queue_id: int, indexes: Longs) -> Entries:
        """Return the entries at these queue offsets; zeros for offsets outside the files."""
        result = np.zeros(len(indexes), ENTRY)
        low, high = int(indexes.min(initial=1 << 62)), int(indexes.max(initial=-1))
        for first, path in self.files(topic, queue_id):
            if first > high:
                break
            entries = self.file(path)
            if first + len(entries) <= low:
                continue
            if low >= first and high < first + len(entries) and high - low == len(indexes) - 1:
                rising = indexes[0] == low and (len(indexes) == 1 or bool((np.diff(indexes) == 1).all()))
                if rising:
                    return entries[low - first : high - first + 1]
            inside = np.flatnonzero((indexes >= first) & (indexes < first + len(entries)))
            result[inside] = entries[indexes[inside] - first]
        return result


@dataclass(frozen=True, slots=True)
class IndexSizes:
    """Slots and entries of the index files of a store."""

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        """The position of entry 0, which is never used, in bytes."""
        return INDEX_HEADER.itemsize + 4 * self.slots

    @property
    def size(self) -> int:
        """The bytes of a whole file."""
        return self.entries_at + self.entries * INDEX_ENTRY.itemsize


class IndexView:
    """One index file as arrays. Entries count from 1; `entries` holds those counted in the header, as far as they fit."""

    def __init__(self, path: str, shape: IndexSizes) -> None:
        self.path = path
        self.data = map_file(path)
        self.shape = shape
        head = np.zeros(1, INDEX_HEADER)
        head.view(np.uint8)[: min(len(self.data), INDEX_HEADER.itemsize)] = np.frombuffer(
            self.data[: INDEX_HEADER.itemsize], np.uint8
        )
        (
            self.begin_time,
            self.end_time,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.index_count,
        ) = (int(value) for value in head[0])
        room = max(0, (len(self.data) - shape.entries_at) // INDEX_ENTRY.itemsize)
        self.count = max(1, min(self.index_count, room))
        begin = shape.entries_at + INDEX_ENTRY.itemsize
        end = shape.entries_at + self.count * INDEX_ENTRY.itemsize
        self.entries: Entries = np.frombuffer(self.data[begin:end], INDEX_ENTRY)
        some = len(self.entries) > 0
        self.first = int(self.entries["offset"][0]) if some else 1 << 62
        """The log offset of the first entry; a value above all offsets without entries."""
        self.last = int(self.entries["offset"][-1]) if some else -1
        """The log offset of the last entry, or -1."""

    def slots(self) -> Longs:
        """Return the newest entry of each slot; 0 or a number above the count means none."""
        data = self.data[INDEX_HEADER.itemsize : self.shape.entries_at]
        return np.frombuffer(data, ">i4").astype(np.int64)

    def between(self, begin: int, end: int) -> slice:
        """Return the slice of `entries` with log offsets from `begin` to before `end`, if they are in order."""
        offsets = self.entries["offset"]
        numbers = range(len(offsets))
        # Not with numpy, which would first copy them all into the machine's byte order.
        return slice(*(bisect_left(numbers, limit, key=lambda number: int(offsets[number])) for limit in (begin, end)))


def is_sound(view: IndexView) -> bool:
    """Tell whether header, chains and slots of an index file match its entries, and these are in log order."""
    shape = view.shape
    if not 0 <= view.index_count <= shape.entries or len(view.data) < shape.entries_at:
        return False
    if view.count != max(1, view.index_count):
        return False
    entries = view.entries
    hashes = entries["hash"].astype(np.int64)
    offsets = entries["offset"].astype(np.int64)
    if (hashes < 0).any() or (np.diff(offsets) < 0).any():
        return False
    slot = hashes % shape.slots
    order = np.argsort(slot, kind="stable")
    numbers = order + 1
    first = np.diff(slot[order], prepend=-1) != 0
    expected = np.zeros(len(entries), np.int64)
    expected[order] = np.where(first, 0, np.roll(numbers, 1))
    if not np.array_equal(expected, entries["previous"].astype(np.int64)):
        return False
    newest = np.zeros(shape.slots, np.int64)
    last = np.roll(first, -1)
    if len(entries):
        last[-1] = True
    newest[slot[order[last]]] = numbers[last]
    if view.slots_used != int(last.sum()) or not np.array_equal(newest, view.slots()):
        return False
    return not len(entries) or (offsets[0] == view.begin_offset and offsets[-1] == view.end_offset)
