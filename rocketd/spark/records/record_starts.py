"""Find where the records of a buffer begin, by following their sizes.

The place of a record is known only from the one before it. So this is the parser's only loop over single records.
"""

import struct
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from rocketd.spark.errors import StoreFilesError
from rocketd.store.base.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC
from rocketd.store.format.record import MIN_RECORD_SIZE

_HEAD = struct.Struct(">ii")

BLANK = "blank"
"""The file's filler follows: the file is full."""
EMPTY = "empty"
"""Zeros follow: nothing was written after this point, or the buffer ends."""
CUT = "cut"
"""The next record extends beyond the end of the buffer."""
BAD = "bad"
"""The next bytes are neither a record nor a filler."""


@dataclass(frozen=True, slots=True)
class RecordWalk:
    """Positions of consecutive records, the end of the last one, and a name (above) for the bytes after it."""

    starts: npt.NDArray[np.int64]
    end: int
    ending: str


def walk_log(buffer: Buffer, start: int = 0, stop: int | None = None) -> RecordWalk:
    """Walk through a file of the commit log by record sizes, or through a part that begins at a record.

    Only the sizes and the second words are read: `Frames` checks the rest.
    """
    view = memoryview(buffer).cast("B")
    end = len(view) if stop is None else min(stop, len(view))
    found = array("q")
    add = found.append
    unpack = _HEAD.unpack_from
    position = start
    last = end - END_OF_FILE_BLANK
    while position <= last:
        size, magic = unpack(view, position)
        if magic != MESSAGE_MAGIC or size < MIN_RECORD_SIZE:
            break
        add(position)
        position += size
    ending = EMPTY
    if position > end:
        position = found.pop()
        ending = CUT
    elif position <= last:
        size, magic = unpack(view, position)
        if magic == BLANK_MAGIC:
            ending = BLANK
        elif size or magic:
            ending = BAD
    elif any(view[position:end]):
        ending = CUT
    return RecordWalk(np.frombuffer(found, np.int64) if found else np.zeros(0, np.int64), position, ending)


def frame_starts(buffer: Buffer) -> npt.NDArray[np.int64]:
    """Return the positions of the records in a buffer of records only, such as the body of a pull answer.

    Raises StoreFilesError if the buffer holds anything else, or if the last record is cut off.
    """
    walk = walk_log(buffer)
    if walk.end != memoryview(buffer).nbytes:
        raise StoreFilesError(f"no whole record at byte {walk.end} of {memoryview(buffer).nbytes} bytes of records")
    return walk.starts
