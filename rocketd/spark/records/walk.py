"""Where the records of a buffer begin, found from size to size.

Each record's place is known only from the one before it, so this is the one loop over single records of the parser.
"""

import struct
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketd.spark.errors import StoreFilesError
from rocketd.store.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC
from rocketd.store.record import MIN_RECORD_SIZE

_HEAD = struct.Struct(">ii")

BLANK = "blank"
"""The file's filler follows: the file is full."""
EMPTY = "empty"
"""Zeros follow: nothing was written there yet, or the buffer ends."""
CUT = "cut"
"""A record follows that reaches behind the buffer's end."""
BAD = "bad"
"""Something follows that is neither a record nor a filler."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Positions of the records that follow each other, where the last one ends, and what comes there: one of the names
    above.
    """

    starts: npt.NDArray[np.int64]
    end: int
    ending: str


def walk_log(buffer: Any, start: int = 0, stop: int | None = None) -> Walk:
    """Go through a file of the commit log, or a part of it from a record's beginning on, by the sizes of its records.

    Only sizes and the second words are read: `Frames` checks the rest.
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
    return Walk(np.frombuffer(found, np.int64) if found else np.zeros(0, np.int64), position, ending)


def frame_starts(buffer: Any) -> npt.NDArray[np.int64]:
    """Positions of the records of a buffer that holds nothing else, such as the body of a pull answer.

    Raises StoreFilesError when something else is in there, or the last one is cut off.
    """
    walk = walk_log(buffer)
    if walk.end != memoryview(buffer).nbytes:
        raise StoreFilesError(
            f"there is no whole record at byte {walk.end} of {memoryview(buffer).nbytes} bytes of records"
        )
    return walk.starts
