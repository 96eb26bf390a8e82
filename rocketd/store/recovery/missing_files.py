"""Finds the files of queues and index that are missing at a start.

Only names are compared with the notes. Nothing is read except the last entries of files before a gap, so the time does
not depend on the size of the store. Expired files are not missing. Nor is the lost end of a store after a crash,
because recovery rebuilds it anyway.
"""

import os
from itertools import pairwise

from rocketd.store.base.layout import FILLER_SIZE
from rocketd.store.index.service import IndexService
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.recovery.file_notes import IndexCut, NotedQueueFile, Notes, QueueCut
from rocketd.store.state.checkpoint import StoreCheckpoint


def find_missing_queues(
    notes: Notes | None, queues: ConsumeQueueTable, log_begin: int, limit: int | None
) -> tuple[list[QueueCut], list[str]]:
    """Return the queues to rebuild from their first missing file on, and the paths of missing files.

    `limit` is the offset of the log from which everything is dispatched again anyway, None if unknown.
    """
    cuts = []
    paths = []
    noted = {} if notes is None else notes.queues
    for key in sorted(noted.keys() | queues.queues.keys()):
        queue = queues.find(*key)
        missing = None if queue is None else _gap_in(queue)
        for file in noted.get(key, ()):
            if missing is not None and missing[0] <= file.offset:
                break
            if _is_missing(file, queue, log_begin) and (limit is None or file.first < limit):
                missing = file.offset, max(file.first, 0)
                break
        if missing is not None:
            cuts.append(QueueCut(*key, missing[0], max(missing[1], log_begin)))
            paths.append(queues.directory_of(*key) if queue is None else queue.files.path_of(missing[0]))
    return cuts, paths


def _gap_in(queue: ConsumeQueue) -> tuple[int, int] | None:
    """Return the byte of a queue where a file is missing between others, and the end of the record before it."""
    for before, after in pairwise(queue.files.files):
        end = before.file_from_offset + before.file_size
        if after.file_from_offset != end:
            entry = queue.entry_before(end)
            return end, 0 if entry is None or not 0 < entry[1] < FILLER_SIZE else entry[0] + entry[1]
    return None


def _is_missing(file: NotedQueueFile, queue: ConsumeQueue | None, log_begin: int) -> bool:
    if queue is not None and any(there.file_from_offset == file.offset for there in queue.files.files):
        return False
    return not 0 <= file.last < log_begin


def find_missing_index(
    notes: Notes | None, index: IndexService, log_begin: int, crashed: bool, checkpoint: StoreCheckpoint
) -> tuple[IndexCut | None, list[str]]:
    """Return where the index must be rebuilt (None if nothing is missing), and the paths of missing files.

    The index need not be loaded yet.
    """
    noted = () if notes is None else notes.index_files
    there = set(index.names_on_disk()) if noted else set()
    missing = [file for file in noted if file.name not in there and not 0 <= file.end < log_begin]
    if crashed:
        # It was unknown whether the others were on disk.
        missing = [file for file in missing if 0 < file.end_timestamp <= checkpoint.index_msg_timestamp]
    if not missing:
        return None, []
    first = missing[0]
    cut = IndexCut(first.name, max(first.begin, log_begin), first.name == noted[0].name)
    return cut, [os.path.join(index.directory, file.name) for file in missing]
