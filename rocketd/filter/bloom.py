"""The bloom filter for the bitmap of matching filters in a consume queue's extension.

Counterpart: `BloomFilter`, `BloomFilterData` and `BitsArray` (Apache), bit for bit. Sets of bits are integers here: bit
n of a bitmap is bit n % 8 of its byte n // 8, its position in a little-endian number.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import mmh3

_INT_MASK: Final = 0xFFFFFFFF
_INT_SIGN: Final = 0x80000000


class BloomFilter:
    """Maps keys to bits. Immutable.

    ``hashes`` is the number of bits of a key, ``bits`` the size of the filter in bits, a multiple of 8.
    """

    def __init__(self, error_rate: int, expected: int) -> None:
        """Choose the size for a number of keys, and an error rate: the allowed share of false matches in percent."""
        if not 1 <= error_rate < 100:
            raise ValueError(f"the error rate is {error_rate} %, accepted is 1 to 99")
        if expected < 1:
            raise ValueError(f"the number of keys is {expected}, accepted is 1 or more")
        rate = error_rate / 100.0
        self.hashes = math.ceil(_log(0.5, rate))
        bits = math.ceil(expected * _log(2.0, 1.0 / rate) * _log(2.0, math.e))
        self.bits = -(-bits // 8) * 8

    @property
    def size(self) -> int:
        """Size of a bitmap in bytes."""
        return self.bits // 8

    def positions(self, key: str) -> list[int]:
        """Return the bits of a key. A bit may occur twice."""
        # Guava's murmur3_128 as a long: the first 64 bits, seed 0.
        hashed, _ = mmh3.hash64(key.encode(), 0, x64arch=True, signed=False)
        low, high = hashed & _INT_MASK, hashed >> 32
        combined = [low + number * high & _INT_MASK for number in range(1, self.hashes + 1)]
        return [(~value & _INT_MASK if value & _INT_SIGN else value) % self.bits for value in combined]

    def is_valid(self, positions: Sequence[int], bits: int) -> bool:
        """Return whether stored positions and their bitmap size could come from this filter."""
        return bits == self.bits and len(positions) == self.hashes and all(0 <= at < bits for at in positions)

    def bitmap(self, mask: int) -> bytes:
        """Return the bitmap of a set of bits, such as the result of `mask_of`."""
        return mask.to_bytes(self.size, "little")


def mask_of(positions: Iterable[int]) -> int:
    """Return the set of bits at these positions."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def is_hit(bitmap: bytes, mask: int) -> bool:
    """Return whether a bitmap has all bits of a mask."""
    return int.from_bytes(bitmap, "little") & mask == mask


def _log(base: float, value: float) -> float:
    # In this order and without math.log's second argument, so rounding is that of Java.
    return math.log(value) / math.log(base)
