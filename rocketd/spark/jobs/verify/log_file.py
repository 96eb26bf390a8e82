"""Checks one commit-log file: its records, and their entries in queues and index.

The quick check handles many records at once and only proves that all is well. If it cannot, the store's examination
(`rocketd.store.offline.examine` and its neighbours) reads the file record by record, and describes the problems. Reads
only; runs in Spark's tasks, and does not import PySpark.
"""

import os
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from rocketd.spark.errors import StoreFilesError
from rocketd.spark.jobs.stopped_store.dispatched import Dispatched, QueueKey, dispatched, dispatched_requests
from rocketd.spark.jobs.stopped_store.files import Entries, IndexSizes, IndexView, MappedQueues, is_zero, map_file
from rocketd.spark.jobs.stopped_store.index_keys import KEYED, Keyed
from rocketd.spark.jobs.stopped_store.log_scan import BlockScanEnd, Longs, Stop, blocks
from rocketd.spark.jobs.verify.extension import wrong_units
from rocketd.spark.jobs.verify.task_values import LogFileSpan, LogReport, QueueEvent, SequenceEvent, StoreFacts
from rocketd.store.base.layout import MAX_EXT_ADDRESS
from rocketd.store.format.message import DispatchRequest

TOLD_OF_A_QUEUE = 1000
"""The number of wrong records of one queue in one log file that are reported singly; more are only counted."""

TIMES_KEPT = 4
"""The number of records at either end of a file whose times are compared with the neighbouring file."""

_MAX_INT = 0x7FFFFFFF


def check_log_file(facts: StoreFacts, number: int) -> LogReport:
    """Check the file of this number. Reads the whole file, and the entries of its records."""
    file = facts.files[number]
    report = LogReport(number, end=file.offset)
    check = _FileCheck(facts, report)
    try:
        whole = _quickly(facts, file, number, check)
    except StoreFilesError:
        # A file refused by the parser is examined closely, too.
        whole = False
    if not whole:
        # From the beginning, because findings must be in the order of the log.
        report = LogReport(number, end=file.offset, closely=True)
        check = _FileCheck(facts, report)
        _closely(facts, number, check)
    check.finish()
    return report


def _quickly(facts: StoreFacts, file: LogFileSpan, number: int, check: "_FileCheck") -> bool:
    """Check the whole records of a file. Return whether there is nothing else to report about the file."""
    data = map_file(file.path)
    walk = BlockScanEnd()
    last_byte = 1
    for block in blocks(data, file.offset, walk):
        check.take(dispatched(data, block, facts.rules, indexed=facts.index_shape is not None))
        last_byte = data[walk.position - 1]
    is_last = number == facts.used - 1
    check.report.end = file.offset + walk.position
    if walk.stop is Stop.LIMIT:
        return True
    if walk.stop is Stop.FILLER:
        right = int.from_bytes(data[walk.position : walk.position + 4], "big", signed=True) == file.size - walk.position
        if is_last and right:
            check.report.end = file.offset + file.size
        return right
    if number >= facts.used:
        return is_zero(data, 0, file.size) or not walk.position
    # An end is undamaged only if nothing follows it; an end that may be torn needs a closer look.
    return is_last and not (facts.abnormal and not last_byte) and is_zero(data, walk.position, file.size)


def _closely(facts: StoreFacts, number: int, check: "_FileCheck") -> None:
    # The store's examination, imported here because hardly any file needs it.
    from rocketd.spark.jobs.verify.closely import log_events

    for requests, findings, damaged, end in log_events(facts, number):
        check.report.findings += findings
        check.report.damaged += damaged
        check.report.end = max(check.report.end, end)
        if requests:
            check.take(dispatched_requests(requests, facts.rules))


@lru_cache(maxsize=8)
def _mapped_index(path: str, shape: IndexSizes, _stamp: tuple[int, ...]) -> IndexView:
    return IndexView(path, shape)


def _index_view(path: str, shape: IndexSizes) -> IndexView:
    """Return an index file, cached for the worker's next task as long as the file is unchanged."""
    found = os.stat(path)
    return _mapped_index(path, shape, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


class _FileCheck:
    """Compares the records of one file, in order, with queues and index."""

    def __init__(self, facts: StoreFacts, report: LogReport) -> None:
        self.report = report
        self._facts = facts
        self._queues = MappedQueues(facts.queue_root)
        self._times: list[Longs] = []
        self._columns: list[Dispatched] = []
        self._indexed_to = report.end
        shape = facts.index_shape
        self._views = [] if shape is None else [_index_view(path, shape) for path in facts.index_paths]

    def take(self, records: Dispatched) -> None:
        """Compare more records."""
        report = self.report
        report.records += len(records)
        for key, rows in records.groups():
            self._compare(key, records, rows)
        if self._facts.index_shape is not None:
            self._compare_index(records)
        self._see_times(records)

    # ---------------------------------------------------------------- queues

    def _compare(self, key: QueueKey, records: Dispatched, rows: Longs) -> None:
        end = self._facts.queue_ends.get(key)
        if end is None:
            self._note(key, SequenceEvent.NO_QUEUE, records, rows)
            return
        indexes = records.queue_offset[rows]
        beyond = indexes >= end
        entries = self._queues.read(*key, np.where(indexes < 0, 0, indexes))
        tags = entries["tag_hash"].astype(np.int64)
        right = (entries["offset"] == records.offset[rows]) & (entries["size"] == records.size[rows]) & (indexes >= 0)
        addressed = tags <= MAX_EXT_ADDRESS if self._facts.extended else np.zeros(len(rows), np.bool_)
        right &= addressed | (tags == records.tags_code[rows])
        right &= ~beyond
        if self._facts.extended and (right & addressed).any():
            at = np.flatnonzero(right & addressed)
            self.report.findings += wrong_units(
                self._facts.root, key, indexes[at], tags[at], records.tags_code[rows[at]], records.store_time[rows[at]]
            )
        kinds = np.where(right, 0, np.where(beyond, 2, 1))
        follows = (np.diff(kinds) == 0) & ((np.diff(indexes) == 1) | (kinds[1:] == 2)) & (kinds[1:] != 1)
        begins = np.flatnonzero(np.concatenate(([True], ~follows)))
        for begin, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(rows)], strict=True):
            kind = (SequenceEvent.RUN, SequenceEvent.DIFFERS, SequenceEvent.BEYOND)[kinds[begin]]
            self._note(key, kind, records, rows[begin:stop])

    def _note(self, key: QueueKey, kind: SequenceEvent, records: Dispatched, rows: Longs) -> None:
        events = self.report.queues.setdefault(key, [])
        last = events[-1] if events else None
        follows = last is not None and (kind is not SequenceEvent.RUN or last.upto == records.queue_offset[rows[0]])
        if last is not None and last.kind is kind and follows and kind is not SequenceEvent.DIFFERS:
            last.count += len(rows)
            return
        if kind is SequenceEvent.DIFFERS and len(events) >= TOLD_OF_A_QUEUE:
            self.report.untold[key] = self.report.untold.get(key, 0) + len(rows)
            return
        events.append(QueueEvent(kind, records.request(int(rows[0])), len(rows)))

    # ---------------------------------------------------------------- index

    def _compare_index(self, records: Dispatched) -> None:
        if len(records):
            self._compare_entries(int(records.offset[-1] + records.size[-1]), records.keyed)

    def _compare_entries(self, end: int, wanted: Keyed) -> None:
        """Compare the index with the wanted entries, for the log from the end of the last comparison to `end`."""
        begin, self._indexed_to = self._indexed_to, end
        near = [view for view in self._views if view.last >= begin and view.first < end]
        parts = [(view, view.between(begin, end)) for view in near]
        found = (
            np.concatenate([view.entries["offset"][part] for view, part in parts]) if parts else wanted["offset"][:0]
        )
        if len(found) != len(wanted) or not np.array_equal(found, wanted["offset"]):
            lacking = ~np.isin(wanted["offset"], found)
            self._lacking(np.unique(wanted["offset"][lacking]))
            wanted = wanted[~lacking]
            if not np.array_equal(found, wanted["offset"]):
                self.report.suspects.update(view.path for view in near)
                return
        at = 0
        for view, part in parts:
            entries = view.entries[part]
            if not _fits(view, part.start, entries, wanted[at : at + len(entries)]):
                self.report.suspects.add(view.path)
            at += len(entries)

    def _lacking(self, offsets: Longs) -> None:
        """Classify records with keys but without any entry."""
        filled = [view for view in self._views if view.last >= self._facts.log_begin]
        for offset in offsets.tolist():
            after = next((view for view in filled if view.last > offset), None)
            if after is not None and after.first < offset:
                self.report.suspects.add(after.path)
            elif after is None and offset >= self._facts.replayed_from:
                self.report.late += 1
            elif after is None and filled:
                self.report.suspects.add(filled[-1].path)
            else:
                self.report.unindexed += 1

    # ---------------------------------------------------------------- times

    def _see_times(self, records: Dispatched) -> None:
        if len(records):
            report = self.report
            report.latest = max(report.latest, int(records.store_time.max()))
            for row in range(min(len(records), TIMES_KEPT - len(report.head))):
                report.head.append(records.request(row))
            report.tail = [
                *report.tail,
                *(records.request(row) for row in range(max(0, len(records) - TIMES_KEPT), len(records))),
            ][-TIMES_KEPT:]
            times = records.store_time
            if self._times:
                times = np.concatenate((self._times[-1], times))
            if (np.diff(times) < 0).any():
                self._columns.append(records)
            self._times = [times[-1:]]

    def finish(self) -> None:
        """Check the rest of the file after the last record, and examine store times that go back."""
        files = self._facts.files
        if self.report.number + 1 < self._facts.used:
            self._compare_entries(files[self.report.number + 1].offset, np.empty(0, KEYED))
        if self._columns:
            from rocketd.spark.jobs.verify.closely import time_findings

            for records in self._columns:
                for window in _windows(records):
                    self.report.findings += time_findings(self._facts, window)


def _windows(records: Dispatched) -> Iterator[list[DispatchRequest]]:
    """Yield the records around each place, except at either end, where the store time goes back."""
    dips = np.flatnonzero(np.diff(records.store_time) < 0)
    begin = end = -1
    for dip in dips.tolist():
        first, last = max(0, dip - 2), min(len(records), dip + 4)
        if first > end:
            if end > begin:
                yield [records.request(row) for row in range(begin, end)]
            begin = first
        end = last
    if end > begin:
        yield [records.request(row) for row in range(begin, end)]


def _fits(view: IndexView, first: int, entries: Entries, wanted: Keyed) -> bool:
    """Tell whether entries and header match the records. The first of the entries has number `first` + 1."""
    if not np.array_equal(entries["hash"], wanted["hash"]):
        return False
    times = wanted["time"]
    seconds = np.clip((times - view.begin_time) // 1000, 0, _MAX_INT) if view.begin_time > 0 else np.zeros_like(times)
    own = entries["seconds"] == seconds
    if first == 0 and len(entries):
        # The time of the first entry of a file counts from the end of the previous file.
        own[0] = times[0] == view.begin_time
    if len(entries) and first + len(entries) == len(view.entries):
        own[-1] &= times[-1] == view.end_time
    return bool(own.all())
