"""Length-field framing, sans-io: bytes in, frames out.

Counterpart: `NettyDecoder` (Apache). A frame is ``length (4) | serialize type (1) | header length (3) | header |
body``. The length does not count itself. The decoder holds at most one unfinished frame and joins its pieces once.
Compiled if a C compiler is present.
"""

from struct import Struct
from typing import Any, TypeAlias

from rocketd.remoting.errors import FrameError

Frame: TypeAlias = tuple[int, bytes, bytes]
"""Serialize type, header, body (may be empty). A plain tuple, because one is created for every message."""

MAX_FRAME_LENGTH = 16_777_216
"""Greatest accepted frame in bytes, including its length field."""

MAX_HEADER_LENGTH = 0xFFFFFF
"""Longest possible header in bytes."""

_PIECE_OVERHEAD = 48
"""Memory overhead in bytes of a piece of an unfinished frame."""

_OF_HTTP = frozenset(int.from_bytes(method, "big") for method in (b"GET ", b"POST", b"HEAD", b"PUT "))
"""The lengths that the first bytes of HTTP requests stand for."""

_PREFIX = Struct(">iI")


class FrameDecoder:
    """Cuts the byte stream of one connection into frames. Belongs to the reactor thread.

    ``held`` is the memory of the unfinished frame, 0 without one. ``missing`` is the number of bytes until it, or its
    length field, is complete.
    """

    __slots__ = ("_max_header", "_max_length", "_pieces", "held", "missing")

    def __init__(self, max_length: int = MAX_FRAME_LENGTH, max_header: int = MAX_HEADER_LENGTH) -> None:
        self._max_length = max_length
        self._max_header = max_header
        self._pieces: list[bytes] = []
        self.held = 0
        self.missing = 0

    @property
    def buffered(self) -> int:
        """Bytes held of the unfinished frame."""
        return sum(map(len, self._pieces))

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes and return the frames they complete.

        Raises FrameError if the bytes cannot be a frame. The stream is unusable then.
        """
        if self._pieces:
            self._pieces.append(data)
            self.missing -= len(data)
            if self.missing > 0:
                self.held += len(data) + _PIECE_OVERHEAD
                return []
            data = b"".join(self._pieces)
            self.clear()
        frames: list[Frame] = []
        unpack: Any = _PREFIX.unpack_from
        at, end = 0, len(data)
        while end - at >= 8:
            prefix: tuple[int, int] = unpack(data, at)
            length, word = prefix
            after = at + 4 + length
            header = word & 0xFFFFFF
            body = at + 8 + header
            if body > after or word > 0x1FFFFFF or after - at > self._max_length or header > self._max_header:
                raise self._frame_error(length, word)
            if after > end:
                break
            frames.append((word >> 24, data[at + 8 : body], data[body:after]))
            at = after
        if at < end:
            self._keep(data[at:] if at else data)
        return frames

    def clear(self) -> None:
        """Drop the unfinished frame."""
        self._pieces.clear()
        self.held = 0
        self.missing = 0

    def _keep(self, rest: bytes) -> None:
        if len(rest) >= 4:
            length = int.from_bytes(rest[:4], "big", signed=True)
            if length < 4 or length + 4 > self._max_length:
                raise self._frame_error(length, 0)
            self.missing = max(length + 4, 8) - len(rest)
        else:
            self.missing = 4 - len(rest)
        self.held = len(rest) + _PIECE_OVERHEAD
        self._pieces.append(rest)

    def _frame_error(self, length: int, word: int) -> FrameError:
        if length in _OF_HTTP:
            return FrameError(
                "HTTP request: this port has RocketMQ's protocol; metricsPort has metrics and health", "HTTP requests"
            )
        if length + 4 > self._max_length:
            return FrameError(f"frame of {length + 4} bytes is over the limit of {self._max_length}", "frames too long")
        if length < 4:
            return FrameError(f"frame length {length} is too small for a header")
        if word >> 24 > 1:
            return FrameError(f"unknown serialize type {word >> 24}")
        if self._max_header < (word & 0xFFFFFF) <= length - 4:
            return FrameError(
                f"header of {word & 0xFFFFFF} bytes is over the limit of {self._max_header} (serverMaxHeaderBytes)",
                "headers too long",
            )
        return FrameError(f"header of {word & 0xFFFFFF} bytes does not fit into a frame of {length}")
