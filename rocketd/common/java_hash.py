"""Java's `String.hashCode`, exact for every string, and fast for the similar keys of the message index.

Counterpart: `java.lang.String.hashCode`, used by Apache for tags codes and index keys. The result is the same for every
Python string: characters outside the Basic Multilingual Plane count as two UTF-16 units, lone surrogates as one.
Compiled if a C compiler is present.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

_COMPILED: Final = not __file__.endswith(".py")
_MASK: Final = 0xFFFFFFFF
_BLOCK: Final = 256
_UTF16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"

_CACHED_STRINGS: Final = 1024
"""More tags than a broker usually has, and few enough that even the longest ones do not fill the memory."""

_LONGEST_REMEMBERED: Final = 128
_MAX_HEADS: Final = 8192
_MAX_PIECES: Final = 1 << 17
"""All 65,536 pieces of four hexadecimal digits, and as many others."""


def _powers(count: int) -> tuple[int, ...]:
    powers = [1]
    while len(powers) < count:
        powers.append(powers[-1] * 31 & _MASK)
    return tuple(powers)


_POWERS: Final = _powers(_BLOCK + 1)
"""31^0, 31^1, ... modulo 2^32, one more than a block has units."""


def _utf16_units(text: str) -> list[int]:
    return memoryview(text.encode(_UTF16, "surrogatepass")).cast("H").tolist()


def _weighted_sum(units: Sequence[int]) -> int:
    # The last unit has the weight 1. Reversed, so the shorter sequence ends the sum.
    total: int = sum(map(mul, units[::-1], _POWERS))
    return total


def java_string_hash_unsigned(text: str) -> int:
    """Return the hash of `text` as an unsigned 32-bit number. Never cached."""
    units: Sequence[int] = text.encode("ascii") if text.isascii() else _utf16_units(text)
    if len(units) <= _BLOCK:
        return _weighted_sum(units) & _MASK
    value = 0
    for start in range(0, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        value = value * _POWERS[len(block)] + _weighted_sum(block) & _MASK
    return value


@lru_cache(maxsize=_CACHED_STRINGS)
def _java_string_hash(text: str) -> int:
    value = java_string_hash_unsigned(text)
    return value - (1 << 32) if value >> 31 else value


def java_string_hash(text: str) -> int:
    """Return Java's `text.hashCode()`, a signed 32-bit number. Thread-safe and cached."""
    return _java_string_hash(text)


def _continue_hash(unsigned_hash: int, text: str) -> int:
    """Return the unsigned hash of a string with this hash, continued by `text`. For compiled code."""
    value: i64 = unsigned_hash
    count: i64 = len(text)
    at: i64 = 0
    while at < count:
        unit: i64 = ord(text[at])
        if unit > 0xFFFF:
            unit -= 0x10000
            value = value * 31 + 0xD800 + (unit >> 10) & _MASK
            unit = 0xDC00 + (unit & 0x3FF)
        value = value * 31 + unit & _MASK
        at += 1
    return value


class PrefixedHasher:
    """Hashes `prefix + text` for streams of texts with common beginnings and four-character endings.

    The hash of joined strings follows from the hashes of the parts: h(a + b) = h(a) * 31^len(b) + h(b). Cached are the
    prefix with the text except its last eight characters, and these as two pieces of four. It suits the unique keys of
    messages: their beginning is the same for all messages of a client, their end is two hexadecimal counters. At most
    `max_heads` beginnings and `max_pieces` pieces are kept. When compiled, hashing all characters is faster than
    caching, and only the hash of the last prefix is kept. Belongs to one thread.
    """

    __slots__ = ("_head_count", "_heads", "_pieces", "_prefix", "_prefix_hash", "max_heads", "max_pieces")

    def __init__(self, max_heads: int = _MAX_HEADS, max_pieces: int = _MAX_PIECES) -> None:
        self.max_heads = max_heads
        self.max_pieces = max_pieces
        self._heads: dict[str, dict[str, int]] = {}
        self._head_count = 0
        self._pieces: dict[str, int] = {}
        self._prefix = ""
        self._prefix_hash = 0

    def hash_unsigned(self, prefix: str, text: str) -> int:
        """Return the unsigned hash (0 to 2^32 - 1) of `prefix + text`."""
        if _COMPILED:
            if prefix != self._prefix:
                self._prefix = prefix
                self._prefix_hash = java_string_hash_unsigned(prefix)
            return _continue_hash(self._prefix_hash, text)
        pieces = self._pieces
        try:
            # All pieces have exactly four ASCII characters, so a hit needs no check of the text's length or alphabet.
            # 923521 is 31^4. The beginning is stored multiplied by 31^8.
            return (self._heads[prefix][text[:-8]] + pieces[text[-8:-4]] * 923521 + pieces[text[-4:]]) & 0xFFFFFFFF
        except KeyError:
            return self._remember(prefix, text)

    def _remember(self, prefix: str, text: str) -> int:
        tail = text[-8:]
        if len(tail) < 8 or len(text) > _LONGEST_REMEMBERED or not tail.isascii():
            return java_string_hash_unsigned(prefix + text)
        head = text[:-8]
        value = self._heads.get(prefix, {}).get(head)
        if value is None:
            if self._head_count >= self.max_heads:
                self._heads.clear()
                self._head_count = 0
            value = java_string_hash_unsigned(prefix + head) * _POWERS[8] & _MASK
            self._heads.setdefault(prefix, {})[head] = value
            self._head_count += 1
        return (value + self._piece(tail[:4]) * 923521 + self._piece(tail[4:])) & _MASK

    def _piece(self, piece: str) -> int:
        value = self._pieces.get(piece)
        if value is None:
            if len(self._pieces) >= self.max_pieces:
                self._pieces.clear()
            a, b, c, d = piece.encode("ascii")
            value = self._pieces[piece] = ((a * 31 + b) * 31 + c) * 31 + d
        return value
