"""A quick summary of a stopped store, by binary search and from the ends of files, fast for any size.

Reads only, and trusts the data. `examine` checks it.
"""

import os

import msgspec

from rocketd.store.base.layout import CONSUME_QUEUE_UNIT, FILLER_SIZE, lock_path
from rocketd.store.format.record import MAGIC, MAGIC_POSITION
from rocketd.store.format.record_scanner import RecordScanner
from rocketd.store.offline.examine import Checkpoint
from rocketd.store.offline.examine_index import IndexReader, IndexShape
from rocketd.store.offline.stopped_store import LogReader, QueueReader, Segment, StoppedStore


class LogFileSummary(msgspec.Struct, rename="camel"):
    """One log file. Offsets and sizes in bytes, store times in ms, -1 without a record.

    `used` is the size up to the end of the last record; `end_offset` is the log offset there.
    """

    path: str
    begin_offset: int
    end_offset: int
    size: int
    used: int
    first_store_time: int
    last_store_time: int


class QueueSummary(msgspec.Struct, rename="camel"):
    """One consume queue: offset of the first message still present, and offset after the last one."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    files: int
    size: int


class IndexFileSummary(msgspec.Struct, rename="camel"):
    """One index file: its header, and its capacity in slots and entries, -1 if unknown."""

    path: str
    size: int
    entries: int
    slots_used: int
    begin_offset: int
    end_offset: int
    begin_store_time: int
    end_store_time: int
    slot_room: int
    entry_room: int


class CheckpointSummary(msgspec.Struct, rename="camel"):
    """The checkpoint's times in ms."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int


class FileSummary(msgspec.Struct):
    """Another file."""

    path: str
    size: int


class StoreSummary(msgspec.Struct, rename="camel"):
    """Everything in the store. `size` is the length of all files, `on_disk` their use of disk space.

    `last_stop` is clean, killed or crashed. `abort` and `lock` tell whether these files exist.
    """

    root: str
    last_stop: str
    abort: bool
    lock: bool
    checkpoint: CheckpointSummary | None
    min_offset: int
    max_offset: int
    log: list[LogFileSummary]
    queues: list[QueueSummary]
    index: list[IndexFileSummary]
    config: list[FileSummary]
    size: int
    on_disk: int
    problems: list[str] = []
    """Files that could not be read."""


def summarize(store: StoppedStore) -> StoreSummary:
    """Summarize the files of a store. Raises OSError."""
    log = [_log_file(store.log, segment) for segment in store.log.segments]
    used = [file for file in log if file.used]
    min_offset = store.log.min_offset
    checkpoint = Checkpoint(store.root)
    times = (checkpoint.physic, checkpoint.logics, checkpoint.index)
    config = os.path.join(store.root, "config")
    size, on_disk = _sizes(store)
    problems: list[str] = []
    return StoreSummary(
        root=store.root,
        last_stop=store.last_stop.name.lower(),
        abort=store.abnormal,
        lock=os.path.exists(lock_path(store.root)),
        checkpoint=None if checkpoint.size < 0 else CheckpointSummary(*times),
        min_offset=min_offset,
        max_offset=used[-1].end_offset if used else min_offset,
        log=log,
        queues=[summarize_queue(queue, min_offset) for queue in store.queues()],
        index=_index_files(store, problems),
        config=[
            FileSummary(os.path.join(config, name), os.path.getsize(os.path.join(config, name)))
            for name in (sorted(os.listdir(config)) if os.path.isdir(config) else ())
        ],
        size=size,
        on_disk=on_disk,
        problems=problems,
    )


def _log_file(log: LogReader, segment: Segment) -> LogFileSummary:
    last = _last_record(log, segment)
    if last is None:
        return LogFileSummary(segment.path, segment.offset, segment.offset, segment.size, 0, -1, -1)
    first = log.record_at(segment.offset)
    offset, size, stored = last
    end = offset + size
    return LogFileSummary(
        segment.path,
        segment.offset,
        end,
        segment.size,
        end - segment.offset,
        first.store_timestamp if first else stored,
        stored,
    )


def _last_record(log: LogReader, segment: Segment) -> tuple[int, int, int] | None:
    """Return offset, size and store time of the last record of a file, fast for any file size."""
    end = log.data_end(segment)
    data = log.bytes_of(segment)
    if not end or isinstance(data, bytes):
        return None
    view = memoryview(data)
    scanner = RecordScanner()
    at = data.rfind(MAGIC, MAGIC_POSITION, end)
    while at >= 0:
        scan = scanner.scan(view, at - MAGIC_POSITION, segment.size, segment.offset, False)
        if scan.requests:
            while True:
                found = scan.requests[-1]
                scan = scanner.scan(view, scan.position, segment.size, segment.offset, False)
                if not scan.requests:
                    return found.physical_offset, found.size, found.store_timestamp
        at = data.rfind(MAGIC, MAGIC_POSITION, at + 3)
    return None


def summarize_queue(queue: QueueReader, min_offset: int) -> QueueSummary:
    """Return the summary of a queue by binary search in the last file with entries."""
    end = queue.begin
    for segment in reversed(queue.segments):
        first, stop = segment.offset // CONSUME_QUEUE_UNIT, segment.end // CONSUME_QUEUE_UNIT
        low, high = first, stop
        while low < high:
            middle = (low + high) // 2
            entry = queue.entry(middle)
            if entry is not None and entry[1] > 0:
                low = middle + 1
            else:
                high = middle
        if low > first:
            end = low
            break
    begin = queue.first_from(min_offset, end)
    while begin < end and (entry := queue.entry(begin)) is not None and entry[1] == FILLER_SIZE:
        begin += 1
    size = sum(segment.size for segment in queue.segments)
    return QueueSummary(queue.topic, queue.queue_id, begin, end, len(queue.segments), size)


def _index_files(store: StoppedStore, problems: list[str]) -> list[IndexFileSummary]:
    found = []
    for path in store.index_paths():
        try:
            reader = IndexReader(path)
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {error}")
            continue
        shape = reader.shape() or IndexShape(-1, -1)
        found.append(
            IndexFileSummary(
                path,
                reader.size,
                reader.count - 1,
                reader.slots_used,
                reader.begin_offset,
                reader.end_offset,
                reader.begin_timestamp,
                reader.end_timestamp,
                shape.slots,
                shape.entries,
            )
        )
    return found


def _sizes(store: StoppedStore) -> tuple[int, int]:
    """Return (length of all files, their use of disk space) in bytes."""
    roots = [store.root]
    roots += [path for path in store.log.directories if os.path.relpath(path, store.root).startswith(os.pardir)]
    size = on_disk = 0
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                figures = os.lstat(os.path.join(folder, name))
                size += figures.st_size
                on_disk += figures.st_blocks * 512
    return size, on_disk
