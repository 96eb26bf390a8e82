"""CRC-32 of message bodies, by the faster isal if the extra ``fast`` is installed, otherwise by zlib."""

from collections.abc import Callable

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    from zlib import crc32 as _crc32

crc32: Callable[[bytes | memoryview], int] = _crc32
