"""The proof that a broker can read a store: every record, queue entry, index entry, table and offset."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise

from rocketd.broker.base.settings import BrokerSettings
from rocketd.store.base.errors import StoreError
from rocketd.store.base.findings import Finding, Remedy, Severity, shortened
from rocketd.store.base.layout import consume_queue_file_size
from rocketd.store.offline.examine import Examination, Progress
from rocketd.store.offline.examine_log import Damaged, LogWalk, Records
from rocketd.store.offline.stopped_store import Segment, StoppedStore
from rocketd.store.offline.summary import summarize_queue
from rocketd.store.state.last_stop import LastStop
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.migration.numbers import StoreNumbers
from rocketd.tools.migration.tables import StoreTables
from rocketd.tools.store.access import StoreAccess

_NEWEST = 2
"""Log files with messages in a quick proof."""
_NONE = "none"


class Scope(Enum):
    """The part of a store that is proved."""

    ALL = "every file"
    NEWEST = f"the newest {_NEWEST} log files, and the queue entries and index entries of their messages"
    CLOSED = "the log files that the running broker no longer writes, without queues and index"


class StoreProof:
    """Reads the store of one place. ``run`` yields the findings, and fills ``numbers``."""

    def __init__(
        self, access: StoreAccess, scope: Scope, progress: Progress, numbers: StoreNumbers, *, by_file: bool
    ) -> None:
        """``by_file`` tells that the configuration file alone, without options, describes the store."""
        self._numbers = numbers
        self._by_file = by_file
        self._access = access
        self._settings: BrokerSettings = access.settings
        self._scope = scope
        self._progress = progress

    def run(self) -> Iterator[DoctorFinding]:
        """Prove the store. Raises OSError and StoreError, for files that cannot be read at all."""
        access = self._access
        try:
            access.refuse_lost_log()
        except StoreError as error:
            yield DoctorFinding(WRONG, "store", str(error), "mount its disk, or correct storePathCommitLog")
            return
        store = access.store()
        wrong_sizes = list(self._wrong_sizes())
        if wrong_sizes:
            # By its own sizes, the store may be sound.
            store = StoppedStore(access.root, access.commit_log)
            yield from wrong_sizes
        if self._scope is not Scope.CLOSED and store.last_stop is not LastStop.CLEAN:
            text = "the last broker was not stopped cleanly: the next start checks the end of the log"
            yield DoctorFinding(NOTE, "store", text, "none; or start that broker again, and stop it by SIGTERM")
        running = self._scope is Scope.CLOSED
        tables = StoreTables(access.root, self._settings.store, self._numbers, running=running)
        queues = [summarize_queue(queue, store.log.min_offset) for queue in store.queues()]
        yield from self._prove_files(store)
        yield from tables.judge(queues)

    # ---------------------------------------------------------------- files

    def _wrong_sizes(self) -> Iterator[DoctorFinding]:
        """Yield settings with other sizes than those of the files: a broker does not open them."""
        store = StoppedStore(self._access.root, self._access.commit_log)
        settings = self._settings.store
        sizes = Counter(queue.file_size for queue in store.queues() if queue.segments).most_common(1)
        found = {
            "mappedFileSizeCommitLog": (settings.mapped_file_size_commit_log, store.log.file_size, store.log.segments),
            "mappedFileSizeConsumeQueue": (
                consume_queue_file_size(settings.mapped_file_size_consume_queue),
                sizes[0][0] if sizes else 0,
                sizes,
            ),
        }
        for key, (wanted, size, files) in found.items():
            if files and wanted != size:
                text = f"the files have {size} bytes, and a broker with {wanted} does not open them"
                level = WRONG if self._access.configured else NOTE
                yield DoctorFinding(level, f"setting {key}", text, f"set {key}={size}")

    def _prove_files(self, store: StoppedStore) -> Iterator[DoctorFinding]:
        log, numbers = store.log, self._numbers
        numbers.log_begin, numbers.log_end = log.min_offset, log.max_offset
        used = [segment for segment in log.segments if log.data_end(segment)]
        if self._scope is Scope.ALL:
            yield from self._examine(store)
            return
        remedy = "before the switch, run this on the stopped store"
        if self._scope is Scope.NEWEST:
            remedy += ", without --quick"
            kept = used[-_NEWEST:]
            yield from self._look_at(store, used[: len(used) - len(kept) + 1])
            # The files behind the last one with messages are allocated already.
            log.segments = [segment for segment in log.segments if kept and segment.offset >= kept[0].offset]
            numbers.log_begin = log.min_offset
            yield from self._examine(store)
        else:
            yield from self._look_at(store, used)
            kept = log.segments = used[:-1]
            numbers.log_begin, numbers.log_end = log.min_offset, log.max_offset
            yield from self._walk(store)
        text = f"read were {self._scope.value}: {len(kept)} of {len(used)} log files with messages"
        yield DoctorFinding(NOTE, "proof", text, remedy)

    def _look_at(self, store: StoppedStore, used: Sequence[Segment]) -> Iterator[DoctorFinding]:
        """Yield wrong sizes, missing files and empty files of the log, up to the last of these files with messages."""
        log, root = store.log, self._access.root
        size = log.file_size
        remedy = "put the file back from a backup"
        present = [segment for segment in log.segments if used and segment.offset <= used[-1].offset]
        for segment in present:
            path = os.path.relpath(segment.path, root)
            if segment.size != size:
                text = f"{path} has {segment.size} bytes instead of {size}"
                yield DoctorFinding(WRONG, "store", text, remedy)
            elif segment not in used:
                text = f"{path} has no message, although later files have some"
                yield DoctorFinding(WRONG, "store", text, remedy)
        for before, after in pairwise(present):
            if after.offset != before.offset + size:
                names = f"{os.path.relpath(before.path, root)} and {os.path.basename(after.path)}"
                text = f"files of {size} bytes are missing between {names}, or have another name"
                yield DoctorFinding(WRONG, "store", text, "put the files back from a backup")

    def _examine(self, store: StoppedStore) -> Iterator[DoctorFinding]:
        examination = Examination(store, self._access.delay_time_of, self._progress)
        for finding in shortened(examination.findings()):
            yield self._translated(finding)
        self._numbers.records, self._numbers.log_end = examination.records, examination.log_end

    def _translated(self, finding: Finding) -> DoctorFinding:
        root, config = self._access.root, self._access.config
        level = WRONG if finding.severity is Severity.DAMAGE else NOTE
        text = f"{os.path.relpath(finding.path, root)} at {finding.position}: {finding.text}"
        advice = finding.remedy.advice(root, config if self._by_file else "FILE") or _NONE
        if finding.remedy in (Remedy.REPAIR, Remedy.REPLACE) and not self._by_file:
            advice = f"write a configuration file with the broker's settings, and {advice}"
        return DoctorFinding(level, "store", text, advice)

    def _walk(self, store: StoppedStore) -> Iterator[DoctorFinding]:
        root, log = self._access.root, store.log
        for event in LogWalk(log, None, abnormal=True).events():
            if isinstance(event, Records):
                self._numbers.records += len(event.requests)
                self._progress(event.requests[-1].physical_offset - log.min_offset, log.max_offset - log.min_offset)
            elif isinstance(event, Damaged):
                text = (
                    f"{os.path.relpath(event.segment.path, root)} at {event.begin - event.segment.offset}: {event.text}"
                )
                yield DoctorFinding(WRONG, "store", text, "stop the broker, and run this again: it names the repair")
