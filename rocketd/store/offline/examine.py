"""Examines a stopped store by comparing all of its parts with each other.

Reads only. One pass over the log compares it with the consume queues and the index at the same time. Memory use grows
with the number of queues and of damages, not with the number of messages.
"""

import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.findings import Disorder, Finding, Remedy, Severity
from rocketd.store.base.layout import MESSAGE_MAGIC, checkpoint_path, config_dir
from rocketd.store.base.table_journal import read_journal
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.record import MIN_RECORD_SIZE, store_timestamp_of
from rocketd.store.format.record_scanner import DelayTimeOf
from rocketd.store.offline.examine_index import IndexCheck, IndexReader, IndexShape, check_file
from rocketd.store.offline.examine_log import Damaged, Event, ExaminedEnd, LogWalk, Missing, Records, WrongFiller
from rocketd.store.offline.examine_queues import DamagedRanges, QueueCheck
from rocketd.store.offline.stopped_store import Segment, StoppedStore
from rocketd.store.state.checkpoint import CHECKPOINT_FILE_SIZE, PROGRESS_POSITION, RECOVERY_MARGIN_MS, StoreCheckpoint
from rocketd.store.state.last_stop import LastStop

Progress = Callable[[int, int], None]
"""Called with (bytes of the log examined so far, bytes of the log)."""

MAX_TIME_BACK_MS = 60_000
"""A single record whose store time is out of order by more than this counts as damaged."""

_QUEUE_NUMBERS = ("readQueueNums", "writeQueueNums")
_TIMESTAMPS = struct.Struct(">qqq")
_MAGIC = struct.Struct(">i")


class Checkpoint:
    """Times of the checkpoint file in ms; zeros if it is missing or short. `size` is -1 if it is missing."""

    def __init__(self, root: str) -> None:
        self.path = checkpoint_path(root)
        try:
            with open(self.path, "rb") as file:
                data = file.read(CHECKPOINT_FILE_SIZE + 1)
            self.size = len(data)
        except FileNotFoundError:
            data = b""
            self.size = -1
        self.physic: int
        self.logics: int
        self.index: int
        self.physic, self.logics, self.index = _TIMESTAMPS.unpack(data[:24].ljust(24, b"\0"))

    @property
    def recovery_time(self) -> int:
        """Time up to which log and queues are certainly on disk."""
        return max(0, min(self.physic, self.logics) - RECOVERY_MARGIN_MS)


def configured_topics(root: str) -> dict[str, int] | None:
    """Return the topics of config/topics.json with their number of queues (0 if not given). None if it is unreadable."""
    path = os.path.join(config_dir(root), "topics.json")
    try:
        with open(path, "rb") as file:
            content = file.read()
        table = json.loads(content)["topicConfigTable"]
        for text in read_journal(RealFileSystem(), path, content):
            table.update(json.loads(text)["topicConfigTable"])
        return {topic: max(config.get(name, 0) for name in _QUEUE_NUMBERS) for topic, config in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def replayed_from(store: StoppedStore, checkpoint: Checkpoint) -> int | None:
    """Return where the next start begins to dispatch after a crash, None after a clean stop."""
    if not store.abnormal:
        return None
    segments = store.log.segments
    progress = StoreCheckpoint(checkpoint.path).progress
    if progress is not None:
        return max(progress.end(store.last_stop), store.log.min_offset)
    for segment in reversed(segments):
        stored = _first_store_time(store, segment)
        if 0 < stored <= checkpoint.recovery_time:
            return segment.offset
    return segments[0].offset if segments else 0


def _first_store_time(store: StoppedStore, segment: Segment) -> int:
    if segment.size < MIN_RECORD_SIZE:
        return 0
    head = store.log.bytes_of(segment)[:MIN_RECORD_SIZE]
    (magic,) = _MAGIC.unpack_from(head, 4)
    return store_timestamp_of(head) if magic == MESSAGE_MAGIC else 0


class Examination:
    """One examination of one store."""

    def __init__(
        self,
        store: StoppedStore,
        delay_time_of: DelayTimeOf | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`delay_time_of` returns the delivery time of delayed messages. Without it, these times are not compared."""
        self.store = store
        sizes = store.sizes
        self.index_shape = None if sizes is None else IndexShape(sizes.index_slots, sizes.index_entries)
        self.records = 0
        self.log_end = 0
        self._delay_time_of = delay_time_of
        self._progress = progress
        self._damaged = DamagedRanges()
        self._times = _StoreTimes()
        self._checkpoint = Checkpoint(store.root)

    def findings(self) -> Iterator[Finding]:
        """Examine the store and yield the findings in the order of discovery."""
        store = self.store
        yield from self._log_files()
        replayed = replayed_from(store, self._checkpoint)
        queues = QueueCheck(
            store.queues(),
            store.log,
            self._damaged,
            topics=configured_topics(store.root),
            deletions=store.deletions,
            replayed_from=replayed,
            abnormal=store.abnormal,
            extended=store.extended,
        )
        yield from queues.sizes()
        readers, problems = self._index_readers()
        yield from problems
        # After a crash, the next start removes these files and indexes the replayed records again.
        crashed = store.last_stop is LastStop.CRASHED
        doomed = {r.path for r in readers if crashed and r.end_timestamp > self._checkpoint.index}
        index = None
        if self.index_shape is not None or not problems:
            shape = self.index_shape or IndexShape(1, 2)
            for reader in readers:
                yield from self._softened(check_file(reader, shape, in_doubt=store.abnormal), doomed)
            begin = store.log.min_offset
            index = IndexCheck(readers, shape, begin, self._damaged, queues.replayed_from)
        for event in LogWalk(store.log, self._delay_time_of, store.abnormal).events():
            if isinstance(event, Records):
                for request in event.requests:
                    yield from queues.record(request)
                    if index is not None:
                        yield from self._softened(index.record(request), doomed)
                    for suspect in self._times.see(request):
                        yield self._time_finding(suspect)
                self.records += len(event.requests)
                self._tell(event.requests[-1].physical_offset)
            else:
                yield from self._log_finding(event)
        yield from queues.finish(self.log_end)
        if index is not None:
            yield from self._softened(index.finish(self.log_end, store.index_root), doomed)
        yield from self._check_checkpoint()
        self._tell(store.log.max_offset)

    def shape_of_index(self) -> IndexShape | None:
        """Return slots and entries of the index files, None if unknown."""
        self._index_readers()
        return self.index_shape

    def _tell(self, offset: int) -> None:
        if self._progress is not None:
            begin = self.store.log.min_offset
            self._progress(offset - begin, self.store.log.max_offset - begin)

    @staticmethod
    def _softened(findings: Iterator[Finding], doomed: set[str]) -> Iterator[Finding]:
        for finding in findings:
            if finding.path in doomed:
                yield replace(finding, severity=Severity.NOTE, remedy=Remedy.START)
            else:
                yield finding

    def _log_files(self) -> Iterator[Finding]:
        log = self.store.log
        for segment in log.segments:
            last = segment is log.segments[-1]
            if segment.size == log.file_size or (last and not segment.size):
                continue
            text = f"the file has {segment.size} bytes instead of {log.file_size}"
            # The cut part is lost; the rest is readable again when the file has its length.
            remedy = Remedy.REPAIR if segment.size < log.file_size else Remedy.BACKUP
            yield Finding(Severity.DAMAGE, Disorder.FILE_SIZE, remedy, segment.path, segment.size, text)

    def _index_readers(self) -> tuple[list[IndexReader], list[Finding]]:
        readers: list[IndexReader] = []
        problems: list[Finding] = []
        for path in self.store.index_paths():
            try:
                readers.append(IndexReader(path))
            except (OSError, ValueError) as error:
                text = f"the index file cannot be read: {error}"
                problems.append(Finding(Severity.DAMAGE, Disorder.FILE_SIZE, Remedy.REPAIR, path, 0, text))
        if self.index_shape is None and readers:
            self.index_shape = next((shape for reader in readers if (shape := reader.shape())), None)
            if self.index_shape is None:
                text = "the number of slots is not clear from the file's length and entries; give --config"
                problems.append(
                    Finding(Severity.DAMAGE, Disorder.INDEX_HEADER, Remedy.REPAIR, readers[-1].path, 0, text)
                )
        return readers, problems

    def _log_finding(self, event: Event) -> Iterator[Finding]:
        """Return the finding about a part of the log without valid records."""
        if isinstance(event, Damaged):
            self._damaged.add(event.begin, event.end)
            size = event.end - event.begin
            harmless = event.to_end_of_file and event.is_zero(self.store.log)
            yield Finding(
                Severity.DAMAGE,
                event.problem,
                Remedy.REPAIR if harmless else Remedy.REPLACE,
                event.segment.path,
                event.begin - event.segment.offset,
                event.text,
                event.begin,
                size,
            )
        elif isinstance(event, Missing):
            self._damaged.add(event.begin, event.end)
            text = "the file is missing between other files of the log, and so are its messages"
            size = event.end - event.begin
            yield Finding(
                Severity.DAMAGE, Disorder.FILE_MISSING, Remedy.REPLACE, event.path, 0, text, event.begin, size
            )
        elif isinstance(event, WrongFiller):
            text = f"the filler at the end of the file claims {event.claimed} bytes"
            yield Finding(
                Severity.DAMAGE,
                Disorder.FILLER,
                Remedy.REPAIR,
                event.segment.path,
                event.position,
                text,
                event.segment.offset + event.position,
                event.segment.size - event.position,
            )
        elif isinstance(event, ExaminedEnd):
            self.log_end = event.offset
            if event.dirty_end > event.offset and event.segment is not None:
                crash = self.store.abnormal
                text = f"behind the last whole record: {event.text or 'bytes that are not a record'}"
                yield Finding(
                    Severity.NOTE if crash else Severity.DAMAGE,
                    Disorder.TAIL,
                    Remedy.START if crash else Remedy.REPAIR,
                    event.segment.path,
                    event.offset - event.segment.offset,
                    text,
                    event.offset,
                    event.dirty_end - event.offset,
                )

    def _time_finding(self, suspect: "tuple[DispatchRequest, str, bool]") -> Finding:
        request, text, damaged = suspect
        segment = self.store.log.find(request.physical_offset)
        path, offset = (segment.path, segment.offset) if segment else (self.store.log.directory, 0)
        severity = Severity.DAMAGE if damaged else Severity.NOTE
        remedy = Remedy.BACKUP if damaged else Remedy.NONE
        position = request.physical_offset - offset
        return Finding(
            severity, Disorder.STORE_TIME, remedy, path, position, text, request.physical_offset, request.size
        )

    def _check_checkpoint(self) -> Iterator[Finding]:
        checkpoint = self._checkpoint
        if 0 <= checkpoint.size != CHECKPOINT_FILE_SIZE:
            text = f"the checkpoint has {checkpoint.size} bytes instead of {CHECKPOINT_FILE_SIZE}"
            yield Finding(Severity.DAMAGE, Disorder.CHECKPOINT, Remedy.REPAIR, checkpoint.path, checkpoint.size, text)
        progress = StoreCheckpoint(checkpoint.path).progress
        if progress is not None:
            known = progress.end(self.store.last_stop)
            if self.log_end < known:
                text = (
                    f"the log went on to {known}, and ends at {self.log_end}: its last file is missing or was emptied"
                )
                yield Finding(
                    Severity.DAMAGE, Disorder.CHECKPOINT, Remedy.REPAIR, checkpoint.path, PROGRESS_POSITION, text
                )
        latest = self._times.latest
        names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
        for number, (name, value) in enumerate(
            zip(names, (checkpoint.physic, checkpoint.logics, checkpoint.index), strict=True)
        ):
            if value < 0 or (latest and value > latest):
                text = f"{name} is {value}, the last record was stored at {latest}"
                # If a crash has cut off the end, the time may have been right.
                yield Finding(Severity.DAMAGE, Disorder.CHECKPOINT, Remedy.REPAIR, checkpoint.path, number * 8, text)


class _StoreTimes:
    """Checks that store times do not decrease."""

    def __init__(self) -> None:
        self._latest = 0
        self._before: int | None = None
        self._last: DispatchRequest | None = None
        self._dipped_from: int | None = None

    @property
    def latest(self) -> int:
        """Greatest store time, without times found to be out of order."""
        return self._latest if self._last is None else max(self._latest, self._last.store_timestamp)

    def see(self, request: DispatchRequest) -> Sequence[tuple[DispatchRequest, str, bool]]:
        """Take the next record. Return suspects: (record, description, whether it counts as damaged)."""
        last, before = self._last, self._before
        now = request.store_timestamp
        suspects: list[tuple[DispatchRequest, str, bool]] = []
        if last is not None:
            then = last.store_timestamp
            if self._dipped_from is not None:
                # The last record's time was before that of its predecessor: only this one, or all from here on?
                text = f"the record at {last.physical_offset} was stored at {then}, the one before it at "
                text += f"{self._dipped_from}"
                alone = now >= self._dipped_from > then + MAX_TIME_BACK_MS
                suspects.append((last, text, alone))
                self._dipped_from = None
            if now < then:
                if before is not None and before <= now and then - now > MAX_TIME_BACK_MS:
                    text = f"the record at {last.physical_offset} was stored at {then}, the next one at {now}"
                    suspects.append((last, text, True))
                else:
                    self._dipped_from = then
            else:
                self._latest = max(self._latest, then)
        self._before = None if last is None else last.store_timestamp
        self._last = request
        return suspects
