"""The file of the store in which deleted topics are noted; see `rocketd.store.deletions`.

Apache has no counterpart. It is replaced whole, so that a crash leaves the old or the new one.
"""

import json
import os
import zlib

from rocketd.store.deletions import Deletion, Deletions
from rocketd.store.filesystem import IFileSystem
from rocketd.store.small_file import replace_file

_VERSION = 1
_CHECKSUM_SIZE = 9
"""Eight hexadecimal digits and a line feed."""


def deletions_path(root: str) -> str:
    """The file of the deletions."""
    return os.path.join(root, "rocketd-deletions")


def read_deletions(fs: IFileSystem, root: str) -> Deletions | None:
    """The deletions that were noted; None if the file is damaged. Raises OSError."""
    path = deletions_path(root)
    if not fs.exists(path):
        return Deletions()
    data = fs.read_file(path)
    content = data[_CHECKSUM_SIZE:]
    if data[:_CHECKSUM_SIZE] == b"%08x\n" % zlib.crc32(content):
        version, topics = json.loads(content)
        if version == _VERSION:
            return Deletions({topic: Deletion(*deletion) for topic, deletion in topics.items()})
    return None


def write_deletions(fs: IFileSystem, root: str, deletions: Deletions) -> None:
    """Replace the deletions; they are on the disk when this returns. Raises OSError."""
    content = json.dumps([_VERSION, deletions.topics], separators=(",", ":")).encode()
    replace_file(fs, deletions_path(root), b"%08x\n" % zlib.crc32(content) + content, keep_old=False)
