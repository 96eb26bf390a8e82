"""Small files of the store with a checksum, replaced as a whole.

The first line is the CRC-32 of the rest in eight hexadecimal digits. The rest is a JSON array whose first item is a
version.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any

from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.small_file import replace_file

_CHECKSUM_SIZE = 9
"""Eight hexadecimal digits and a line feed."""


def read_note(fs: IFileSystem, path: str, version: int) -> list[Any] | None:
    """Return the items after the version, or None without an intact file of this version. Raises OSError."""
    data = fs.read_file(path) if fs.exists(path) else b""
    content = data[_CHECKSUM_SIZE:]
    if data[:_CHECKSUM_SIZE] != _checksum(content):
        return None
    found, *items = json.loads(content)
    return items if found == version else None


def write_note(fs: IFileSystem, path: str, version: int, items: Sequence[object]) -> None:
    """Replace a note. It is on disk when this returns. Raises OSError."""
    content = json.dumps([version, *items], separators=(",", ":")).encode()
    replace_file(fs, path, _checksum(content) + content, keep_old=False)


def _checksum(content: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(content)
