"""Frames of replication: what a slave reports to its master, and what the master sends; sans-io.

Answers to the buffers of Apache's `HAConnection` and `HAClient`. A slave reports 8 bytes, the offset behind its log; of
several reports that came together only the last counts. A master sends 12 bytes, offset and size, and so many bytes of
its log; without any it is a heartbeat, whose offset says where the master would go on. A body may begin and end within
a record, but holds bytes of one file only. Bytes may come in any pieces.
"""

import struct
from typing import NamedTuple

from rocketd.store.errors import StoreError

MAX_BODY = 64 << 20
"""Most bytes of a body that are taken; Apache's slave takes 4 MiB less its header."""

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")


class TransferError(StoreError):
    """What the peer sent is no frame of replication."""


class Transfer(NamedTuple):
    """One frame of a master: bytes of the log from `offset` on. No bytes: a heartbeat."""

    offset: int
    body: bytes


def encode_report(offset: int) -> bytes:
    """Write a slave's report."""
    return _REPORT.pack(offset)


def encode_header(offset: int, size: int) -> bytes:
    """Write what comes before so many bytes of the log; size 0 is a heartbeat."""
    return _HEADER.pack(offset, size)


class ReportDecoder:
    """Takes what a slave sends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last report that is complete now; None when the bytes complete none."""
        data = self._rest + data
        whole = len(data) // _REPORT.size * _REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        offset: int = _REPORT.unpack_from(data, whole - _REPORT.size)[0]
        return offset


class TransferDecoder:
    """Takes what a master sends."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Transfer]:
        """The frames that are complete now, in order. Raises TransferError at a header that cannot be one."""
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        while len(buffer) - position >= _HEADER.size:
            offset, size = _HEADER.unpack_from(buffer, position)
            if offset < 0 or not 0 <= size <= MAX_BODY:
                raise TransferError(
                    f"offset {offset} and size {size} begin no frame of replication: sizes are from 0 to {MAX_BODY}"
                )
            begin = position + _HEADER.size
            if len(buffer) - begin < size:
                break
            position = begin + size
            frames.append(Transfer(offset, bytes(buffer[begin:position])))
        del buffer[:position]
        return frames
