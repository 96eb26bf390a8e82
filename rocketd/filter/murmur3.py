"""The first 64 bits of MurmurHash3 for 128 bits, seed 0.

Answers to Guava's Hashing.murmur3_128, as far as Apache's bloom filter uses it. Pure function.
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = 16


def murmur3_64(data: bytes) -> int:
    """Hash bytes to a number of 64 bits, without sign."""
    h1 = h2 = 0
    whole = len(data) - len(data) % _BLOCK
    for at in range(0, whole, _BLOCK):
        h1 ^= _mix1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotate(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mix2(int.from_bytes(data[at + 8 : at + _BLOCK], "little"))
        h2 = (_rotate(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK
    h1 ^= _mix1(int.from_bytes(data[whole : whole + 8], "little")) ^ len(data)
    h2 ^= _mix2(int.from_bytes(data[whole + 8 :], "little")) ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _finish(h1) + _finish(h2) & _MASK


def _mix1(k: int) -> int:
    return _rotate(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mix2(k: int) -> int:
    return _rotate(k * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finish(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
