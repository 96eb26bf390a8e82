"""The files of a commit log that lie in several directories, seen as one run of bytes.

Counterpart: `MultiPathMappedFileQueue` (Apache), with the same places of new files. Files are found by name wherever they
lie. Unlike Apache's, two files of one name are noticed: one without content is removed, with two that have some the
start is refused.
"""

import os

from twisted.logger import Logger

from rocketd.store.errors import StoreFileTwiceError
from rocketd.store.filesystem import IFileSystem
from rocketd.store.layout import is_mapped_file_name, offset_to_file_name
from rocketd.store.log_paths import LogPaths
from rocketd.store.mapped_file import LogFile
from rocketd.store.mapped_file_queue import MappedFileQueue

_ZEROS = bytes(1 << 20)

_log = Logger()


class MultiPathFileQueue(MappedFileQueue[LogFile]):
    """As its base class. `full_paths` are directories that new files avoid; it is replaced by the thread that watches
    the disks, and read by the one that makes files.
    """

    def __init__(self, fs: IFileSystem, paths: LogPaths, file_size: int) -> None:
        super().__init__(fs, paths.text, file_size, LogFile)
        self._paths = paths
        self.full_paths: frozenset[str] = frozenset()

    @property
    def directories(self) -> tuple[str, ...]:
        """All that may have files."""
        return self._paths.all

    def path_of(self, offset: int) -> str:
        """Path of the file whose first byte has this offset: where it lies, else where it would be made now."""
        file = self.find(offset)
        if file is not None:
            return file.path
        directory = self._paths.place(offset // self.file_size, self.full_paths)
        return os.path.join(directory, offset_to_file_name(offset))

    def _paths_on_disk(self) -> list[str]:
        found: dict[str, str] = {}
        for directory in self.directories:
            for name in self._fs.listdir(directory):
                if is_mapped_file_name(name):
                    path = os.path.join(directory, name)
                    found[name] = path if name not in found else self._better_of(found[name], path)
        return [found[name] for name in sorted(found)]

    def _better_of(self, first: str, second: str) -> str:
        """Of two files of one name, the one with content; the other is removed."""
        kept, gone = (second, first) if self._is_empty(first) else (first, second)
        if not self._is_empty(gone):
            raise StoreFileTwiceError(first, second)
        _log.warn("removing {path}: it is unused, {kept} has the same name", path=gone, kept=kept)
        self._fs.remove(gone)
        return kept

    def _is_empty(self, path: str) -> bool:
        """Whether a file holds nothing but zeros, as one that was made ahead."""
        size = self._fs.file_size(path)
        written = self._fs.data_ranges(path, 0) if size else []
        if not written:
            return True
        file = LogFile(self._fs, path, 0, size)
        try:
            steps = (
                (at, min(at + len(_ZEROS), end)) for begin, end in written for at in range(begin, end, len(_ZEROS))
            )
            return all(file.view[at:end] == _ZEROS[: end - at] for at, end in steps)
        finally:
            file.close()
