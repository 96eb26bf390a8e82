"""Makes index files from the keys to index, in the order of the log.

The files have the same bytes as those of `rocketd.store.index.file.IndexFile.put_group` and `IndexService`. Runs in
Spark's tasks; does not import PySpark.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocketd.spark.archive.format.durable import sync_dir
from rocketd.spark.jobs.rebuild.queue import EntrySlice
from rocketd.spark.jobs.stopped_store.files import INDEX_HEADER, IndexSizes
from rocketd.spark.jobs.stopped_store.index_keys import INDEX_ENTRY, KEYED, Keyed

_MAX_INT = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class IndexFileToMake:
    """One index file, and the places of its entries.

    `before_time` is the store time of the last entry of the previous file, or 0.
    """

    name: str
    slices: tuple[EntrySlice, ...]
    before_time: int


def index_file_name(time_ms: int) -> str:
    """Return the name of a file made at this time: yyyyMMddHHmmssSSS, local time."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(time_ms // 1000)) + f"{time_ms % 1000:03d}"


def planned_files(counts: Sequence[tuple[str, int]], shape: IndexSizes) -> list[IndexFileToMake]:
    """Distribute the entries to files, given path and number of entries of each part, in the order of the log.

    A file is named by the store time of its first entry, so that a repeated run gives the same names.
    """
    room = shape.entries - 1
    groups: list[list[EntrySlice]] = []
    left = 0
    for path, count in counts:
        first = 0
        while first < count:
            if not left:
                groups.append([])
                left = room
            taken = min(left, count - first)
            groups[-1].append(EntrySlice(path, first, taken))
            first += taken
            left -= taken
    files: list[IndexFileToMake] = []
    before_time = 0
    for slices in groups:
        first_time = int(_read(slices[0], 0)["time"])
        name = index_file_name(first_time)
        if files and name <= files[-1].name:
            name = str(int(files[-1].name) + 1).zfill(len(name))
        files.append(IndexFileToMake(name, tuple(slices), before_time))
        before_time = int(_read(slices[-1], slices[-1].count - 1)["time"])
    return files


def _read(one: EntrySlice, row: int) -> Keyed:
    result: Keyed = np.fromfile(one.path, KEYED, 1, offset=(one.first + row) * KEYED.itemsize)[0]
    return result


def make_index_file(directory: str, shape: IndexSizes, task: IndexFileToMake) -> int:
    """Make one index file, unless it exists. Return the number of its entries."""
    count = sum(one.count for one in task.slices)
    path = os.path.join(directory, task.name)
    if os.path.exists(path):
        return count
    keyed = np.concatenate(
        [np.fromfile(one.path, KEYED, one.count, offset=one.first * KEYED.itemsize) for one in task.slices]
    )
    header, slots, entries = index_arrays(keyed, shape, task.before_time)
    fd = os.open(path + ".making", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, shape.size)
        os.pwrite(fd, header.tobytes(), 0)
        _write(fd, slots.tobytes(), INDEX_HEADER.itemsize)
        _write(fd, entries.tobytes(), shape.entries_at + INDEX_ENTRY.itemsize)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".making", path)
    sync_dir(directory)
    return count


def _write(fd: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, place)
        view = view[written:]
        place += written


def index_arrays(keyed: Keyed, shape: IndexSizes, before_time: int) -> tuple[Keyed, Keyed, Keyed]:
    """Return header, slots and entries (from entry 1 on) of a file with exactly these keys; at least one."""
    count = len(keyed)
    times = keyed["time"]
    begin_time = int(times[0])
    slot = keyed["hash"].astype(np.int64) % shape.slots
    order = np.argsort(slot, kind="stable")
    first = np.diff(slot[order], prepend=-1) != 0
    last = np.append(first[1:], True)
    entries = np.empty(count, INDEX_ENTRY)
    entries["hash"] = keyed["hash"]
    entries["offset"] = keyed["offset"]
    entries["seconds"] = _seconds(times, begin_time)
    # The time of the first entry counts from the end of the previous file.
    entries["seconds"][0] = _seconds(times[:1], max(0, before_time))[0]
    numbers = order + 1
    entries["previous"][order] = np.where(first, 0, np.roll(numbers, 1))
    slots = np.zeros(shape.slots, ">i4")
    slots[slot[order[last]]] = numbers[last]
    header = np.zeros(1, INDEX_HEADER)
    header[0] = (begin_time, int(times[-1]), int(keyed["offset"][0]), int(keyed["offset"][-1]), last.sum(), count + 1)
    return header, slots, entries


def _seconds(times: Keyed, begin: int) -> Keyed:
    return np.clip((times - begin) // 1000, 0, _MAX_INT) if begin > 0 else np.zeros_like(times)
