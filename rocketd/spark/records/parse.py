"""Commit-log records into Arrow batches, many records at a time.

All reads of the pipeline go through this module, from store files and from broker answers alike. No Python code runs
for a single message, except to decompress its body or to check its CRC. Only the requested columns are built.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

from rocketd.spark.columns import arrow_schema
from rocketd.spark.records.arrays import as_text, pieces, repeated
from rocketd.spark.records.bodies import TooMuchError, bodies, check_bodies
from rocketd.spark.records.frames import Frames
from rocketd.spark.records.hosts import host_texts, message_ids
from rocketd.spark.records.properties import Properties, raw_properties
from rocketd.spark.records.record_starts import BAD, BLANK, CUT, EMPTY, RecordWalk, frame_starts, walk_log

__all__ = [
    "BAD",
    "BLANK",
    "CUT",
    "EMPTY",
    "ENTRY",
    "HEADER_COLUMNS",
    "Frames",
    "RecordWalk",
    "batches_of",
    "frame_starts",
    "parse_batches",
    "parse_frames",
    "topics_of",
    "walk_log",
]

ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag_hash", ">i8")])
"""An entry of a consume queue."""

_TIME = pa.timestamp("us", "UTC")
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
"""The years 1 to 9999 in milliseconds: the range that both Python and Spark can show."""

_INTS = {
    "queue_id": "queue_id",
    "store_size": "size",
    "body_crc": "body_crc",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "reconsume_times": "reconsume_times",
}
_LONGS = ("queue_offset", "commit_log_offset", "prepared_transaction_offset")
_TIMES = ("born_time", "store_time")
_HOSTS = ("born_host", "store_host")
_PROPERTIES: dict[str, Callable[[Properties], pa.Array]] = {
    "uniq_key": lambda properties: properties.values("UNIQ_KEY"),
    "tags": lambda properties: properties.tags,
    "keys": lambda properties: properties.values("KEYS"),
    "tag_hash": Properties.tag_hashes,
    "properties": Properties.maps,
}
HEADER_COLUMNS = frozenset({"broker", "msg_id", *_INTS, *_LONGS, *_TIMES, *_HOSTS})
"""Columns that need only the fixed fields."""


def parse_frames(
    buffer: Buffer,
    starts: npt.ArrayLike,
    columns: Sequence[str],
    *,
    broker: str,
    decompress: bool = True,
    verify_crc: bool = False,
    where: str = "the buffer",
) -> pa.RecordBatch:
    """Return the records at the ascending positions `starts` of a buffer, as one batch of `arrow_schema(columns)`.

    Times outside the years 1 to 9999 are null. `where` names the buffer in errors. Raises:

    - StoreFilesError if one of the positions does not begin a whole record,
    - StoreFilesError if a body cannot be decompressed, or its CRC is wrong (with `verify_crc`),
    - TooMuchError if the decompressed bodies are too large for one batch.
    """
    return columns_of(Frames(buffer, starts, where), columns, broker, decompress, verify_crc)


def parse_batches(
    buffer: Buffer,
    starts: npt.ArrayLike,
    columns: Sequence[str],
    *,
    broker: str,
    decompress: bool = True,
    verify_crc: bool = False,
    where: str = "the buffer",
) -> Iterator[pa.RecordBatch]:
    """Like `parse_frames`, in as many batches as the decompressed bodies need."""
    given = np.asarray(starts, np.int64)
    return batches_of(
        given, lambda some: columns_of(Frames(buffer, some, where), columns, broker, decompress, verify_crc)
    )


def batches_of(rows: npt.NDArray[Any], parse: Callable[[npt.NDArray[Any]], pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batch that `parse` makes of all rows. If it is too large, parse each half of the rows instead."""
    try:
        yield parse(rows)
    except TooMuchError:
        if len(rows) < 2:
            raise
        half = len(rows) // 2
        yield from batches_of(rows[:half], parse)
        yield from batches_of(rows[half:], parse)


def columns_of(
    frames: Frames,
    columns: Sequence[str],
    broker: str,
    decompress: bool = True,
    verify_crc: bool = False,
    topic: str | None = None,
) -> pa.RecordBatch:
    """Return the columns of records. Give `topic` only if all records are known to have it."""
    schema = arrow_schema(columns)
    if not frames.count:
        return pa.RecordBatch.from_pylist([], schema)
    if verify_crc:
        check_bodies(frames)
    properties: Properties | None = None
    arrays = []
    for name in columns:
        if name in _PROPERTIES:
            properties = properties or Properties(frames)
            array = _PROPERTIES[name](properties)
        elif name == "topic":
            array = topics_of(frames) if topic is None else repeated(topic, frames.count)
        elif name == "body":
            array = bodies(frames, decompress)
        else:
            array = _header(frames, name, broker)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _header(frames: Frames, name: str, broker: str) -> pa.Array:
    if name in _INTS:
        return pa.array(frames.field(_INTS[name], np.int32))
    if name in _LONGS:
        return pa.array(frames.field(name, np.int64))
    if name in _TIMES:
        return _times(frames.field(name, np.int64))
    if name in _HOSTS:
        return host_texts(frames, name)
    if name == "msg_id":
        return message_ids(frames)
    if name == "broker":
        return repeated(broker, frames.count)
    if name == "raw":
        return pieces(frames.buffer, frames.starts, frames.ends)
    if name == "properties_raw":
        return raw_properties(frames)
    raise AssertionError(name)


def _times(ms: npt.NDArray[np.int64]) -> pa.Array:
    if ms.min() >= _FIRST_MS and ms.max() <= _LAST_MS:
        return pa.array(ms * 1000).view(_TIME)
    wrong = (ms < _FIRST_MS) | (ms > _LAST_MS)
    return pa.array(np.where(wrong, 0, ms) * 1000, mask=wrong).view(_TIME)


def topics_of(frames: Frames) -> pa.Array:
    """Return the topic of each record."""
    if frames.topic is not None:
        return repeated(frames.topic.decode("utf-8", "replace"), frames.count)
    return as_text(pieces(frames.buffer, *frames.topics))
