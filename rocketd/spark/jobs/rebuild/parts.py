"""One file of the log, read once for everything made from it: entries by queue, and the keys to index.

The entries are those of `rocketd.store.queue.dispatch.Dispatcher` and its scanner. Results are kept in two files until
the rebuild is done, so that an interrupted job resumes. Runs in Spark's tasks; does not import PySpark.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketd.spark.archive.format.durable import replace, sync_dir
from rocketd.spark.jobs.stopped_store.dispatched import (
    Dispatched,
    QueueKey,
    dispatched,
    dispatched_requests,
    light_requests,
    light_rows,
)
from rocketd.spark.jobs.stopped_store.files import is_zero, map_file
from rocketd.spark.jobs.stopped_store.index_keys import Keyed
from rocketd.spark.jobs.stopped_store.log_scan import BlockScanEnd, Longs, Stop, blocks
from rocketd.spark.jobs.verify.task_values import StoreFacts
from rocketd.spark.records.parse import ENTRY

PLACED = np.dtype([("queue_offset", "<i8"), ("entry", ENTRY)])
"""An entry, and its offset in the queue."""

Placed = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """The result of one log file. `queues` has topic, queue id, first row and number of rows for each queue.

    `keys` counts the keys to index. `damage` describes unreadable parts. `latest` is a store time in ms.
    """

    number: int
    path: str
    records: int
    keys: int
    latest: int
    queues: tuple[tuple[str, int, int, int], ...]
    damage: tuple[str, ...]

    @property
    def entries_path(self) -> str:
        """The file of PLACED entries, queue by queue."""
        return self.path + ".entries"

    @property
    def keys_path(self) -> str:
        """The file of KEYED entries of the index, in the order of the log."""
        return self.path + ".keys"


def make_part(facts: StoreFacts, work: str, indexed: bool, number: int) -> Part:
    """Read one file of the log, or return the result kept by an earlier run."""
    file = facts.files[number]
    path = os.path.join(work, f"{file.offset:020d}")
    known = _kept(path)
    if known is not None:
        return known
    queues: dict[QueueKey, list[Placed]] = {}
    keyed: list[Keyed] = []
    damage: list[str] = []
    records = latest = 0
    for columns, light in _records(facts, number, indexed, damage):
        records += len(columns)
        if len(columns):
            latest = max(latest, int(columns.store_time.max()))
        for key, rows in columns.groups():
            queues.setdefault(key, []).append(_placed(columns, rows, columns.queue_offset[rows]))
        for key, offset, row in light:
            queues.setdefault(key, []).append(_placed(columns, np.array([row]), np.array([offset])))
        if indexed:
            keyed.append(columns.keyed)
    part = Part(number, path, records, sum(map(len, keyed)), latest, tuple(_layout(queues)), tuple(damage))
    _write(part.entries_path, [some for key in queues for some in queues[key]])
    _write(part.keys_path, keyed)
    sync_dir(work)
    replace(path + ".json", json.dumps(asdict(part)).encode())
    return part


def _kept(path: str) -> Part | None:
    try:
        with open(path + ".json", encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    found["queues"] = tuple(tuple(queue) for queue in found["queues"])
    found["damage"] = tuple(found["damage"])
    return Part(**found)


def _layout(queues: dict[QueueKey, list[Placed]]) -> Iterator[tuple[str, int, int, int]]:
    at = 0
    for (topic, queue_id), some in queues.items():
        count = sum(map(len, some))
        yield topic, queue_id, at, count
        at += count


def _placed(columns: Dispatched, rows: Longs, offsets: Longs) -> Placed:
    result = np.empty(len(rows), PLACED)
    result["queue_offset"] = offsets
    entries = result["entry"]
    entries["offset"] = columns.offset[rows]
    entries["size"] = columns.size[rows]
    entries["tag_hash"] = columns.tags_code[rows]
    return result


def _write(path: str, arrays: list[npt.NDArray[Any]]) -> None:
    with open(path, "wb") as file:
        for array in arrays:
            file.write(array.tobytes())
        file.flush()
        os.fsync(file.fileno())


def _records(
    facts: StoreFacts, number: int, indexed: bool, damage: list[str]
) -> Iterator[tuple[Dispatched, list[tuple[QueueKey, int, int]]]]:
    """Yield the records of a file with their light queue entries, skipping damaged parts."""
    file = facts.files[number]
    data = map_file(file.path)
    walk = BlockScanEnd()
    for block in blocks(data, file.offset, walk, check_crc=False):
        columns = dispatched(data, block, facts.rules, indexed=indexed)
        yield columns, light_rows(data, block, columns, facts.rules)
    if walk.stop is not Stop.BROKEN or is_zero(data, walk.position, file.size):
        return
    from rocketd.spark.jobs.verify.closely import log_requests

    for requests, findings in log_requests(facts, number, file.offset + walk.position):
        damage += [finding.line(facts.root) for finding in findings]
        if requests:
            yield dispatched_requests(requests, facts.rules), light_requests(requests, facts.rules)
