"""A journal beside a small file: the changes since the file was written, one line each.

A line is a checksum, a blank and a text without line breaks. The checksum covers the content of the file and all texts up
to this one. So a journal belongs to one content of its file: its lines no longer count once any program has replaced the
file. A torn line does not count either, nor do the lines after it.
"""

import os
from hashlib import blake2b

from rocketd.store.base.filesystem import IFileSystem

SUFFIX = ".journal"
MIN_LIMIT = 1 << 16
"""A journal may have this many bytes, or as many as its file has."""
_DIGEST_SIZE = 16


def read_journal(file_system: IFileSystem, path: str, content: bytes) -> list[bytes]:
    """Return the texts that follow this content of the file ``path``, oldest first. Raises OSError."""
    try:
        lines = file_system.read_file(path + SUFFIX).split(b"\n")
    except FileNotFoundError:
        return []
    texts = []
    checksum = blake2b(content, digest_size=_DIGEST_SIZE)
    for line in lines[:-1]:
        found, _, text = line.partition(b" ")
        checksum.update(text)
        if found != checksum.hexdigest().encode():
            break
        texts.append(text)
    return texts


class TableJournal:
    """Writes the journal of one file. One thread at a time.

    It is closed until ``begin``, and after a failure: only a new content of the file opens it.
    """

    def __init__(self, file_system: IFileSystem, path: str) -> None:
        """``path`` is that of the file."""
        self._file_system = file_system
        self._path = path + SUFFIX
        self._checksum: blake2b | None = None
        self._limit = 0
        self.size = 0
        """Bytes of the lines after the present content."""

    @property
    def is_open(self) -> bool:
        """Whether the journal takes a change."""
        return self._checksum is not None and self.size < self._limit

    def close(self) -> None:
        """Take no more changes: the file is about to be replaced."""
        self._checksum = None

    def begin(self, content: bytes) -> None:
        """Take changes to this content, which is on disk. Earlier lines are removed. Raises OSError."""
        self._file_system.remove(self._path)
        self.size = 0
        self._limit = max(MIN_LIMIT, len(content))
        self._checksum = blake2b(content, digest_size=_DIGEST_SIZE)

    def append(self, text: bytes) -> None:
        """Add a change. It is on disk when this returns. Raises OSError, and is closed then."""
        checksum, self._checksum = self._checksum, None
        if checksum is None:
            raise OSError(f"{self._path} is closed")
        checksum.update(text)
        line = b"%s %s\n" % (checksum.hexdigest().encode(), text)
        if self.size:
            self._extend(line)
        else:
            self._file_system.write_file(self._path, line)
            self._file_system.sync_dir(os.path.dirname(os.path.abspath(self._path)))
        self.size += len(line)
        self._checksum = checksum

    def _extend(self, line: bytes) -> None:
        descriptor = self._file_system.open(self._path)
        try:
            taken = 0
            while taken < len(line):
                taken += self._file_system.pwrite(descriptor, line[taken:], self.size + taken)
            self._file_system.fdatasync(descriptor)
        finally:
            self._file_system.close(descriptor)
