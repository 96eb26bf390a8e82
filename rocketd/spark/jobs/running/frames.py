"""Messages as DataFrames for jobs: from a store, a cluster or an archive."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.format.manifest import ArchiveFile
from rocketd.spark.archive.reader import check_is_messages, read_messages
from rocketd.spark.columns import ddl
from rocketd.spark.errors import ArchiveError
from rocketd.spark.jobs.running.map_batches import map_batches
from rocketd.spark.options import READ_OPTIONS, ReadOptions
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.ranges import Queue, offsets_to_json
from rocketd.spark.source import open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REPLACED = {
    one.name.lower()
    for one in READ_OPTIONS
    if one.name.startswith(("starting", "ending", "subscribe"))
    or one.name in ("assign", "timestampStrategy", "maxRows")
}


def message_frame(spark: "SparkSession", options: Mapping[str, str], columns: Sequence[str]) -> "DataFrame":
    """Return the messages of these read options, with these columns."""
    return spark.read.format("rocketd").options(**options).schema(ddl(columns)).load()


def source_queues(options: Mapping[str, str]) -> list[Queue]:
    """Return the present queues of these read options. Raises the errors of planning a read."""
    source = open_source(ReadOptions.parse(options))
    try:
        return chosen_queues(source.catalog, source.options)
    finally:
        source.close()


def frozen_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return read options for exactly the messages present now, however often they are read; None without messages.

    Raises the errors of planning a read.
    """
    source = open_source(ReadOptions.parse(options))
    try:
        ranges = [part for part in source.plan() if part.count]
    finally:
        source.close()
    if not ranges:
        return None
    queues: dict[str, dict[str, list[int]]] = {}
    for part in ranges:
        queues.setdefault(part.queue.topic, {}).setdefault(part.queue.broker, []).append(part.queue.queue_id)
    kept = {name: value for name, value in options.items() if name.lower() not in _REPLACED}
    return {
        **kept,
        "assign": json.dumps(queues),
        "startingOffsets": json.dumps(offsets_to_json({part.queue: part.start for part in ranges})),
        "endingOffsets": json.dumps(offsets_to_json({part.queue: part.end for part in ranges})),
    }


def archive_frame(spark: "SparkSession", root: str, topics: Sequence[str], columns: Sequence[str]) -> "DataFrame":
    """Return the messages of an archive, one task for each file; without `topics`, of all topics. Raises ArchiveError."""
    root = os.path.abspath(root)
    archive = Archive.open(root)
    check_is_messages(archive)
    files = [file for file in archive.files if not topics or (file.queue is not None and file.queue.topic in topics)]
    missing = sorted(set(topics) - {file.queue.topic for file in files if file.queue is not None})
    if missing:
        raise ArchiveError(f"the archive {root} has no messages of {', '.join(missing)}")
    numbers = spark.range(0, len(files), 1, max(1, len(files)))
    return map_batches(numbers, _Reader(root, files, tuple(columns)), ddl(columns))


class _Reader:
    """Turns indices of files into the messages of the files, in a task."""

    def __init__(self, root: str, files: Sequence[ArchiveFile], columns: tuple[str, ...]) -> None:
        self._root = root
        self._files = files
        self._columns = columns

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read_messages(self._root, self._files[number], self._columns)
