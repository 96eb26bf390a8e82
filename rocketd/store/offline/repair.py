"""Repairs a stopped store: lists the changes, and carries them out.

Readable records are not lost and nothing is deleted: changed or replaced data is kept in a directory within the
store's. Queues and index are built from the log.
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.findings import Disorder, Finding, Remedy, Severity
from rocketd.store.base.layout import queue_dir
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.record_scanner import DelayTimeOf
from rocketd.store.index.layout import DEFAULT_ENTRIES, DEFAULT_SLOTS
from rocketd.store.index.service import IndexService
from rocketd.store.offline.examine import Checkpoint, Examination, Progress
from rocketd.store.offline.examine_index import IndexReader, IndexShape
from rocketd.store.offline.examine_log import Damaged, LogWalk, Missing, Records
from rocketd.store.offline.examine_queues import LMQ_PREFIX, DamagedRanges
from rocketd.store.offline.repair_log import (
    SetAside,
    cut_tail,
    extend_to_length,
    pieces,
    placeholder,
    replace_bytes,
    write_filler,
    write_place,
)
from rocketd.store.offline.repair_queues import QueueBuilder
from rocketd.store.offline.stopped_store import FileSizes, QueueReader, StoppedStore
from rocketd.store.recovery.file_notes import notes_path
from rocketd.store.state.checkpoint import CHECKPOINT_FILE_SIZE
from rocketd.store.state.deletions import Deletions

ASIDE_PREFIX = "rocketd-repair-"
_TIMESTAMPS = struct.Struct(">qqq")
_INDEX_PROBLEMS = frozenset({Disorder.INDEX_HEADER, Disorder.INDEX_CHAIN, Disorder.INDEX_ENTRY, Disorder.INDEX_LACKS})
_LOG_PROBLEMS = frozenset({Disorder.RECORD, Disorder.BODY_CRC, Disorder.TAIL, Disorder.FILLER})


@dataclass
class Plan:
    """Planned changes: findings about the log, one for each change, and the parts to build from the log."""

    log: list[Finding] = field(default_factory=list)
    queues: set[tuple[str, int]] = field(default_factory=set)
    index: bool = False
    checkpoint: bool = False
    damages: int = 0
    """Number of findings of damage, including those without a planned change."""

    def __bool__(self) -> bool:
        return bool(self.log or self.queues or self.index or self.checkpoint)

    def lines(self, root: str) -> Iterator[str]:
        """Yield the planned changes, one line each."""
        for finding in self.log:
            yield f"{os.path.relpath(finding.path, root)} at {finding.position}: {_describe_change(finding)}"
        for topic, queue_id in sorted(self.queues):
            yield f"rebuild queue {topic}-{queue_id} from the log"
        if self.index:
            yield "rebuild the index from the log"
        if self.checkpoint:
            yield "set the checkpoint back to the last record"


def _describe_change(finding: Finding) -> str:
    if finding.problem is Disorder.TAIL:
        return f"fill {finding.size} bytes behind the last whole record with zeros"
    if finding.problem is Disorder.FILE_SIZE:
        return "fill the file up to its length with zeros"
    if finding.problem is Disorder.FILE_MISSING:
        return "create an empty file, which is a filler only"
    if finding.problem is Disorder.RECORD_PLACE:
        topic, queue_id = finding.queue or ("", 0)
        return f"set the record's place to number {finding.queue_offset} of {topic}-{queue_id}"
    if finding.remedy is Remedy.REPAIR:
        return "write the filler that ends the file"
    return f"replace {finding.size} damaged bytes with placeholders"


class Repair:
    """One repair of one store, locked by the caller. All changes go through the file system."""

    def __init__(
        self,
        root: str,
        fs: IFileSystem,
        aside: str,
        *,
        commit_log: str | Sequence[str] | None = None,
        delay_time_of: DelayTimeOf | None = None,
        sizes: FileSizes | None = None,
        replace_damaged: bool = False,
        build_index: bool = False,
        progress: Progress | None = None,
        now_ms: Callable[[], int],
    ) -> None:
        """Take the store and the choices of the operator.

        - `aside` is the name of the directory in the store for replaced data.
        - `sizes` are the file sizes of the settings, if known.
        - `replace_damaged` replaces damage in the middle of the log by placeholders.
        - `build_index` builds the index in any case.
        """
        self._root = root
        self._fs = fs
        self._aside = SetAside(fs, root, aside)
        self._commit_log = commit_log
        self._delay_time_of = delay_time_of
        self._sizes = sizes
        self._replace = replace_damaged
        self._build_index_once = build_index
        self._progress = progress
        self._now_ms = now_ms

    def examination(self) -> Examination:
        """Return a new examination of the store in its present state."""
        return Examination(self._store(), self._delay_time_of, self._progress)

    def _store(self) -> StoppedStore:
        return StoppedStore(self._root, self._commit_log, self._sizes)

    def plan(self) -> Plan:
        """Examine the store and plan the changes. Changes nothing."""
        plan = Plan(index=self._build_index_once)
        for finding in self.examination().findings():
            if finding.severity is Severity.DAMAGE:
                plan.damages += 1
                self._add(plan, finding)
        return plan

    def _add(self, plan: Plan, finding: Finding) -> None:
        if finding.remedy is Remedy.REPLACE:
            if self._replace:
                plan.log.append(finding)
        elif finding.remedy is not Remedy.REPAIR:
            return
        elif finding.problem is Disorder.RECORD_PLACE:
            plan.log.append(finding)
        elif finding.queue is not None:
            if not finding.queue[0].startswith(LMQ_PREFIX):
                plan.queues.add(finding.queue)
        elif finding.problem in _INDEX_PROBLEMS or os.path.dirname(finding.path) == self._index_root:
            plan.index = True
        elif finding.problem is Disorder.CHECKPOINT:
            plan.checkpoint = True
        elif finding.problem in _LOG_PROBLEMS or finding.problem is Disorder.FILE_SIZE:
            plan.log.append(finding)

    @property
    def _index_root(self) -> str:
        return os.path.join(self._root, "index")

    def carry_out(self, tell: Callable[[str], None]) -> None:
        """Repair as much as possible, calling `tell` before each change. Raises OSError.

        Changes of the log come first. The store is then examined again, because they bring other findings to light.
        """
        done: set[str] = set()
        while True:
            plan = self._first_of(self.plan())
            lines = set(plan.lines(self._root))
            if lines <= done:
                # Nothing to do, or already tried without success.
                return
            done |= lines
            for line in sorted(lines):
                tell(line)
            # Otherwise the next start would miss the files replaced now.
            self._aside.replace(notes_path(self._root), None)
            self._build_index_once = self._build_index_once and not plan.index
            store = self._store()
            queues = store.queues() if any(finding.remedy is Remedy.REPLACE for finding in plan.log) else []
            for queue in queues:
                queue.find_end()
            for finding in plan.log:
                self._repair_log_finding(store, queues, finding)
            if plan.queues or plan.index:
                self._build(store, plan)
            if plan.checkpoint:
                self._set_checkpoint(store)

    @staticmethod
    def _first_of(plan: Plan) -> Plan:
        """Return the part of a plan to do first: file lengths, then the log, then the data built from it."""
        lengths = [finding for finding in plan.log if finding.problem is Disorder.FILE_SIZE]
        return Plan(log=lengths or plan.log) if plan.log else plan

    def _repair_log_finding(self, store: StoppedStore, queues: list[QueueReader], finding: Finding) -> None:
        """Carry out the change for a finding about the log."""
        fs, aside, file_size = self._fs, self._aside, store.log.file_size
        path, position, size = finding.path, finding.position, finding.size
        if finding.problem is Disorder.TAIL:
            cut_tail(fs, aside, path, position, size)
        elif finding.problem is Disorder.FILE_SIZE:
            extend_to_length(fs, path, file_size)
        elif finding.problem is Disorder.FILE_MISSING:
            extend_to_length(fs, path, file_size)
            write_filler(fs, path, 0, file_size)
        elif finding.problem is Disorder.RECORD_PLACE and finding.queue is not None:
            write_place(fs, aside, path, position, (*finding.queue, finding.queue_offset))
        elif finding.problem is Disorder.FILLER or position + size == file_size:
            aside.save_bytes(path, position, size)
            write_filler(fs, path, position, file_size)
        else:
            begin, end = finding.physical_offset, finding.physical_offset + size
            record = store.log.record_at(begin)
            # Before a filler: the first record of the next file.
            stored = record or store.log.record_at(end) or store.log.record_at(begin - position + file_size)
            records = (
                placeholder(piece, stored.store_timestamp if stored else 0)
                for piece in pieces(begin, end, queues, record)
            )
            replace_bytes(fs, aside, path, position, size, records)

    def _build(self, store: StoppedStore, plan: Plan) -> None:
        """Build queues and index in one walk over the log, then move the old ones aside."""
        damaged = DamagedRanges()
        known = {(queue.topic, queue.queue_id): queue for queue in store.queues()} if plan.queues else {}
        builders = {key: self._builder(store, key, known, damaged) for key in plan.queues}
        index = self._new_index(store) if plan.index else None
        try:
            for event in LogWalk(store.log, self._delay_time_of, store.abnormal).events():
                if isinstance(event, Records):
                    self._dispatch(event.requests, builders, index, store.deletions)
                elif isinstance(event, Missing | Damaged):
                    damaged.add(event.begin, event.end)
                    if isinstance(event, Damaged) and event.request is not None:
                        # Everything except the body is intact: readers get it with a CRC that does not match.
                        self._dispatch([event.request], builders, None, store.deletions)
            if index is not None:
                index.flush()
        finally:
            if index is not None:
                index.close()
        for builder in builders.values():
            new = builder.directory if builder.finish() else None
            self._aside.replace(builder.old.directory, new)
        if index is not None:
            self._aside.replace(store.index_root, index.directory if self._fs.exists(index.directory) else None)
            paths = store.index_paths()
            if store.abnormal and paths:
                # Otherwise the next start would remove the files not known to be on disk.
                checkpoint = Checkpoint(self._root)
                self._write_checkpoint(
                    checkpoint, checkpoint.physic, checkpoint.logics, IndexReader(paths[-1]).end_timestamp
                )
        self._remove_empty(os.path.dirname(self._aside.new_path_of(store.index_root)))

    @staticmethod
    def _dispatch(
        requests: list[DispatchRequest],
        builders: dict[tuple[str, int], QueueBuilder],
        index: IndexService | None,
        deletions: Deletions,
    ) -> None:
        if builders:
            for request in deletions.left_of(requests):
                builder = builders.get((request.topic, request.queue_id))
                if builder is not None:
                    builder.put(request)
        if index is not None:
            index.put(requests)

    def _builder(
        self,
        store: StoppedStore,
        key: tuple[str, int],
        known: dict[tuple[str, int], QueueReader],
        damaged: DamagedRanges,
    ) -> QueueBuilder:
        old = known.get(key)
        if old is None:
            old = QueueReader(*key, queue_dir(self._root, *key))
            if self._sizes is not None:
                old.file_size = self._sizes.queue
            elif known:
                old.file_size = next(iter(known.values())).file_size
        return QueueBuilder(
            self._fs, old, self._aside.new_path_of(old.directory), store.log, lambda offset: offset in damaged
        )

    def _new_index(self, store: StoppedStore) -> IndexService:
        shape = self.examination().shape_of_index() or IndexShape(DEFAULT_SLOTS, DEFAULT_ENTRIES)
        directory = self._aside.new_path_of(store.index_root)
        return IndexService(
            directory, shape.slots, shape.entries, self._now_ms, file_system=self._fs, retry_seconds=0.0
        )

    def _set_checkpoint(self, store: StoppedStore) -> None:
        """Limit all times to that of the last record."""
        checkpoint = Checkpoint(self._root)
        latest = 0
        for event in LogWalk(store.log, None, store.abnormal).events():
            if isinstance(event, Records):
                latest = max(latest, event.requests[-1].store_timestamp)
        times = (min(max(0, time), latest) for time in (checkpoint.physic, checkpoint.logics, checkpoint.index))
        self._write_checkpoint(checkpoint, *times)

    def _write_checkpoint(self, checkpoint: Checkpoint, *times: int) -> None:
        self._aside.replace(checkpoint.path, None)
        self._fs.write_file(checkpoint.path, _TIMESTAMPS.pack(*times).ljust(CHECKPOINT_FILE_SIZE, b"\0"))
        self._fs.sync_dir(self._root)

    def _remove_empty(self, directory: str) -> None:
        """Remove the directories used only for building."""
        for folder, _, _ in sorted(os.walk(directory), reverse=True):
            self._fs.rmdir(folder)
