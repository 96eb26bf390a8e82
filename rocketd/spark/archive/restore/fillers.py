"""Fillers for the parts of a restored commit log without a record in the archive.

A record states its offset in the log, and messages are found by that offset. So each record returns to its place. The
space between records is covered by filler records that both brokers walk over. They count as rolled back, so queues and
index skip them. Their bodies are zeros, so that a large filler takes no space on the disk.
"""

import zlib
from collections.abc import Iterator
from functools import lru_cache

from rocketd.store.base.layout import BLANK_MAGIC, END_OF_FILE_BLANK, MESSAGE_MAGIC
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_ROLLBACK
from rocketd.store.format.record import (
    CRC_MASK,
    HEAD_STRUCTS,
    HOST_V4,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH_SIZE,
    TOPIC_LENGTH_SIZE,
)

LONGEST_FILLER = 1 << 20
"""The most bytes of a filler: no more than a message may have."""

FILLER_TOPIC = b"ROCKETD_FILLER"

_HEAD = HEAD_STRUCTS[HOST_V4, HOST_V4]
_HOST = bytes(HOST_V4)
_ZEROS = bytes(LONGEST_FILLER + MIN_RECORD_SIZE)


class NoRoomError(ValueError):
    """The space between two offsets of the commit log is too small."""


Piece = tuple[int, bytes]
"""Bytes for an offset of the log; everything around them is zero."""


def fillers(begin: int, end: int, store_ms: int) -> Iterator[Piece]:
    """Yield the head and the tail of each filler from one offset of the log to another.

    `store_ms` is the store time of the next record. Raises NoRoomError if a record does not fit.
    """
    while begin < end:
        size = end - begin
        if size > LONGEST_FILLER:
            # The rest must have space for another filler.
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
    """Return the bytes that mark a file as empty from an offset of the log to its end. Raises NoRoomError without room."""
    if end - begin < END_OF_FILE_BLANK:
        raise NoRoomError(f"{end - begin} bytes at {begin} of the commit log have no room for the end of a file")
    return begin, (end - begin).to_bytes(4, "big") + (BLANK_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")
