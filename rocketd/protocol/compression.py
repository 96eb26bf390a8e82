"""Compressed bodies: the algorithms of sent and of received ones.

Counterpart: `Compressor` and `CompressionType` (Apache). Pure functions. Apache's clients have the three algorithms from
4.9.4 on. Packages for other algorithms than zlib are imported at the first use.
"""

import zlib
from collections.abc import Callable
from typing import Final, Literal

from rocketd.common.sysflag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

Compression = Literal["zlib", "lz4", "zstd"]
"""The algorithms, by the names that Java's clients use."""

_LEVEL: Final = 5
"""The default of Java's clients for all algorithms with levels."""


def compress(body: bytes, algorithm: Compression = "zlib") -> tuple[bytes, int]:
    """Compress a body. Return it with the bits of sysFlag for the algorithm. Raises ImportError for a missing package."""
    function, flag = _COMPRESSORS[algorithm]
    return function(body), COMPRESSED | flag


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def _lz4(body: bytes) -> bytes:
    from lz4 import frame

    return bytes(frame.compress(body))


def _zstd(body: bytes) -> bytes:
    from zstandard import ZstdCompressor

    return bytes(ZstdCompressor(level=_LEVEL).compress(body))


_COMPRESSORS: Final[dict[Compression, tuple[Callable[[bytes], bytes], int]]] = {
    "zlib": (_zlib, COMPRESSION_ZLIB),
    "lz4": (_lz4, COMPRESSION_LZ4),
    "zstd": (_zstd, COMPRESSION_ZSTD),
}


def algorithm_of(sys_flag: int) -> int:
    """Return the algorithm of a compressed body, one of the COMPRESSION bits of sysFlag.

    Clients before 4.9.4 set none of these bits: they mean zlib.
    """
    return sys_flag & COMPRESSION_MASK or COMPRESSION_ZLIB
