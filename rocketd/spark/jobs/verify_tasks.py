"""The tasks that look at one queue and at one index file, when the log has been gone through. Read only; no PySpark."""

from dataclasses import dataclass

import numpy as np

from rocketd.spark.jobs.dispatched import QueueKey
from rocketd.spark.jobs.store_files import IndexView, QueueFiles, is_sound
from rocketd.spark.jobs.verify_facts import QueueEvent, StoreFacts
from rocketd.store.findings import Finding, Problem, Remedy, Severity
from rocketd.store.layout import queue_dir


@dataclass(frozen=True, slots=True)
class QueueTask:
    """One queue to be looked at: what was seen of its records, and whether that explains all of its entries from the
    `first` on whose record is still there.
    """

    key: QueueKey
    file_size: int
    first: int
    events: tuple[QueueEvent, ...]
    closely: bool
    damaged: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class IndexTask:
    """One index file to be looked at, `closely` when it may not agree with its records; `after` is the offset of the log
    of the last entry before its own.
    """

    number: int
    after: int
    is_last: bool
    closely: bool
    damaged: tuple[tuple[int, int], ...]


def check_queue(facts: StoreFacts, log_end: int, task: QueueTask) -> list[Finding]:
    """Read all entries of a queue; where its records do not explain all of them, look closely."""
    topic, queue_id = task.key
    found: list[Finding] = []
    if task.closely:
        from rocketd.spark.jobs.verify_closely import queue_findings
        from rocketd.store.stopped_store import QueueReader

        queue = QueueReader(topic, queue_id, queue_dir(facts.root, topic, queue_id))
        queue.file_size = task.file_size
        found += queue_findings(facts, [queue], {task.key: list(task.events)}, task.damaged, None, log_end)
    return found + _expired_entries(facts, task)


def _expired_entries(facts: StoreFacts, task: QueueTask) -> list[Finding]:
    """Entries of records that are no longer there: that they are entries at all."""
    files = QueueFiles(facts.queue_root)
    if not facts.log_begin:
        return []
    for first, path in files.files(*task.key):
        entries = files.file(path)[: max(0, task.first - first)]
        wrong = np.flatnonzero((entries["size"] <= 0) | (entries["offset"] < 0))
        if len(wrong):
            at = int(wrong[0])
            offset, size = entries["offset"][at], entries["size"][at]
            text = f"{len(wrong)} entries of expired records are none: entry {first + at} says offset {offset}, size {size}"
            position = at * entries.itemsize
            return [Finding(Severity.NOTE, Problem.QUEUE_ENTRY, Remedy.NONE, path, position, text, queue=task.key)]
    return []


def check_index_file(facts: StoreFacts, log_end: int, task: IndexTask) -> list[Finding]:
    """Read all of an index file; where it is not as its entries, or as the records, say, look closely."""
    assert facts.index_shape is not None
    view = IndexView(facts.index_paths[task.number], facts.index_shape)
    # The first entry beyond the log stands for all.
    beyond = bool(len(view.entries)) and task.after < log_end <= int(view.entries["offset"].max())
    sound = is_sound(view)
    if sound and not task.closely and not beyond:
        return []
    from rocketd.spark.jobs.verify_closely import index_findings

    closely = task.closely or beyond or (not sound and task.after < log_end)
    return index_findings(facts, task.number, task.is_last, task.damaged, log_end, closely=closely)
