"""Makes queues and index again from the log at the start, where files are missing or do not agree with it.

Apache has no counterpart. What is to be made again is noted on the disk before anything is taken away, and no longer when
all is made: a process that ends in between leaves it to the next start, which does all of it anew. Other queues are left
alone, so that nothing of a deleted topic comes back.
"""

from collections.abc import Sequence

from twisted.logger import Logger

from rocketd.store.commit_log import CommitLog
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.deletions import Deletions
from rocketd.store.errors import StoreDamagedError
from rocketd.store.file_notes import IndexCut, Notes, QueueCut, RebuildPlan
from rocketd.store.index_service import IndexService
from rocketd.store.message import SYS_FLAG_TRANSACTION_PREPARED, DispatchRequest
from rocketd.store.record_scanner import RecordScanner, ScanEnd

_NAMED = 10
"""How many of the things that are made again the log names."""


def merged(plans: Sequence[RebuildPlan]) -> RebuildPlan:
    """One plan for all that several say is to be made again."""
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
    """One rebuilding of what a plan names; belongs to the thread that starts the store."""

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
        """`begin` is the offset of the log from which it has to be read for a plan that is not empty."""
        self._plan = plan
        self._begin = begin
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._scanner = scanner
        self._deletions = deletions
        self._cuts = {(cut.topic, cut.queue_id): cut for cut in plan.queues}

    def cut_queues(self, causes: Sequence[str]) -> None:
        """Take away what is to be made again of queues; `causes` says in words what is wrong. Raises OSError."""
        named = ", ".join(causes[:_NAMED]) + (f" and {len(causes) - _NAMED} more" if len(causes) > _NAMED else "")
        self._log.warn(
            "{causes}: made again from what the log has from {begin} on",
            causes=named or "not finished before",
            begin=self._begin,
        )
        for cut in self._plan.queues:
            queue = self._queues.find(cut.topic, cut.queue_id)
            if queue is not None:
                queue.cut(cut.offset)

    def carry_out(self, until: int) -> None:
        """Make it again from the records before an offset of the log, where dispatch goes on. Raises OSError,
        StoreDamagedError.
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
        """Have no offset given again of a queue all of whose messages have expired: where it was to end, or if that is not
        noted, behind its last file. To be called when all is dispatched. Raises OSError.
        """
        for key in self._cuts:
            files = notes.queues.get(key, ())
            # What begins behind the end of the log has been lost with that, and was never there for anybody.
            if files and 0 <= files[-1].first < self._commit_log.min_offset:
                queue = self._queues.find_or_create(*key)
                if not queue.files.files:
                    queue.begin_at(notes.ends.get(key, files[-1].offset + queue.files.file_size))
                    self._queues.dirty.add(queue)

    def _index_from(self) -> int | None:
        """Offset of the log from which the index is made again, None when it is not."""
        cut = self._plan.index_cut
        if cut is None or self._index is None:
            return None
        if self._index.file_names:
            # What is left may be of messages that have expired.
            return max(self._index.indexed_to, self._commit_log.min_offset)
        # Nothing is left: of what was indexed before the first file that was missing, too.
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
