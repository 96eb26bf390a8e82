"""Frames of replication: reports of a slave, and data of its master. Sans-io.

Counterpart: the buffers of `HAConnection` and `HAClient` (Apache).

- A slave reports 8 bytes: the offset after its log. If several reports arrive together, only the last counts.
- A master sends 12 bytes, offset and size, and then `size` bytes of its log. Size 0 is a heartbeat whose offset is the
  master's next one.

A body may begin and end within a record, but holds bytes of one file only. Frames may be split arbitrarily.
"""

import struct
from typing import NamedTuple

from rocketd.store.base.errors import StoreError

MAX_BODY = 64 << 20
"""Greatest accepted body in bytes. Apache's slave accepts 4 MiB less its header."""

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")
REPORT_SIZE = _REPORT.size
"""Bytes of a report."""


class TransferError(StoreError):
    """Bytes from the peer are not a frame of replication."""


class Transfer(NamedTuple):
    """One frame of a master: bytes of the log from `offset` on. Without bytes it is a heartbeat."""

    offset: int
    body: bytes


def encode_report(offset: int) -> bytes:
    """Encode a slave's report."""
    return _REPORT.pack(offset)


def encode_header(offset: int, size: int) -> bytes:
    """Encode the header of `size` bytes of the log. Size 0 is a heartbeat."""
    return _HEADER.pack(offset, size)


class ReportDecoder:
    """Decoder of a slave's reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """Return the last complete report, None if the bytes complete none."""
        data = self._rest + data
        whole = len(data) // _REPORT.size * _REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        offset: int = _REPORT.unpack_from(data, whole - _REPORT.size)[0]
        return offset


class TransferDecoder:
    """Decoder of a master's frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Transfer]:
        """Return the frames complete now, in order. Raises TransferError if a header is not valid."""
        buffer = self._buffer
        if buffer:
            buffer += data
        whole: bytes | bytearray = buffer or data
        frames = []
        position = 0
        while len(whole) - position >= _HEADER.size:
            offset, size = _HEADER.unpack_from(whole, position)
            if offset < 0 or not 0 <= size <= MAX_BODY:
                raise TransferError(
                    f"offset {offset} and size {size} are not a replication header: sizes are from 0 to {MAX_BODY}"
                )
            begin = position + _HEADER.size
            if len(whole) - begin < size:
                break
            position = begin + size
            frames.append(Transfer(offset, bytes(whole[begin:position])))
        if whole is buffer:
            del buffer[:position]
        else:
            buffer += data[position:]
        return frames
