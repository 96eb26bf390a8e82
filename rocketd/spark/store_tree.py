"""A store directory as a catalog: what a broker has left on the disk, read without the broker.

The directory may be a live broker's, a snapshot or a copy. Nothing in it is ever changed.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from rocketd.remoting import fastjson
from rocketd.remoting.bodies import ConsumerOffsetSerializeWrapper
from rocketd.spark.errors import OptionError, StoreFilesError
from rocketd.spark.log_directories import log_directories
from rocketd.spark.ranges import OnLoss, Queue, QueueRange, ReadPlan
from rocketd.spark.store_files import Entries, FileRow, QueueFiles, forget_deleted, unreadable
from rocketd.spark.store_reading import RangeReader
from rocketd.store.layout import FILLER_SIZE, consume_queue_dir, queue_dir
from rocketd.store.record import store_timestamp_of

DEFAULT_BROKER = "broker-a"
"""The broker's name where none is given: the files do not tell it."""

_EXACT_ENTRIES = 1 << 18
_SAMPLE_BLOCKS = 128
_SAMPLE_ENTRIES = 512
_ENTRIES_AT_ONCE = 1 << 20
_HEAD_SIZE = 112


class StoreTree:
    """A store directory. Holds no open files, so it can be pickled and used anywhere that has the same directory."""

    def __init__(self, root: str, broker: str = DEFAULT_BROKER, commit_log: str = "") -> None:
        """`commit_log` is the log's directory where that is not in the store's; several are separated by commas.

        Raises StoreFilesError when there is no store.
        """
        self.root = os.path.abspath(root)
        self.broker = broker or DEFAULT_BROKER
        self.log_directories = log_directories(self.root, commit_log)
        if not os.path.isdir(self.root):
            raise StoreFilesError(
                f"there is no directory {self.root} on this machine; reading a store needs its files on the driver and "
                "on every executor"
            )
        for directory in self.log_directories:
            if not os.path.isdir(directory):
                raise StoreFilesError(
                    f"{self.root} has no commit log in {directory}, so it is no broker's store; if the log has "
                    "directories of its own (storePathCommitLog, readOnlyCommitLogStorePaths), name them too"
                )

    def topics(self) -> list[str]:
        """All topics that have queues, sorted."""
        return sorted(name for name in _directories(consume_queue_dir(self.root)) if self.queues(name))

    def queues(self, topic: str) -> list[Queue]:
        """The topic's queues, sorted."""
        if not topic or "/" in topic or topic.startswith("."):
            return []
        names = _directories(os.path.join(consume_queue_dir(self.root), topic))
        return sorted(Queue(topic, self.broker, int(name)) for name in names if name.isascii() and name.isdigit())

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Lowest offset whose record is still in the log, and the one behind the highest that has got there."""
        return self._queue(queue).bounds(self.log())

    def offset_at(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset that was stored at or after this time, the end when there is none."""
        files, log = self._queue(queue), self.log()

        def is_late(number: int) -> bool | None:
            stored = _store_time(files, log, number)
            return None if stored is None else stored >= timestamp_ms

        return files.first_where(*files.bounds(log), is_late)

    def group_offset(self, group: str, queue: Queue) -> int | None:
        """What the group has committed, by the broker's file as it was last written. Raises StoreFilesError."""
        path = os.path.join(self.root, "config", "consumerOffset.json")
        fault: Exception | None = None
        for name in (path, path + ".bak"):
            try:
                with open(name, "rb") as file:
                    table = fastjson.decode(file.read(), ConsumerOffsetSerializeWrapper).offset_table
            except FileNotFoundError:
                continue
            except (OSError, fastjson.FastJSONError) as error:
                fault = error
                continue
            return table.get(f"{queue.topic}@{group}", {}).get(queue.queue_id)
        if fault is not None:
            raise unreadable(fault, path) from fault
        return None

    def commit_group(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Raises OptionError: the files of a store are only read."""
        raise OptionError(
            f"commitGroup={group} needs a broker to commit to: the files of a store are only read; use namesrv "
            "instead of store"
        )

    def bytes_of(self, part: QueueRange) -> int | None:
        """Bytes of the range's records, by the entries; of a long range by a sample of them."""
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
        """The messages of a range, in batches that end with a log file or at `plan.batch_bytes`.

        Offsets that have no message any more raise DataLossError, or are told to `on_loss`. Raises StoreFilesError when a
        record is not the one that the queue means.
        """
        directory = queue_dir(self.root, part.queue.topic, part.queue.queue_id)
        return RangeReader(directory, self.log(), part, plan, on_loss).batches()

    def log(self) -> FileRow:
        """The files of the commit log, as they are now."""
        row = FileRow(*self.log_directories)
        forget_deleted(row)
        return row

    def entries(self, part: QueueRange) -> Entries:
        """The queue's entries of a range, an array of `rocketd.spark.parse.ENTRY`; zeros for those that are gone."""
        return self._queue(part.queue).entries(part.start, part.end)

    def count(self, topic: str) -> int:
        """How many messages the topic's queues have, without a look at the records."""
        return sum(end - begin for begin, end in map(self.bounds, self.queues(topic)))

    def group_by_tag_hash(self, topic: str) -> dict[int, int]:
        """How many messages the topic has of each tag hash, as its queues' entries have it, without a look at the
        records. Entries of SCHEDULE_TOPIC_XXXX have a time there, those of extended queues an address.
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
        """Nothing is held open here."""

    def _queue(self, queue: Queue) -> QueueFiles:
        return QueueFiles(queue_dir(self.root, queue.topic, queue.queue_id))


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return [one.name for one in found if one.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise unreadable(error) from error


def _store_time(files: QueueFiles, log: FileRow, number: int) -> int | None:
    """Store time in ms of the record that an entry leads to, None when it has none."""
    offset, size, _ = files.entry(number)
    if size <= 0 or size == FILLER_SIZE:
        return None
    head = log.read(offset, min(size, _HEAD_SIZE))
    return None if head is None or len(head) < _HEAD_SIZE - 21 else store_timestamp_of(head)


def _sizes(entries: Entries) -> tuple[int, int]:
    """Bytes of the records that some entries lead to, and how many there are."""
    sizes = entries["size"].astype(np.int64)
    real = sizes[(sizes > 0) & (sizes != FILLER_SIZE)]
    return int(real.sum()), len(real)
