"""The records of a commit-log file as columns of numbers, found and checked many at a time.

Answers to what `rocketd.store.record_scanner` does for one record after the other, and finds a record whole or not by the
same rules: magic number, lengths, own offset, CRC of the body. Reads memory only; imports neither PySpark nor Twisted.
"""

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketd.store.crc import crc32
from rocketd.store.layout import BLANK_MAGIC, MESSAGE_MAGIC
from rocketd.store.message import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
)
from rocketd.store.record import CRC_MASK, HOST_V4, HOST_V6, MIN_RECORD_SIZE

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BLOCK_BYTES = 16 * 1024 * 1024
"""Records of about so many bytes are looked at together: enough for numpy, few enough for the caches and the memory."""

_BEGIN = struct.Struct(">ii")


def _head_type(born: int, store: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">i4"),
            ("crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_time", ">i8"),
            ("born_host", f"V{born}"),
            ("store_time", ">i8"),
            ("store_host", f"V{store}"),
            ("reconsume_times", ">i4"),
            ("prepared_offset", ">i8"),
            ("body_size", ">i4"),
        ]
    )


_HEADS = {(born, store): _head_type(born, store) for born in (HOST_V4, HOST_V6) for store in (HOST_V4, HOST_V6)}
_V4 = _HEADS[HOST_V4, HOST_V4]
_NEEDED = ("crc", "queue_id", "queue_offset", "offset", "sys_flag", "store_time", "body_size")


class Stop(enum.Enum):
    """Why a walk over a file ended where it did."""

    LIMIT = "the end of the bytes, between two records"
    FILLER = "the filler that ends a file"
    BROKEN = "bytes that are not a whole record"


@dataclass(slots=True)
class Block:
    """Whole records that follow each other. Arrays have one item for each; `starts` are positions in the file.

    Times in ms, offsets and sizes in bytes, `queue_offset` in messages.
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
        """Half and rolled back messages, which have no entry in a queue."""
        result: Bools = self.sys_flag & SYS_FLAG_TRANSACTION_PREPARED != 0
        return result

    @property
    def is_rolled_back(self) -> Bools:
        """Rolled back messages, which are not to be found by key."""
        result: Bools = self.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK
        return result


@dataclass(slots=True)
class Walk:
    """What is left to say when all blocks are through: the position behind the last whole record, and why it ends."""

    position: int = 0
    stop: Stop = Stop.LIMIT


def blocks(
    data: memoryview, file_offset: int, walk: Walk, *, check_crc: bool = True, block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Yield the records of a file whose first byte has an offset of the log, from `walk.position` on.

    Ends at the first bytes that are no whole record; `walk` then says where and why.
    """
    array = np.frombuffer(data, np.uint8)
    while True:
        starts, end = _chain(data, walk.position, block_bytes)
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


def _chain(data: memoryview, position: int, block_bytes: int) -> tuple[Longs, int]:
    """Positions of records by their sizes alone, about so many bytes of them, and the position behind them."""
    starts: list[int] = []
    append = starts.append
    unpack = _BEGIN.unpack_from
    limit = len(data)
    last_start = limit - MIN_RECORD_SIZE
    stop = min(last_start, position + block_bytes)
    magic = MESSAGE_MAGIC
    while position <= stop:
        size, found = unpack(data, position)
        if found != magic or size < MIN_RECORD_SIZE or position + size > limit:
            break
        append(position)
        position += size
    return np.array(starts, np.int64), position


def _why(data: memoryview, position: int) -> Stop:
    if position == len(data):
        return Stop.LIMIT
    if position + _BEGIN.size <= len(data) and _BEGIN.unpack_from(data, position)[1] == BLANK_MAGIC:
        return Stop.FILLER
    return Stop.BROKEN


def _checked(
    array: npt.NDArray[np.uint8], data: memoryview, starts: Longs, file_offset: int, check_crc: bool
) -> tuple[Block, int]:
    """The records up to the first that is not whole, and how many these are."""
    head_size, fields = _heads(array, starts)
    size = np.diff(starts, append=0)
    size[-1] = int.from_bytes(array[starts[-1] : starts[-1] + 4].tobytes(), "big", signed=True)
    end = starts + size
    body_at = starts + head_size
    body_size = fields["body_size"]
    topic_at = body_at + body_size + 1
    good = (body_size >= 0) & (topic_at + 2 <= end) & (fields["offset"] == file_offset + starts)
    # A position that is not good is replaced by one that can be read.
    topic_at = np.where(good, topic_at, 1)
    properties_at = topic_at + array[topic_at - 1] + 2
    good &= properties_at <= end
    properties_at = np.where(good, properties_at, 2)
    claimed = array[properties_at - 2].astype(np.int64) << 8 | array[properties_at - 1]
    good &= claimed == end - properties_at
    count = len(starts) if good.all() else int(np.argmin(good))
    if check_crc and count:
        count = _first_wrong_crc(data, body_at[:count], body_size[:count], fields["crc"][:count])
    block = Block(
        starts[:count],
        fields["offset"][:count],
        size[:count],
        fields["queue_id"][:count],
        fields["queue_offset"][:count],
        fields["sys_flag"][:count],
        fields["store_time"][:count],
    )
    return block, count


def _heads(array: npt.NDArray[np.uint8], starts: Longs) -> tuple[Longs, dict[str, Longs]]:
    """Size of each head, and the fields of it that are needed."""
    fields = _gathered(array, starts, _V4)
    flags = fields["sys_flag"]
    v6 = flags & (SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
    sizes = np.full(len(starts), _V4.itemsize, np.int64)
    for (born, store), head in _HEADS.items():
        wanted = (SYS_FLAG_BORN_HOST_V6 if born == HOST_V6 else 0) | (SYS_FLAG_STORE_HOST_V6 if store == HOST_V6 else 0)
        if not wanted:
            continue
        rows = np.flatnonzero(v6 == wanted)
        if len(rows):
            sizes[rows] = head.itemsize
            for name, values in _gathered(array, starts[rows], head).items():
                fields[name][rows] = values
    return sizes, fields


def _gathered(array: npt.NDArray[np.uint8], starts: Longs, head: np.dtype[Any]) -> dict[str, Longs]:
    # The last record of a file may be too short for its claimed kind of hosts: the lengths then show it.
    room = len(array) - head.itemsize
    places = np.minimum(starts, room)[:, None] + np.arange(head.itemsize)
    found = array[places].reshape(-1).view(head)
    return {name: found[name].astype(np.int64) for name in _NEEDED}


def _first_wrong_crc(data: memoryview, begins: Longs, sizes: Longs, wanted: Longs) -> int:
    """Number of the first body whose CRC is not the stored one; how many there are when all are right."""
    found = np.fromiter(
        [crc32(data[begin:end]) for begin, end in zip(begins.tolist(), (begins + sizes).tolist(), strict=True)],
        np.int64,
        len(begins),
    )
    right = found & CRC_MASK == wanted
    return len(right) if right.all() else int(np.argmin(right))
