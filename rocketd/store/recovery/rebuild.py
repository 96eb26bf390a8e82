"""Makes queues and index again from the log at the start, if files are missing or do not agree with it.

The plan is on disk before anything is removed, and stays until everything is rebuilt. If the process ends in
between, the next start does all of it again. Other queues are left alone, so messages of deleted topics do not come
back.
"""

from collections.abc import Sequence

from twisted.logger import Logger

from rocketd.store.base.errors import StoreDamagedError
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.format.record_scanner import RecordScanner, ScanEnd
from rocketd.store.index.service import IndexService
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.recovery.file_notes import IndexCut, Notes, QueueCut, RebuildPlan
from rocketd.store.state.deletions import Deletions

_NAMED = 10
"""Number of causes named in the log line."""


def merged(plans: Sequence[RebuildPlan]) -> RebuildPlan:
    """Merge several plans into one."""
    queues: dict[tuple[str, int], QueueCut] = {}
    index: IndexCut | None = None
    for plan in plans:
        for cut in plan.queues:
            key = cut.topic, cut.queue_id
            queues[key] = min(queues.get(key, cut), cut)
        if plan.index_cut is not None:
            index = plan.index_cut if index is None else min(index, plan.index_cut)
    return RebuildPlan(tuple(queues.values()), index)


class Rebuild:
    """One run of a rebuild plan. Belongs to the thread that starts the store."""

    _log = Logger()

    def __init__(
        self,
        plan: RebuildPlan,
        begin: int,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        index: IndexService | None,
        scanner: RecordScanner,
        deletions: Deletions,
    ) -> None:
        """`begin` is the offset of the log where the reading for a plan that is not empty begins."""
        self._plan = plan
        self._begin = begin
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._scanner = scanner
        self._deletions = deletions
        self._cuts = {(cut.topic, cut.queue_id): cut for cut in plan.queues}

    def cut_queues(self, causes: Sequence[str]) -> None:
        """Cut the queues of the plan. `causes` tells in words why. Raises OSError."""
        named = ", ".join(causes[:_NAMED]) + (f" and {len(causes) - _NAMED} more" if len(causes) > _NAMED else "")
        self._log.warn(
            "{causes}: rebuilt from the log from offset {begin} on",
            causes=named or "not finished before",
            begin=self._begin,
        )
        for cut in self._plan.queues:
            queue = self._queues.find(cut.topic, cut.queue_id)
            if queue is not None:
                queue.cut(cut.offset)

    def carry_out(self, until: int) -> None:
        """Make the planned data again from the records before an offset of the log, where dispatch continues.

        Raises OSError, or StoreDamagedError if a record is missing.
        """
        if not self._plan:
            return
        index_from = self._index_from()
        offset = self._begin if index_from is None else min(self._begin, index_from)
        while offset < until:
            data = self._commit_log.data_from(offset)
            if data is None:
                raise StoreDamagedError(self._commit_log.queue.path_of(offset), offset, until)
            scan = self._scanner.scan(data, 0, min(len(data), until - offset), offset, check_crc=False)
            self._put(scan.requests)
            if self._index is not None and index_from is not None:
                self._index.put([request for request in scan.requests if request.physical_offset >= index_from])
            if scan.end is ScanEnd.BROKEN:
                file = self._commit_log.queue.find(offset)
                raise StoreDamagedError(file.path if file else "", offset + scan.position, until)
            offset = self._commit_log.roll(offset) if scan.end is ScanEnd.END_OF_FILE else offset + scan.position

    def keep_offsets(self, notes: Notes) -> None:
        """Continue the offsets of queues whose messages have all expired, so none is given twice.

        A queue continues at its noted end, or else after its last file. Call it when everything is dispatched. Raises
        OSError.
        """
        for key in self._cuts:
            files = notes.queues.get(key, ())
            # A file that begins after the end of the log was lost with the log. It was never visible.
            if files and 0 <= files[-1].first < self._commit_log.min_offset:
                queue = self._queues.find_or_create(*key)
                if not queue.files.files:
                    queue.begin_at(notes.ends.get(key, files[-1].offset + queue.files.file_size))
                    self._queues.dirty.add(queue)

    def _index_from(self) -> int | None:
        """Return the log offset from which the index is rebuilt, None if it is not."""
        cut = self._plan.index_cut
        if cut is None or self._index is None:
            return None
        if self._index.file_names:
            # The remaining files may be of expired messages.
            return max(self._index.indexed_to, self._commit_log.min_offset)
        # No file is left, so records indexed before the first missing file are included.
        return cut.begin if cut.first else self._commit_log.min_offset

    def _put(self, requests: Sequence[DispatchRequest]) -> None:
        groups: dict[tuple[str, int], list[DispatchRequest]] = {}
        for request in self._deletions.left_of(requests):
            key = request.topic, request.queue_id
            cut = self._cuts.get(key)
            if (
                cut is not None
                and request.physical_offset >= cut.after
                and not request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
            ):
                groups.setdefault(key, []).append(request)
        for key, group in groups.items():
            queue = self._queues.find_or_create(*key)
            queue.put(group)
            self._queues.dirty.add(queue)
