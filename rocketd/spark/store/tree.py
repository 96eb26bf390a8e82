"""A store directory as a catalog: the files of a broker, read without the broker.

The directory may belong to a running broker, or be a snapshot or a copy. Nothing in it is ever changed.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from rocketd.remoting.bodies.tables import ConsumerOffsetSerializeWrapper
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.spark.errors import OptionError, StoreFilesError
from rocketd.spark.ranges import OnLoss, Queue, QueueRange, ReadPlan, groups_of
from rocketd.spark.store.files import Entries, FileRow, QueueEntries, forget_deleted, unreadable
from rocketd.spark.store.log_directories import log_directories
from rocketd.spark.store.reading import RangeReader
from rocketd.store.base.layout import FILLER_SIZE, consume_queue_dir, queue_dir
from rocketd.store.format.record import store_timestamp_of

DEFAULT_BROKER = "broker-a"
"""The default name of the broker: the files do not contain the name."""

_EXACT_ENTRIES = 1 << 18
_SAMPLE_BLOCKS = 128
_SAMPLE_ENTRIES = 512
_ENTRIES_AT_ONCE = 1 << 20
_HEAD_SIZE = 112


class StoreTree:
    """A store directory. It holds no open files, so it can be pickled and used on any machine that sees the directory."""

    def __init__(self, root: str, broker: str = DEFAULT_BROKER, commit_log: str = "") -> None:
        """`commit_log` names the log's directories, separated by commas, if they are not below the store.

        Raises StoreFilesError if the directory is not a store.
        """
        self.root = os.path.abspath(root)
        self.broker = broker or DEFAULT_BROKER
        self.log_directories = log_directories(self.root, commit_log)
        if not os.path.isdir(self.root):
            raise StoreFilesError(
                f"directory {self.root} does not exist on this machine; reading a store needs its files on the driver and "
                "on every executor"
            )
        for directory in self.log_directories:
            if not os.path.isdir(directory):
                raise StoreFilesError(
                    f"{self.root} has no commit log in {directory}, so it is not a broker's store; if the log is "
                    "in other directories (storePathCommitLog, readOnlyCommitLogStorePaths), name them too"
                )

    def topics(self) -> list[str]:
        """Return all topics that have queues, sorted."""
        return sorted(name for name in _directories(consume_queue_dir(self.root)) if self.queues(name))

    def queues(self, topic: str) -> list[Queue]:
        """Return the topic's queues, sorted."""
        if not topic or "/" in topic or topic.startswith("."):
            return []
        names = _directories(os.path.join(consume_queue_dir(self.root), topic))
        return sorted(Queue(topic, self.broker, int(name)) for name in names if name.isascii() and name.isdigit())

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the lowest offset whose record is in the log, and the offset after the highest such record."""
        return self._queue(queue).bounds(self.log())

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after this time, or the end offset if there is none."""
        files, log = self._queue(queue), self.log()

        def is_late(number: int) -> bool | None:
            stored = _store_time(files, log, number)
            return None if stored is None else stored >= timestamp_ms

        return files.first_where(*files.bounds(log), is_late)

    def stored_at(self, queue: Queue, offset: int) -> int | None:
        """Return the store time (ms) of the message at an offset, or None without a readable one."""
        return _store_time(self._queue(queue), self.log(), offset)

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """Return the committed offset of the group, from the broker's last written file. Raises StoreFilesError."""
        return self._group_offsets().get(f"{queue.topic}@{group}", {}).get(queue.queue_id)

    def known_groups(self, topic: str) -> list[str]:
        """Return the consumer groups with committed offsets in the topic, sorted. Raises StoreFilesError."""
        return groups_of(topic, self._group_offsets())

    def _group_offsets(self) -> dict[str, dict[int, int]]:
        path = os.path.join(self.root, "config", "consumerOffset.json")
        fault: Exception | None = None
        for name in (path, path + ".bak"):
            try:
                with open(name, "rb") as file:
                    return fastjson.decode(file.read(), ConsumerOffsetSerializeWrapper).offset_table
            except FileNotFoundError:
                continue
            except (OSError, fastjson.FastJSONError) as error:
                fault = error
        if fault is not None:
            raise unreadable(fault, path) from fault
        return {}

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Raise OptionError: the files of a store are only read."""
        raise OptionError(
            f"commitGroup={group} needs a broker to commit to: the files of a store are only read; use namesrv "
            "instead of store"
        )

    def bytes_of(self, part: QueueRange) -> int | None:
        """Return the bytes of the range's records, summed over the entries. A long range is estimated from a sample."""
        files = self._queue(part.queue)
        if part.count <= _EXACT_ENTRIES:
            return _sizes(files.entries(part.start, part.end))[0]
        total = seen = 0
        step = part.count // _SAMPLE_BLOCKS
        for begin in range(part.start, part.end - _SAMPLE_ENTRIES, step):
            size, count = _sizes(files.entries(begin, begin + _SAMPLE_ENTRIES))
            total += size
            seen += count
        return total * part.count // max(1, seen)

    def read(self, part: QueueRange, plan: ReadPlan, on_loss: OnLoss | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, in batches that end with a log file or at `plan.batch_bytes`.

        Offsets without a message raise DataLossError, or are passed to `on_loss`. Raises StoreFilesError if a record
        does not match its queue entry.
        """
        directory = queue_dir(self.root, part.queue.topic, part.queue.queue_id)
        return RangeReader(directory, self.log(), part, plan, on_loss).batches()

    def log(self) -> FileRow:
        """Return the present files of the commit log."""
        row = FileRow(*self.log_directories)
        forget_deleted(row)
        return row

    def entries(self, part: QueueRange) -> Entries:
        """Return the queue's entries of a range, of type `rocketd.spark.records.parse.ENTRY`; zeros if missing."""
        return self._queue(part.queue).entries(part.start, part.end)

    def count(self, topic: str) -> int:
        """Count the topic's messages from the bounds of its queues, without reading records."""
        return sum(end - begin for begin, end in map(self.bounds, self.queues(topic)))

    def group_by_tag_hash(self, topic: str) -> dict[int, int]:
        """Count the topic's messages by the tag hash in the queue entries, without reading records.

        Entries of SCHEDULE_TOPIC_XXXX hold a time in that field, and those of extended queues an address.
        """
        counts: Counter[int] = Counter()
        for queue in self.queues(topic):
            begin, end = self.bounds(queue)
            files = self._queue(queue)
            for first in range(begin, end, _ENTRIES_AT_ONCE):
                entries = files.entries(first, min(end, first + _ENTRIES_AT_ONCE))
                codes = entries["tag_hash"].astype(np.int64)
                if (entries["size"] == FILLER_SIZE).any():
                    codes = codes[entries["size"] != FILLER_SIZE]
                found = pa.array(codes).value_counts()
                counts.update(dict(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)))
        return dict(counts)

    def close(self) -> None:
        """Do nothing: no files are held open."""

    def _queue(self, queue: Queue) -> QueueEntries:
        return QueueEntries(queue_dir(self.root, queue.topic, queue.queue_id))


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return [one.name for one in found if one.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(error) from error


def _store_time(files: QueueEntries, log: FileRow, number: int) -> int | None:
    """Return the store time (ms) of an entry's record, or None without a record."""
    offset, size, _ = files.entry(number)
    if size <= 0 or size == FILLER_SIZE:
        return None
    head = log.read(offset, min(size, _HEAD_SIZE))
    return None if head is None or len(head) < _HEAD_SIZE - 21 else store_timestamp_of(head)


def _sizes(entries: Entries) -> tuple[int, int]:
    """Return the bytes of the records these entries point to, and the number of records."""
    sizes = entries["size"].astype(np.int64)
    real = sizes[(sizes > 0) & (sizes != FILLER_SIZE)]
    return int(real.sum()), len(real)
