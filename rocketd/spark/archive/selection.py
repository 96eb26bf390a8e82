"""A selection of an archive's messages: by broker, topics, ranges of offsets, or store time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.reader import Limits, read_messages
from rocketd.spark.ranges import Queue

_NO_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Selection:
    """The wanted messages. Empty `topics` means all topics.

    `starts` and `ends` limit the queues they name; other queues are taken whole. Times are ms since 1970.
    """

    topics: frozenset[str] = frozenset()
    broker: str = ""
    starts: tuple[tuple[Queue, int], ...] = ()
    ends: tuple[tuple[Queue, int], ...] = ()
    start_ms: int = 0
    end_ms: int = _NO_END

    @property
    def is_all(self) -> bool:
        """Whether all queues are taken whole."""
        return not self.starts and not self.ends and self.start_ms == 0 and self.end_ms == _NO_END

    def limits(self, queue: Queue) -> tuple[int, int]:
        """Return the first wanted offset of a queue, and the end."""
        return dict(self.starts).get(queue, 0), dict(self.ends).get(queue, _NO_END)

    def files(self, files: Iterable[ArchiveFile]) -> list[ArchiveFile]:
        """Return the files that may hold wanted messages."""
        return [file for file in files if self._may_hold(file)]

    def _may_hold(self, file: ArchiveFile) -> bool:
        queue = file.queue
        if queue is None or (self.topics and queue.topic not in self.topics):
            return False
        if self.broker and queue.broker != self.broker:
            return False
        start, end = self.limits(queue)
        return (
            file.last >= start and file.first < end and file.max_time >= self.start_ms and file.min_time < self.end_ms
        )

    def read(
        self,
        root: str,
        file: ArchiveFile,
        columns: tuple[str, ...],
        limits: Limits | None = None,
        *,
        decompress: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of a file, within additional limits."""
        within = dict(limits or {})
        if file.queue is not None:
            start, end = self.limits(file.queue)
            low, high = within.get("queue_offset", (0, _NO_END))
            if file.first < start or file.last >= end:
                within["queue_offset"] = max(start, low), min(end, high)
        if file.min_time < self.start_ms or file.max_time >= self.end_ms:
            within["store_time"] = self.start_ms * 1000, min(self.end_ms, _NO_END // 1000) * 1000
        yield from read_messages(root, file, columns, within, decompress=decompress)

    def to_json(self) -> dict[str, Any]:
        """Return the selection as JSON for a journal, to compare it with another one."""
        return {
            "topics": sorted(self.topics),
            "broker": self.broker,
            "starts": [[queue.topic, queue.broker, queue.queue_id, offset] for queue, offset in sorted(self.starts)],
            "ends": [[queue.topic, queue.broker, queue.queue_id, offset] for queue, offset in sorted(self.ends)],
            "times": [self.start_ms, self.end_ms],
        }
