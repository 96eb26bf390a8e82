"""Makes a store's directory from an archive, in steps that are noted, so that a run that was killed is gone on with.

All is made in a directory of its own within the target, and put in place by a few renamings at the end: no broker can open
a store of which half is missing and go on writing to it.
"""

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.durable import make_dirs, sync_dir
from rocketd.spark.archive.durable import replace as replace_file
from rocketd.spark.archive.journal import Entry, Journal
from rocketd.spark.archive.log_files import LogFileMade, LogFileTask
from rocketd.spark.archive.manifest import ArchiveFile
from rocketd.spark.archive.parquet import raw_bytes
from rocketd.spark.archive.reader import by_queue, config_of
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue
from rocketd.store.checkpoint import StoreCheckpoint
from rocketd.store.layout import (
    DEFAULT_COMMIT_LOG_FILE_SIZE,
    SCHEDULE_TOPIC,
    checkpoint_path,
    commit_log_dir,
    offset_to_file_name,
)

WORK = ".rocketd-restore"
_MOVED = ("config", "checkpoint", "index", "consumequeue", "commitlog")
"""The log last: without it, a broker takes nothing of the others for good."""

_READ_WRITE = 6


class RestoreWork:
    """The directory in which a restore is made, and the journal of what is done."""

    def __init__(self, target: str, plan: Entry) -> None:
        """Go on with a restore of this plan, or begin it. Raises ArchiveError when the target holds something else."""
        self.target = target
        self.work = os.path.join(target, WORK)
        self.store = os.path.join(self.work, "store")
        self.made = os.path.join(self.work, "made")
        self._journal = Journal(os.path.join(self.work, "journal"))
        begun = self._journal.refresh()
        if begun:
            if {**begun[0], "commits": 0} != {**plan, "commits": 0}:
                raise ArchiveError(
                    f"{target} has a restore that was begun with other arguments; give the same, or remove {self.work}"
                )
            self.commits: int = begun[0]["commits"]
        else:
            others = [name for name in os.listdir(target) if not name.startswith(WORK) and name != "lost+found"]
            if others:
                named = ", ".join(sorted(others)[:5])
                raise ArchiveError(f"{target} is not empty: it has {named}; restore into an empty directory")
            self._journal.append(plan)
            self.commits = plan["commits"]
        make_dirs(commit_log_dir(self.store))

    @property
    def is_moving(self) -> bool:
        """Whether all is made, and was begun to be put in place."""
        return any(entry.get("step") == "moving" for entry in self._journal.entries)

    def log_files(self) -> dict[int, LogFileMade]:
        """The files of the log that are there, by their first offset."""
        made = [LogFileMade(**entry["made"]) for entry in self._journal.entries if entry.get("step") == "log"]
        return {one.begin: one for one in made}

    def note_log_file(self, made: LogFileMade) -> None:
        """Note that a file of the log is there."""
        self._journal.append({"step": "log", "made": asdict(made)})

    @property
    def queues(self) -> Entry | None:
        """What was told of the queues and the index, once they are made."""
        return next((entry for entry in self._journal.entries if entry.get("step") == "queues"), None)

    def note_queues(self, entries: int, index_entries: int, problems: Sequence[str]) -> Entry:
        """Note that queues and index are made."""
        said = {"step": "queues", "entries": entries, "indexEntries": index_entries, "problems": list(problems)}
        self._journal.append(said)
        return said

    def put_in_place(self) -> None:
        """Move what was made into the target, and remove the rest; may be repeated."""
        if not self.is_moving:
            for name in ("consumequeue", "index"):
                made = os.path.join(self.made, name)
                if os.path.isdir(made):
                    os.rename(made, os.path.join(self.store, name))
            sync_dir(self.store)
            self._journal.append({"step": "moving"})
        for name in _MOVED:
            path = os.path.join(self.store, name)
            if os.path.exists(path):
                os.rename(path, os.path.join(self.target, name))
                sync_dir(self.target)
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.rmtree(self.work)
        sync_dir(self.target)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What is restored: the broker, its files, and how its commit log is cut."""

    broker: str
    files: tuple[ArchiveFile, ...]
    log_file_size: int
    config: Mapping[str, Any]

    @property
    def log_range(self) -> range:
        """First offsets of the files of the log."""
        size = self.log_file_size
        first = min(file.log_begin for file in self.files) // size * size
        return range(first, max(file.log_end for file in self.files), size)


def plan_restore(archive: Archive, commits: int, selection: Selection, log_file_size: int | None) -> RestorePlan:
    """What a selection of the first commits of an archive makes. Raises ArchiveError when that is nothing, or of several
    brokers.
    """
    found = selection.files(file for commit in archive.commits[:commits] for file in commit.files)
    if not found:
        raise ArchiveError(f"{archive.root} has no messages of what is asked for")
    brokers = sorted({file.queue.broker for file in found if file.queue is not None})
    if len(brokers) > 1:
        raise ArchiveError(f"{archive.root} has messages of {', '.join(brokers)}; name one with --broker-name")
    config = config_of(archive).get(brokers[0], {})
    known = config.get("commitLogFileSize")
    size = log_file_size or (known if isinstance(known, int) and known > 0 else DEFAULT_COMMIT_LOG_FILE_SIZE)
    return RestorePlan(brokers[0], tuple(found), size, config)


def log_tasks(plan: RestorePlan, root: str, selection: Selection, directory: str) -> list[LogFileTask]:
    """A task for each file of the log."""
    size = plan.log_file_size
    offsets = plan.log_range
    return [
        LogFileTask(
            root,
            directory,
            begin,
            size,
            begin == offsets[-1],
            tuple(file for file in plan.files if file.log_begin < begin + size and file.log_end > begin),
            selection,
        )
        for begin in offsets
    ]


# ---------------------------------------------------------------- checking


@dataclass(frozen=True, slots=True)
class QueueTask:
    """One queue to be compared with the archive: where the log is, and the queue's files."""

    root: str
    directory: str
    log_file_size: int
    queue: Queue
    files: tuple[ArchiveFile, ...]
    selection: Selection


@dataclass(frozen=True, slots=True)
class QueueRestored:
    """A queue as it stands in the log: wanted offsets, messages, and the SHA-256 of all records in the queue's order."""

    queue: Queue
    first: int
    last: int
    messages: int
    bytes: int
    sha256: str


def queue_tasks(plan: RestorePlan, root: str, selection: Selection, directory: str) -> list[QueueTask]:
    """A task for each queue."""
    return [
        QueueTask(root, directory, plan.log_file_size, queue, tuple(files), selection)
        for queue, files in by_queue(plan.files).items()
    ]


def check_queue(task: QueueTask) -> QueueRestored:
    """Compare the records in the log with the archive's, byte for byte. Raises ArchiveError where they differ."""
    pa.set_cpu_count(1)
    log = _Log(task.directory, task.log_file_size)
    found, wanted = hashlib.sha256(), hashlib.sha256()
    first, last, messages, size = -1, -1, 0, 0
    columns = ("queue_offset", "commit_log_offset", "store_size", "raw")
    try:
        for file in task.files:
            for batch in task.selection.read(task.root, file, columns):
                raw = raw_bytes(batch.column("raw"))
                wanted.update(raw)
                offsets = batch.column("commit_log_offset").to_pylist()
                for offset, length in zip(offsets, batch.column("store_size").to_pylist(), strict=True):
                    found.update(log.record(offset, length))
                if found.digest() != wanted.digest():
                    raise ArchiveError(f"{task.queue}: what stands in the restored log is not what {file.path} has")
                first = batch.column("queue_offset")[0].as_py() if first < 0 else first
                last = batch.column("queue_offset")[-1].as_py()
                messages += batch.num_rows
                size += len(raw)
    finally:
        log.close()
    return QueueRestored(task.queue, first, last, messages, size, found.hexdigest())


class _Log:
    """Reads records of a log by offset; keeps the file that was read last mapped."""

    def __init__(self, directory: str, file_size: int) -> None:
        self._directory = directory
        self._size = file_size
        self._begin = -1
        self._map: mmap.mmap | None = None

    def record(self, offset: int, size: int) -> bytes:
        begin = offset - offset % self._size
        if begin != self._begin or self._map is None:
            self.close()
            with open(os.path.join(self._directory, offset_to_file_name(begin)), "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._begin = begin
        return self._map[offset - begin : offset - begin + size]

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None


# ---------------------------------------------------------------- configuration


def write_config(store: str, plan: RestorePlan, queues: Iterable[QueueRestored]) -> None:
    """Write the broker's tables of topics and of consumers' offsets."""
    restored = list(queues)
    topics = {one.queue.topic for one in restored}
    ends = {(one.queue.topic, one.queue.queue_id): one.last + 1 for one in restored}
    directory = os.path.join(store, "config")
    make_dirs(directory)
    version = {"counter": 1, "timestamp": 0}
    _write(directory, "topics", {"dataVersion": version, "topicConfigTable": dict(_topics(plan.config, topics, ends))})
    table = {}
    for key, offsets in plan.config.get("consumerOffset", {}).items():
        topic = key.partition("@")[0]
        if topic in topics:
            table[key] = _within(offsets, topic, ends)
    if table:
        _write(directory, "consumerOffset", {"offsetTable": table})
    delayed = plan.config.get("delayOffset", {})
    if delayed and SCHEDULE_TOPIC in topics:
        _write(directory, "delayOffset", {"offsetTable": delayed})


def _topics(
    config: Mapping[str, Any], topics: set[str], ends: Mapping[tuple[str, int], int]
) -> Iterator[tuple[str, Any]]:
    known, counts = config.get("topics", {}), config.get("queues", {})
    for topic in sorted(topics):
        highest = max(queue_id for name, queue_id in ends if name == topic) + 1
        count = max(highest, counts.get(topic, 0))
        yield (
            topic,
            known.get(topic)
            or {
                "order": False,
                "perm": _READ_WRITE,
                "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": count,
            },
        )


def _within(offsets: Mapping[str, int], topic: str, ends: Mapping[tuple[str, int], int]) -> dict[str, int]:
    """Offsets of a group, none behind the end of what was restored."""
    return {queue: min(offset, ends.get((topic, int(queue)), offset)) for queue, offset in offsets.items()}


def _write(directory: str, name: str, value: Any) -> None:
    replace_file(os.path.join(directory, f"{name}.json"), json.dumps(value, indent=2).encode())


def write_checkpoint(store: str, last_time: int, *, indexed: bool) -> None:
    """Say that log, queues and index are on the disk up to a store time in ms."""
    checkpoint = StoreCheckpoint(checkpoint_path(store))
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = last_time
    checkpoint.index_msg_timestamp = last_time if indexed else 0
    checkpoint.flush()
