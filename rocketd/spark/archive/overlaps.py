"""Finds messages that occur twice in the files of one write.

Files of ordered rows do not overlap. Files of rows shuffled by Spark do, and only these are read.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow.parquet as pq

from rocketd.spark.archive.archive import UncommittedFile
from rocketd.spark.errors import ArchiveError
from rocketd.spark.ranges import Queue

_SHOWN = 5


Offsets = np.ndarray[tuple[int], np.dtype[np.int64]]


def check_none_twice(root: str, staged: Iterable[UncommittedFile]) -> None:
    """Raise ArchiveError if two of the staged files have the same offset of a queue."""
    for queue, files in _overlapping(staged):
        check_distinct(queue, np.sort(np.concatenate([_offsets(root, one) for one in files])))


def check_distinct(queue: Queue, offsets: Offsets) -> None:
    """Raise ArchiveError if one of a queue's sorted offsets occurs twice."""
    twice = np.unique(offsets[1:][np.diff(offsets) == 0])
    if len(twice):
        shown = ", ".join(map(str, twice[:_SHOWN].tolist())) + (", ..." if len(twice) > _SHOWN else "")
        raise ArchiveError(
            f"the rows to be archived have {len(twice)} messages of {queue} more than once (offsets {shown}): an archive "
            "has each once; write dropDuplicates(['topic', 'broker', 'queue_id', 'queue_offset'])"
        )


def _overlapping(staged: Iterable[UncommittedFile]) -> Iterator[tuple[Queue, list[UncommittedFile]]]:
    """Yield for each queue the groups of files whose ranges overlap."""
    queues: defaultdict[Queue, list[UncommittedFile]] = defaultdict(list)
    for one in staged:
        if one.file.queue is not None:
            queues[one.file.queue].append(one)
    for queue, files in sorted(queues.items()):
        group: list[UncommittedFile] = []
        end = -1
        for one in sorted(files, key=lambda one: one.file.first):
            if one.file.first > end:
                if len(group) > 1:
                    yield queue, group
                group = []
            group.append(one)
            end = max(end, one.file.last)
        if len(group) > 1:
            yield queue, group


def _offsets(root: str, one: UncommittedFile) -> Offsets:
    column = pq.read_table(os.path.join(root, one.path), columns=["queue_offset"], partitioning=None)["queue_offset"]
    return np.asarray(column, np.int64)
