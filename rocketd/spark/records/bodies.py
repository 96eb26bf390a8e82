"""Bodies of messages: taken as stored, decompressed if the producer compressed them, and checked.

Arrow itself decompresses LZ4 and Zstandard, so no other library is needed.
"""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketd.common.sysflag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from rocketd.protocol.compression import algorithm_of
from rocketd.spark.errors import SparkError, StoreFilesError
from rocketd.spark.records.arrays import pieces
from rocketd.spark.records.frames import Frames
from rocketd.store.format.crc import crc32
from rocketd.store.format.record import CRC_MASK

UNPACKED_LIMIT = 256 * 1024 * 1024
"""The most bytes of decompressed bodies in one batch."""


class TooMuchError(SparkError):
    """The decompressed bodies are too large for one batch: half of the records may fit."""


def bodies(frames: Frames, decompress: bool) -> pa.Array:
    """Return the bodies as an array.

    Raises StoreFilesError if a body cannot be decompressed, and TooMuchError if the bodies are too large for one batch.
    """
    taken = pieces(frames.buffer, *frames.bodies)
    if not decompress:
        return taken
    rows = np.flatnonzero(frames.sys_flags & COMPRESSED)
    if not len(rows):
        return taken
    unpacked = pa.array(_unpacked(frames, rows), pa.binary())
    if len(rows) == frames.count:
        return unpacked
    order = np.arange(frames.count)
    order[rows] = frames.count + np.arange(len(rows))
    return pa.concat_arrays([taken, unpacked]).take(pa.array(order))


def check_bodies(frames: Frames) -> None:
    """Raise StoreFilesError if the CRC of a body differs from the stored one."""
    view = memoryview(frames.buffer)
    begins, ends = frames.bodies
    found = np.fromiter(
        map(crc32, map(view.__getitem__, map(slice, begins.tolist(), ends.tolist()))), np.int64, frames.count
    )
    wrong = np.flatnonzero((found & CRC_MASK) != (frames.field("body_crc", np.int64) & CRC_MASK))
    if len(wrong):
        row = int(wrong[0])
        raise StoreFilesError(
            f"{frames.name(row)} at {frames.place(row)} is damaged: its body has another CRC than it was stored with"
        )


def _unpacked(frames: Frames, rows: npt.NDArray[Any]) -> list[bytes]:
    view = memoryview(frames.buffer)
    begins, ends = frames.bodies
    left = min(UNPACKED_LIMIT, 2**31 - 1 - frames.buffer.size)
    unpacked = []
    flags = frames.sys_flags[rows]
    for row, flag in zip(rows.tolist(), flags.tolist(), strict=True):
        kind = algorithm_of(flag)
        unpack = _UNPACKERS.get(kind)
        if unpack is None:
            raise StoreFilesError(
                f"{frames.name(row)} is compressed in a way that is not known here (system flag {flag:#x}); "
                "read it with decompress=false"
            )
        try:
            body = unpack(view[begins[row] : ends[row]], left + 1)
        except (zlib.error, OSError, ValueError) as error:
            raise StoreFilesError(
                f"the body of {frames.name(row)} at {frames.place(row)} cannot be unpacked: {error}; "
                "read it with decompress=false"
            ) from error
        left -= len(body)
        if left < 0:
            raise TooMuchError(
                f"the unpacked bodies up to {frames.name(row)} have more than {UNPACKED_LIMIT} bytes; "
                "read it with decompress=false"
            )
        unpacked.append(body)
    return unpacked


def _zlib(body: memoryview, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(body, limit)
    if not unpacker.eof and len(unpacked) < limit:
        raise zlib.error("incomplete or truncated stream")
    return unpacked


def _by_arrow(codec: str) -> Callable[[memoryview, int], bytes]:
    def unpack(body: memoryview, limit: int) -> bytes:
        if not body:
            raise ValueError("the body is empty")
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(body)), codec) as stream:
            return bytes(stream.read(limit))

    return unpack


_UNPACKERS: dict[int, Callable[[memoryview, int], bytes]] = {
    COMPRESSION_ZLIB: _zlib,
    COMPRESSION_LZ4: _by_arrow("lz4"),
    COMPRESSION_ZSTD: _by_arrow("zstd"),
}
