"""What stands in a restored commit log where the archive has no record.

A record says at which offset of the log it stands, and messages are found by that offset. So each is put back to its own
place, and what lay between them is covered by records that both brokers walk over: they count as rolled back, which no
queue and no index takes in. Their bodies are zeros, so that a large one takes up no room on the disk.
"""

import zlib
from collections.abc import Iterator
from functools import lru_cache

from rocketd.store.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC
from rocketd.store.message import SYS_FLAG_TRANSACTION_ROLLBACK
from rocketd.store.record import (
    CRC_MASK,
    HEAD_STRUCTS,
    HOST_V4,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
)

LONGEST_FILLER = 1 << 20
"""No longer than a message may be."""

FILLER_TOPIC = b"ROCKETD_FILLER"

_HEAD = HEAD_STRUCTS[HOST_V4, HOST_V4]
_HOST = bytes(HOST_V4)
_ZEROS = bytes(LONGEST_FILLER + MIN_RECORD_SIZE)


class NoRoomError(ValueError):
    """Something does not fit between two offsets of the commit log."""


Piece = tuple[int, bytes]
"""Bytes that belong at an offset of the log; all around them is zero."""


def fillers(begin: int, end: int, store_ms: int) -> Iterator[Piece]:
    """Yield what makes the log from one offset to another walkable: head and tail of each filler. `store_ms` is the store
    time of the next record. Raises NoRoomError where there is no room for a record.
    """
    while begin < end:
        size = end - begin
        if size > LONGEST_FILLER:
            # What is left must have room for another one.
            size = min(LONGEST_FILLER, size - MIN_RECORD_SIZE - len(FILLER_TOPIC))
        yield from _filler(begin, size, store_ms)
        begin += size


def _filler(begin: int, size: int, store_ms: int) -> Iterator[Piece]:
    topic = FILLER_TOPIC if size >= MIN_RECORD_SIZE + len(FILLER_TOPIC) else b""
    body = size - MIN_RECORD_SIZE - len(topic)
    if body < 0:
        raise NoRoomError(f"{size} bytes at {begin} of the commit log have no room for a record")
    yield (
        begin,
        _HEAD.pack(
            size,
            MESSAGE_MAGIC,
            _crc_of_zeros(body),
            0,
            0,
            0,
            begin,
            SYS_FLAG_TRANSACTION_ROLLBACK,
            store_ms,
            _HOST,
            store_ms,
            _HOST,
            0,
            0,
            body,
        ),
    )
    tail = len(topic).to_bytes(TOPIC_LENGTH_SIZE, "big") + topic + bytes(PROPERTIES_LENGTH_SIZE)
    yield begin + size - len(tail), tail


@lru_cache(maxsize=4096)
def _crc_of_zeros(size: int) -> int:
    return zlib.crc32(memoryview(_ZEROS)[:size]) & CRC_MASK


def end_of_file(begin: int, end: int) -> Piece:
    """What tells that a file has nothing from an offset of the log on to its end. Raises NoRoomError without room."""
    if end - begin < END_OF_FILE_BLANK:
        raise NoRoomError(f"{end - begin} bytes at {begin} of the commit log have no room for the end of a file")
    return begin, (end - begin).to_bytes(4, "big") + (BLANK_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")
