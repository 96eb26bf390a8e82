"""Length-field framing, sans-io: bytes in, frames out.

Answers to Apache's NettyDecoder. A frame is ``length (4) | serialize type (1) | header length (3) | header | body``; the
length does not count itself. The decoder never holds more than one unfinished frame, and that frame is joined once,
however many pieces it comes in. Compiled where a C compiler is.
"""

from struct import Struct
from typing import Any, TypeAlias

from rocketd.remoting.errors import FrameError

Frame: TypeAlias = tuple[int, bytes, bytes]
"""Serialize type, header, body (empty when there is none). A plain tuple: one is made for every message."""

MAX_FRAME_LENGTH = 16_777_216
"""Bytes of the largest frame accepted, its length field included."""

MAX_HEADER_LENGTH = 0xFFFFFF
"""Bytes of the longest header that a frame can have."""

_PIECE_OVERHEAD = 48
"""Bytes of memory that a piece of an unfinished frame takes besides its own."""

_PREFIX = Struct(">iI")


class FrameDecoder:
    """Cuts the byte stream of one connection into frames. Belongs to the reactor thread.

    ``held`` is the memory that the unfinished frame takes, 0 if there is none; ``missing`` are the bytes until it, or its
    length, is complete.
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
        """Bytes of the unfinished frame that are held."""
        return sum(map(len, self._pieces))

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes and return the frames they complete.

        Raises FrameError when the bytes cannot be a frame; the stream is then of no further use.
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
                raise self._bad(length, word)
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
                raise self._bad(length, 0)
            self.missing = max(length + 4, 8) - len(rest)
        else:
            self.missing = 4 - len(rest)
        self.held = len(rest) + _PIECE_OVERHEAD
        self._pieces.append(rest)

    def _bad(self, length: int, word: int) -> FrameError:
        if length + 4 > self._max_length:
            return FrameError(f"frame of {length + 4} bytes is over the limit of {self._max_length}")
        if length < 4:
            return FrameError(f"frame length {length} is too small to hold a header")
        if word >> 24 > 1:
            return FrameError(f"unknown serialize type {word >> 24}")
        if self._max_header < (word & 0xFFFFFF) <= length - 4:
            return FrameError(
                f"header of {word & 0xFFFFFF} bytes is over the limit of {self._max_header} (serverMaxHeaderBytes)"
            )
        return FrameError(f"header of {word & 0xFFFFFF} bytes does not fit into a frame of {length}")
