"""Tasks that check one queue or one index file, after the log was read. Read only; do not import PySpark."""

from dataclasses import dataclass

import numpy as np

from rocketd.spark.jobs.stopped_store.dispatched import QueueKey
from rocketd.spark.jobs.stopped_store.files import IndexView, MappedQueues, is_sound
from rocketd.spark.jobs.verify.task_values import QueueEvent, StoreFacts
from rocketd.store.base.findings import Disorder, Finding, Remedy, Severity
from rocketd.store.base.layout import queue_dir


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """One queue to check: the events of its records, and whether they leave some entries unexplained (`closely`).

    `first` is the first entry whose record still exists.
    """

    key: QueueKey
    file_size: int
    first: int
    events: tuple[QueueEvent, ...]
    closely: bool
    damaged: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class IndexTask:
    """One index file to check. `closely` means it may differ from its records.

    `after` is the log offset of the last entry before those of the file.
    """

    number: int
    after: int
    is_last: bool
    closely: bool
    damaged: tuple[tuple[int, int], ...]


def check_queue(facts: StoreFacts, log_end: int, task: VerifyTask) -> list[Finding]:
    """Read all entries of a queue. If its records do not explain all of them, examine it closely."""
    topic, queue_id = task.key
    found: list[Finding] = []
    if task.closely:
        from rocketd.spark.jobs.verify.closely import queue_findings
        from rocketd.store.offline.stopped_store import QueueReader

        queue = QueueReader(topic, queue_id, queue_dir(facts.root, topic, queue_id))
        queue.file_size = task.file_size
        found += queue_findings(facts, [queue], {task.key: list(task.events)}, task.damaged, None, log_end)
    return found + _expired_entries(facts, task)


def _expired_entries(facts: StoreFacts, task: VerifyTask) -> list[Finding]:
    """Check the entries of expired records: they must at least be valid entries."""
    files = MappedQueues(facts.queue_root)
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
            return [Finding(Severity.NOTE, Disorder.QUEUE_ENTRY, Remedy.NONE, path, position, text, queue=task.key)]
    return []


def check_index_file(facts: StoreFacts, log_end: int, task: IndexTask) -> list[Finding]:
    """Read a whole index file. If it contradicts its entries or the records, examine it closely."""
    assert facts.index_shape is not None
    view = IndexView(facts.index_paths[task.number], facts.index_shape)
    # The first entry beyond the log stands for all of them.
    beyond = bool(len(view.entries)) and task.after < log_end <= int(view.entries["offset"].max())
    sound = is_sound(view)
    if sound and not task.closely and not beyond:
        return []
    from rocketd.spark.jobs.verify.closely import index_findings

    closely = task.closely or beyond or (not sound and task.after < log_end)
    return index_findings(facts, task.number, task.is_last, task.damaged, log_end, closely=closely)
