"""Examines a stopped store: everything in it against everything else.

Answers to nothing in Apache's code. Reads only. One pass over the log compares it with the consume queues and the index at
the same time; what is kept in memory grows with the number of queues and of damages, not with that of the messages.
"""

import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from rocketd.store.checkpoint import CHECKPOINT_FILE_SIZE, PROGRESS_POSITION, RECOVERY_MARGIN_MS, StoreCheckpoint
from rocketd.store.examine_index import IndexCheck, IndexReader, IndexShape, check_file
from rocketd.store.examine_log import Damaged, Event, LogEnd, LogWalk, Missing, Records, WrongFiller
from rocketd.store.examine_queues import DamagedRanges, QueueCheck
from rocketd.store.findings import Finding, Problem, Remedy, Severity
from rocketd.store.last_stop import LastStop
from rocketd.store.layout import MESSAGE_MAGIC, checkpoint_path
from rocketd.store.message import DispatchRequest
from rocketd.store.record import MIN_RECORD_SIZE, store_timestamp_of
from rocketd.store.record_scanner import DelayTimeOf
from rocketd.store.stopped_store import Segment, StoppedStore

Progress = Callable[[int, int], None]
"""Is told the bytes of the log that have been examined, and all there are."""

MOST_TIME_BACK_MS = 60_000
"""A single record whose store time is out of order by more than this is taken for damaged."""

_QUEUE_NUMBERS = ("readQueueNums", "writeQueueNums")
_TIMESTAMPS = struct.Struct(">qqq")
_MAGIC = struct.Struct(">i")


class Checkpoint:
    """The times in the checkpoint file, ms; zeros where it is missing or short. `size` is -1 where it is missing."""

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
        """Time up to which log and queues are surely on the disk."""
        return max(0, min(self.physic, self.logics) - RECOVERY_MARGIN_MS)


def configured_topics(root: str) -> dict[str, int] | None:
    """The topics in config/topics.json and how many queues each has, 0 if it does not say; None if that cannot be read."""
    try:
        with open(os.path.join(root, "config", "topics.json"), encoding="utf-8") as file:
            table = json.load(file)["topicConfigTable"]
        return {topic: max(config.get(name, 0) for name in _QUEUE_NUMBERS) for topic, config in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def replayed_from(store: StoppedStore, checkpoint: Checkpoint) -> int | None:
    """Where the next start begins to dispatch again after a crash; None after a clean stop."""
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
        """`delay_time_of` gives the delivery time of delayed messages; without, theirs are not compared."""
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
        """Examine the store and yield what is found, in the order it is found."""
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
        # After a crash the next start removes these, and indexes again what it replays.
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
        """Slots and entries of the index files, None where they are not to be told."""
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
            text = f"the file has {segment.size} bytes where {log.file_size} belong"
            # What was cut off is gone; the rest can be read again when the file has its length.
            remedy = Remedy.REPAIR if segment.size < log.file_size else Remedy.BACKUP
            yield Finding(Severity.DAMAGE, Problem.FILE_SIZE, remedy, segment.path, segment.size, text)

    def _index_readers(self) -> tuple[list[IndexReader], list[Finding]]:
        readers: list[IndexReader] = []
        problems: list[Finding] = []
        for path in self.store.index_paths():
            try:
                readers.append(IndexReader(path))
            except (OSError, ValueError) as error:
                text = f"the index file cannot be read: {error}"
                problems.append(Finding(Severity.DAMAGE, Problem.FILE_SIZE, Remedy.REPAIR, path, 0, text))
        if self.index_shape is None and readers:
            self.index_shape = next((shape for reader in readers if (shape := reader.shape())), None)
            if self.index_shape is None:
                text = "neither its length nor its entries tell how many slots the file has; give --config"
                problems.append(
                    Finding(Severity.DAMAGE, Problem.INDEX_HEADER, Remedy.REPAIR, readers[-1].path, 0, text)
                )
        return readers, problems

    def _log_finding(self, event: Event) -> Iterator[Finding]:
        """What is to be said about a part of the log that is no records."""
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
            text = "the file is missing between others of the log, and with it its messages"
            size = event.end - event.begin
            yield Finding(Severity.DAMAGE, Problem.FILE_MISSING, Remedy.REPLACE, event.path, 0, text, event.begin, size)
        elif isinstance(event, WrongFiller):
            text = f"the filler at the end of the file claims {event.claimed} bytes"
            yield Finding(
                Severity.DAMAGE,
                Problem.FILLER,
                Remedy.REPAIR,
                event.segment.path,
                event.position,
                text,
                event.segment.offset + event.position,
                event.segment.size - event.position,
            )
        elif isinstance(event, LogEnd):
            self.log_end = event.offset
            if event.dirty_end > event.offset and event.segment is not None:
                crash = self.store.abnormal
                text = f"behind the last whole record: {event.text or 'bytes that are no record'}"
                yield Finding(
                    Severity.NOTE if crash else Severity.DAMAGE,
                    Problem.TAIL,
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
            severity, Problem.STORE_TIME, remedy, path, position, text, request.physical_offset, request.size
        )

    def _check_checkpoint(self) -> Iterator[Finding]:
        checkpoint = self._checkpoint
        if 0 <= checkpoint.size != CHECKPOINT_FILE_SIZE:
            text = f"the checkpoint has {checkpoint.size} bytes where {CHECKPOINT_FILE_SIZE} belong"
            yield Finding(Severity.DAMAGE, Problem.CHECKPOINT, Remedy.REPAIR, checkpoint.path, checkpoint.size, text)
        progress = StoreCheckpoint(checkpoint.path).progress
        if progress is not None:
            known = progress.end(self.store.last_stop)
            if self.log_end < known:
                text = (
                    f"the log went on to {known}, and ends at {self.log_end}: its last file is missing or was emptied"
                )
                yield Finding(
                    Severity.DAMAGE, Problem.CHECKPOINT, Remedy.REPAIR, checkpoint.path, PROGRESS_POSITION, text
                )
        latest = self._times.latest
        names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
        for number, (name, value) in enumerate(
            zip(names, (checkpoint.physic, checkpoint.logics, checkpoint.index), strict=True)
        ):
            if value < 0 or (latest and value > latest):
                text = f"{name} is {value}, the last record was stored at {latest}"
                # With an end that a crash has cut off, it may have been right.
                yield Finding(Severity.DAMAGE, Problem.CHECKPOINT, Remedy.REPAIR, checkpoint.path, number * 8, text)


class _StoreTimes:
    """Watches that store times do not go back."""

    def __init__(self) -> None:
        self._latest = 0
        self._before: int | None = None
        self._last: DispatchRequest | None = None
        self._dipped_from: int | None = None

    @property
    def latest(self) -> int:
        """Greatest store time, without those that were found to be out of order."""
        return self._latest if self._last is None else max(self._latest, self._last.store_timestamp)

    def see(self, request: DispatchRequest) -> Sequence[tuple[DispatchRequest, str, bool]]:
        """Take the next record; returns suspects: the record, what is odd, whether it is taken for damaged."""
        last, before = self._last, self._before
        now = request.store_timestamp
        suspects: list[tuple[DispatchRequest, str, bool]] = []
        if last is not None:
            then = last.store_timestamp
            if self._dipped_from is not None:
                # The last record's time was before that of the one before it: alone, or from then on?
                text = f"the record at {last.physical_offset} was stored at {then}, the one before it at "
                text += f"{self._dipped_from}"
                alone = now >= self._dipped_from > then + MOST_TIME_BACK_MS
                suspects.append((last, text, alone))
                self._dipped_from = None
            if now < then:
                if before is not None and before <= now and then - now > MOST_TIME_BACK_MS:
                    text = f"the record at {last.physical_offset} was stored at {then}, the next one at {now}"
                    suspects.append((last, text, True))
                else:
                    self._dipped_from = then
            else:
                self._latest = max(self._latest, then)
        self._before = None if last is None else last.store_timestamp
        self._last = request
        return suspects
