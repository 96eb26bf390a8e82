"""The content of an archive's commit, and its JSON.

Pure values. Offsets of ranges are queue offsets, without the end; times are ms since 1970.
"""

from dataclasses import dataclass, field
from typing import Any

from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue, QueueRange


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One Parquet file: its path, its content and its checksums.

    `path` is within the archive. `rows` is smaller than the number of offsets from `first` to `last` (both included) if
    messages were lost or filtered out. `raw_crc32` covers the records one after the other, as the broker has them.
    `log_begin` and `log_end` are the lowest offset of a record in the commit log, and the end of the highest record.

    For rows without a queue, only path, rows, size and `crc32` (of the whole file) are known.
    """

    path: str
    rows: int
    size: int
    crc32: str
    queue: Queue | None = None
    first: int = -1
    last: int = -1
    raw_bytes: int = 0
    raw_crc32: str = ""
    log_begin: int = -1
    log_end: int = -1
    min_time: int = -1
    max_time: int = -1

    def to_json(self) -> dict[str, Any]:
        """Return the file as an entry of a commit."""
        said: dict[str, Any] = {"path": self.path, "rows": self.rows, "bytes": self.size, "crc32": self.crc32}
        if self.queue is not None:
            said |= {
                **_queue_to_json(self.queue),
                "firstOffset": self.first,
                "lastOffset": self.last,
                "rawBytes": self.raw_bytes,
                "rawCrc32": self.raw_crc32,
                "logBegin": self.log_begin,
                "logEnd": self.log_end,
                "minStoreTime": self.min_time,
                "maxStoreTime": self.max_time,
            }
        return said

    @staticmethod
    def from_json(said: dict[str, Any]) -> "ArchiveFile":
        """The reverse of `to_json`."""
        if "queueId" not in said:
            return ArchiveFile(said["path"], said["rows"], said["bytes"], said["crc32"])
        return ArchiveFile(
            said["path"],
            said["rows"],
            said["bytes"],
            said["crc32"],
            Queue(said["topic"], said["broker"], said["queueId"]),
            said["firstOffset"],
            said["lastOffset"],
            said["rawBytes"],
            said["rawCrc32"],
            said["logBegin"],
            said["logEnd"],
            said["minStoreTime"],
            said["maxStoreTime"],
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: files, the ranges it covers, and the parts of them whose messages were lost.

    `writer` names the writer, and `batch` the number of a stream's batch. `brokers` holds for each broker the facts for
    a restore: `commitLogFileSize` in bytes, and `topics` and offset tables as in the broker's files.
    """

    writer: str
    time_ms: int
    files: tuple[ArchiveFile, ...] = ()
    ranges: tuple[QueueRange, ...] = ()
    gaps: tuple[QueueRange, ...] = ()
    batch: int | None = None
    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the commit as JSON."""
        said: dict[str, Any] = {
            "version": 1,
            "writer": self.writer,
            "time": self.time_ms,
            "files": [file.to_json() for file in self.files],
            "ranges": [range_to_json(one) for one in self.ranges],
            "gaps": [range_to_json(one) for one in self.gaps],
        }
        if self.batch is not None:
            said["batch"] = self.batch
        if self.brokers:
            said["brokers"] = self.brokers
        return said

    @staticmethod
    def from_json(said: dict[str, Any]) -> "Commit":
        """The reverse of `to_json`. Raises ArchiveError for an invalid commit, or one of a later version."""
        try:
            if said["version"] != 1:
                raise ArchiveError(
                    f"a commit of the archive has version {said['version']}, this program reads version 1: use a later one"
                )
            return Commit(
                said["writer"],
                said["time"],
                tuple(ArchiveFile.from_json(file) for file in said["files"]),
                tuple(range_from_json(one) for one in said["ranges"]),
                tuple(range_from_json(one) for one in said["gaps"]),
                said.get("batch"),
                said.get("brokers", {}),
            )
        except (KeyError, TypeError) as error:
            raise ArchiveError(f"a commit of the archive is damaged: {error!r}") from None


def range_to_json(one: QueueRange) -> dict[str, Any]:
    """Return a range of a queue's offsets as JSON for commits and reports."""
    return {**_queue_to_json(one.queue), "start": one.start, "end": one.end}


def range_from_json(said: dict[str, Any]) -> QueueRange:
    """The reverse of `range_to_json`."""
    return QueueRange(Queue(said["topic"], said["broker"], said["queueId"]), said["start"], said["end"])


def _queue_to_json(queue: Queue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker, "queueId": queue.queue_id}
