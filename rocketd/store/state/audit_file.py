"""A file of lines to which a server adds, for changes by administrators. It never grows beyond twice its limit.

At the limit the file is renamed to ``NAME.1``, which replaces an older one. Lines are not synced one by one: they survive
the end of the process, and a power cut can take the last seconds.
"""

import os
import threading

from rocketd.store.base.filesystem import IFileSystem, make_durable_dir

MAX_BYTES = 8 << 20
"""Limit of the file, and of the one before it."""


class AuditFile:
    """One file of lines. Any thread."""

    def __init__(self, file_system: IFileSystem, path: str, max_bytes: int = MAX_BYTES) -> None:
        self._fs = file_system
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()

    def append(self, line: bytes) -> None:
        """Add a line, given without its newline. Raises OSError."""
        with self._lock:
            size = self._size()
            if size and size + len(line) >= self._max_bytes:
                self._fs.rename(self._path, self._older)
                size = None
            if size is None:
                make_durable_dir(self._fs, os.path.dirname(os.path.abspath(self._path)))
            descriptor = self._fs.open(self._path, 0 if size is None else None)
            try:
                # A process may have been killed within its line.
                is_cut = bool(size) and self._fs.read_at(self._path, (size or 0) - 1, 1) != b"\n"
                data = b"\n" * is_cut + line + b"\n"
                at = size or 0
                while data:
                    taken = self._fs.pwrite(descriptor, data, at)
                    data, at = data[taken:], at + taken
            finally:
                self._fs.close(descriptor)

    def last(self, count: int, max_bytes: int) -> list[bytes]:
        """Return the last lines, the oldest first: up to ``count`` lines with ``max_bytes`` in all. Raises OSError."""
        with self._lock:
            lines, left = self._end_of(self._path, max_bytes)
            if left:
                lines = self._end_of(self._older, left)[0] + lines
        return lines[-count:] if count > 0 else []

    @property
    def _older(self) -> str:
        return f"{self._path}.1"

    def _size(self) -> int | None:
        return self._fs.file_size(self._path) if self._fs.exists(self._path) else None

    def _end_of(self, path: str, max_bytes: int) -> tuple[list[bytes], int]:
        """Return the last whole lines of a file, and the number of bytes left of the limit; 0 if it is longer."""
        if not self._fs.exists(path):
            return [], max_bytes
        size = self._fs.file_size(path)
        begin = max(0, size - max_bytes)
        lines = self._fs.read_at(path, begin, size - begin).split(b"\n")
        # The first line may begin before, unless the one before it ends here.
        if begin and self._fs.read_at(path, begin - 1, 1) != b"\n":
            del lines[0]
        return [line for line in lines if line], max(0, max_bytes - size)
