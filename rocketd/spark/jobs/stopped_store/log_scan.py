"""The records of a commit-log file as columns of numbers, found and checked many at a time.

`rocketd.store.format.record_scanner` does the same record by record. A record is whole by the same rules: magic number,
lengths, the offset in the record, and CRC of the body. Reads memory only; imports neither PySpark nor Twisted.
"""

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketd.spark.records.frames import head_type
from rocketd.spark.records.parse import CUT, walk_log
from rocketd.store.base.layout import BLANK_MAGIC
from rocketd.store.format.crc import crc32
from rocketd.store.format.message import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)
from rocketd.store.format.record import CRC_MASK, HOST_V4, host_sizes

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BLOCK_BYTES = 16 * 1024 * 1024
"""About this many bytes of records are processed together: enough for numpy, and few enough for caches and memory."""

_BEGIN = struct.Struct(">ii")
_V6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_NEEDED = ("body_crc", "queue_id", "queue_offset", "commit_log_offset", "sys_flag", "store_time", "body_length")


class Stop(enum.Enum):
    """The reason for the end of a walk over a file."""

    LIMIT = "the end of the bytes, between two records"
    FILLER = "the filler that ends a file"
    BROKEN = "bytes that are not a whole record"


@dataclass(slots=True)
class Block:
    """Whole consecutive records. Arrays have one item for each; `starts` are positions in the file.

    Times are in ms, offsets and sizes in bytes, `queue_offset` in messages.
    """

    starts: Longs
    offset: Longs
    size: Longs
    queue_id: Longs
    queue_offset: Longs
    sys_flag: Longs
    store_time: Longs

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_prepared(self) -> Bools:
        """A mask of half and rolled back messages, which have no queue entry."""
        result: Bools = self.sys_flag & SYS_FLAG_TRANSACTION_PREPARED != 0
        return result

    @property
    def is_rolled_back(self) -> Bools:
        """A mask of rolled back messages, which are not indexed by key."""
        result: Bools = self.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK
        return result


@dataclass(slots=True)
class BlockScanEnd:
    """The end of a scan, set while blocks are read: the position after the last whole record, and the reason."""

    position: int = 0
    stop: Stop = Stop.LIMIT


def blocks(
    data: memoryview, file_offset: int, walk: BlockScanEnd, *, check_crc: bool = True, block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Yield the records of a file from `walk.position` on; `file_offset` is the log offset of its first byte.

    Ends at the first bytes that are not a whole record; `walk` then has the position and the reason.
    """
    array = np.frombuffer(data, np.uint8)
    while True:
        starts, end = _starts(data, walk.position, block_bytes)
        if not len(starts):
            walk.stop = _why(data, walk.position)
            return
        block, good = _checked(array, data, starts, file_offset, check_crc)
        if good:
            walk.position = int(block.starts[-1] + block.size[-1])
            yield block
        if good < len(starts):
            walk.stop = _why(data, walk.position)
            return
        walk.position = end


def _starts(data: memoryview, position: int, block_bytes: int) -> tuple[Longs, int]:
    """Return positions of records found by their sizes alone, up to about `block_bytes`, and the position after them."""
    while True:
        found = walk_log(data, position, min(position + block_bytes, len(data)))
        if len(found.starts) or found.ending != CUT or position + block_bytes >= len(data):
            return found.starts, found.end
        block_bytes *= 2


def _why(data: memoryview, position: int) -> Stop:
    if position == len(data):
        return Stop.LIMIT
    if position + _BEGIN.size <= len(data) and _BEGIN.unpack_from(data, position)[1] == BLANK_MAGIC:
        return Stop.FILLER
    return Stop.BROKEN


def _checked(
    array: npt.NDArray[np.uint8], data: memoryview, starts: Longs, file_offset: int, check_crc: bool
) -> tuple[Block, int]:
    """Return the records before the first that is not whole, and their number."""
    head_size, size, fields = _heads(array, starts)
    end = starts + size
    body_at = starts + head_size
    body_size = fields["body_length"]
    topic_at = body_at + body_size + 1
    good = (body_size >= 0) & (topic_at + 2 <= end) & (fields["commit_log_offset"] == file_offset + starts)
    # A bad position is replaced by a readable one.
    topic_at = np.where(good, topic_at, 1)
    properties_at = topic_at + array[topic_at - 1] + 2
    good &= properties_at <= end
    properties_at = np.where(good, properties_at, 2)
    claimed = array[properties_at - 2].astype(np.int64) << 8 | array[properties_at - 1]
    good &= claimed == end - properties_at
    count = len(starts) if good.all() else int(np.argmin(good))
    if check_crc and count:
        count = _first_wrong_crc(data, body_at[:count], body_size[:count], fields["body_crc"][:count])
    block = Block(
        starts[:count],
        fields["commit_log_offset"][:count],
        size[:count],
        fields["queue_id"][:count],
        fields["queue_offset"][:count],
        fields["sys_flag"][:count],
        fields["store_time"][:count],
    )
    return block, count


def _heads(array: npt.NDArray[np.uint8], starts: Longs) -> tuple[Longs, Longs, dict[str, Longs]]:
    """Return sizes of heads and of records, and the needed fields."""
    heads = _gathered(array, starts, head_type(HOST_V4, HOST_V4))
    fields = {name: heads[name].astype(np.int64) for name in _NEEDED}
    sizes = np.full(len(starts), heads.dtype.itemsize, np.int64)
    v6 = fields["sys_flag"] & _V6
    for flags in np.unique(v6[v6 != 0]).tolist():
        rows = np.flatnonzero(v6 == flags)
        kind = head_type(*host_sizes(flags))
        # A head too near to the end of the file is read from an earlier position: its lengths will show that it is too
        # short.
        further = _gathered(array, np.minimum(starts[rows], len(array) - kind.itemsize), kind)
        sizes[rows] = kind.itemsize
        for name, values in fields.items():
            values[rows] = further[name]
    return sizes, heads["size"].astype(np.int64), fields


def _gathered(array: npt.NDArray[np.uint8], starts: Longs, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the heads at these positions, from a view with an item at every byte."""
    view = np.ndarray((len(array) - kind.itemsize + 1,), f"V{kind.itemsize}", array, strides=(1,))
    return view[starts].view(kind)


def _first_wrong_crc(data: memoryview, begins: Longs, sizes: Longs, wanted: Longs) -> int:
    """Return the index of the first body with a wrong CRC, or the number of bodies if all are right."""
    ends = begins + sizes
    bodies = map(data.__getitem__, map(slice, begins.tolist(), ends.tolist()))
    found = np.fromiter(map(crc32, bodies), np.int64, len(begins))
    right = found & CRC_MASK == wanted
    return len(right) if right.all() else int(np.argmin(right))
