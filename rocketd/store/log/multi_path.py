"""The files of a commit log in several directories as one run of bytes.

Counterpart: `MultiPathMappedFileQueue` (Apache). New files go to the same directories as there. Files are found by name in
any directory. Unlike Apache, it notices two files of the same name. If one is empty, it is removed. If both have content,
the start is refused.
"""

import os

from twisted.logger import Logger

from rocketd.store.base.errors import StoreFileTwiceError
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import is_mapped_file_name, offset_to_file_name
from rocketd.store.log.log_paths import LogPaths
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue

_ZEROS = bytes(1 << 20)

_log = Logger()


class MultiPathFileQueue(MappedFileQueue[LogFile]):
    """See the base class.

    `full_paths` are directories to avoid for new files. The thread that watches the disks replaces it; the thread that
    creates files reads it.
    """

    def __init__(self, fs: IFileSystem, paths: LogPaths, file_size: int) -> None:
        super().__init__(fs, paths.text, file_size, LogFile)
        self._paths = paths
        self.full_paths: frozenset[str] = frozenset()

    @property
    def directories(self) -> tuple[str, ...]:
        """All directories with files."""
        return self._paths.all

    def path_of(self, offset: int) -> str:
        """Return the path of the file whose first byte has this offset.

        If the file does not exist, return the path at which it would be created now.
        """
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
        """Remove the empty one of two files of the same name and return the other."""
        kept, gone = (second, first) if self._is_empty(first) else (first, second)
        if not self._is_empty(gone):
            raise StoreFileTwiceError(first, second)
        _log.warn("removing {path}: it is unused, {kept} has the same name", path=gone, kept=kept)
        self._fs.remove(gone)
        return kept

    def _is_empty(self, path: str) -> bool:
        """Return whether a file has only zeros, like a file created ahead."""
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
