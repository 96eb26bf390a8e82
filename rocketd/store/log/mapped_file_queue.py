"""The ordered files of one directory as one run of bytes. `multi_path` does the same for several directories.

Counterpart: `MappedFileQueue` (Apache). The list of files is replaced, never changed, so any thread may iterate over
its copy. Two locks exclude threads that replace it. One is held only for the replacement itself. The other is held
while names are removed, so a name is removed only while its file is in the list. An append never waits for the disk
because of a deletion.
"""

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Generic, TypeVar

from twisted.logger import Logger

from rocketd.store.base.errors import StoreFileSizeError
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.base.layout import is_mapped_file_name, offset_to_file_name
from rocketd.store.log.mapped_file import PAGE_SIZE, MappedFile

FileT = TypeVar("FileT", bound=MappedFile)

_log = Logger()


class MappedFileQueue(Generic[FileT]):
    """Files of one size in one directory.

    - `load`, `add`, `truncate` and `destroy` belong to the appending thread.
    - `flush` and `delete_first` may be called by any thread, but block it.
    - Everything else may be called by any thread.

    Offsets are bytes in the whole run.
    """

    def __init__(
        self, fs: IFileSystem, directory: str, file_size: int, make: Callable[[IFileSystem, str, int, int], FileT]
    ) -> None:
        self._fs = fs
        self.directory = directory
        self.file_size = file_size
        self._make = make
        self.files: list[FileT] = []
        self.flushed_where = 0
        self.store_timestamp = 0
        self._flushing = threading.Lock()
        self._replacing = threading.Lock()
        self._removing = threading.Lock()

    def load(self, cut_at_empty: bool = False) -> None:
        """Map all files of the directory. Raises StoreFileSizeError if the size of one differs from the settings.

        A crash may have happened between the creation of a file and the setting of its length. Such a file is removed
        together with the files after it, if they are unused. With `cut_at_empty` they are removed in any case, because
        their data can be rebuilt.
        """
        paths = self._paths_on_disk()
        sizes = [self._fs.file_size(path) for path in paths]
        begin = sizes.index(0) if 0 in sizes else len(paths)
        behind = list(zip(paths[begin:], sizes[begin:], strict=True))
        if cut_at_empty or all(self._is_unused(path, size) for path, size in behind):
            for path, _ in behind:
                _log.warn("removing {path}: it is unused, or a file before it is missing", path=path)
                self._fs.remove(path)
            del paths[begin:]
        files = []
        for path in paths:
            size = self._fs.file_size(path)
            if size != self.file_size:
                raise StoreFileSizeError(path, size, self.file_size)
            file = self._make(self._fs, path, int(os.path.basename(path)), self.file_size)
            file.set_positions(self.file_size)
            files.append(file)
        for before, after in pairwise(files):
            if after.file_from_offset != before.file_from_offset + self.file_size:
                _log.error("a file is missing between {before} and {after}", before=before.path, after=after.path)
        self.files = files
        self.flushed_where = self.max_offset

    def _paths_on_disk(self) -> list[str]:
        """Return the paths of the existing files in order. Raises OSError."""
        return [
            os.path.join(directory, name)
            for directory in self.directories
            for name in self._fs.listdir(directory)
            if is_mapped_file_name(name)
        ]

    def _is_unused(self, path: str, size: int) -> bool:
        """Return whether a file is empty: records and entries do not begin with so many zeros."""
        if size != self.file_size:
            return size == 0
        file = self._make(self._fs, path, int(os.path.basename(path)), size)
        try:
            return not any(file.view[:20])
        finally:
            file.close()

    @property
    def directories(self) -> tuple[str, ...]:
        """Directories of files, here only one."""
        return (self.directory,)

    def path_of(self, offset: int) -> str:
        """Return the path of the file whose first byte has this offset."""
        return os.path.join(self.directory, offset_to_file_name(offset))

    def open_file(self, offset: int) -> FileT:
        """Create or open the file that starts at an offset, without adding it. Raises OSError."""
        return self._make(self._fs, self.path_of(offset), offset, self.file_size)

    def add(self, file: FileT) -> None:
        """Add a file as the last one."""
        with self._replacing:
            self.files = [*self.files, file]

    def delete_first(self, file: FileT) -> bool:
        """Remove a file no longer needed, if it is the first but not the last, and completely flushed.

        Return whether it was removed. Its name is then gone from the disk for good, so a later file is never missing
        while this one is present. Raises OSError; a file whose name could not be removed stays as it is.
        """
        with self._removing:
            files = self.files
            # A running flush uses the descriptor of a file that is not flushed.
            if len(files) < 2 or files[0] is not file or file.flushed_position < file.wrote_position:
                return False
            file.remove_name()
            with self._replacing:
                self.files = self.files[1:]
            file.retire()
            self._fs.sync_dir(os.path.dirname(file.path))
            return True

    @property
    def last(self) -> FileT | None:
        """The file to append to, None if there is none yet."""
        files = self.files
        return files[-1] if files else None

    @property
    def min_offset(self) -> int:
        """Offset of the first byte present, -1 without files."""
        files = self.files
        return files[0].file_from_offset if files else -1

    @property
    def max_offset(self) -> int:
        """Offset after the last byte, 0 without files."""
        files = self.files
        return files[-1].file_from_offset + files[-1].wrote_position if files else 0

    def find(self, offset: int) -> FileT | None:
        """Return the file with an offset, None if there is none."""
        files = self.files
        if not files:
            return None
        if 0 <= offset - files[-1].file_from_offset < self.file_size:
            return files[-1]
        index = (offset - files[0].file_from_offset) // self.file_size
        if 0 <= index < len(files):
            file = files[index]
            if file.file_from_offset <= offset < file.file_from_offset + self.file_size:
                return file
        # Only needed if a file is missing in between.
        for file in files:
            if file.file_from_offset <= offset < file.file_from_offset + self.file_size:
                return file
        return None

    def truncate(self, offset: int, clear: bool) -> None:
        """Drop all bytes from an offset on. Files after it are removed, the file with the offset ends there.

        `clear` zeroes the rest of that file and returns when it is on disk. Remains of a crash must be cleared: they
        could become valid when later records happen to end where they begin, or after the next crash.
        """
        with self._removing:
            kept = []
            gone = []
            for file in self.files:
                if file.file_from_offset + self.file_size <= offset:
                    kept.append(file)
                elif file.file_from_offset <= offset:
                    position = offset - file.file_from_offset
                    if clear:
                        file.clear_from(position)
                    file.set_positions(position)
                    if clear:
                        file.flush()
                    kept.append(file)
                else:
                    gone.append(file)
            # From the end, so a crash on the way leaves no gap.
            for file in reversed(gone):
                file.destroy()
            if clear:
                for directory in {os.path.dirname(file.path) for file in gone}:
                    self._fs.sync_dir(directory)
            with self._replacing:
                self.files = kept
            self.flushed_where = min(self.flushed_where, offset)

    def forget_flushed(self, offset: int) -> None:
        """Treat the bytes from an offset on as not flushed, so the next flush writes them."""
        self.flushed_where = min(self.flushed_where, max(offset, self.min_offset))
        for file in self.files:
            if file.file_from_offset + file.file_size > offset:
                file.forget_flushed(offset - file.file_from_offset)

    def flush(self, least_pages: int) -> bool:
        """Flush the bytes appended before the call, unless they are fewer than `least_pages` pages (0: always).

        Return whether all of them are on disk. Raises OSError if the disk refuses; only bytes on disk count as flushed
        then.
        """
        with self._flushing:
            end = self.max_offset
            begin = self.flushed_where
            if begin >= end:
                return True
            if least_pages > 0 and begin // self.file_size == end // self.file_size:
                pages = end // PAGE_SIZE - begin // PAGE_SIZE
                if pages < least_pages:
                    return False
            for file in self.files:
                if file.file_from_offset + self.file_size > begin and file.flushed_position < file.wrote_position:
                    timestamp = file.store_timestamp
                    self.flushed_where = file.file_from_offset + file.flush()
                    if timestamp:
                        self.store_timestamp = timestamp
            return self.flushed_where >= end

    def destroy(self) -> None:
        """Remove all files, and their directories if they are empty then."""
        with self._removing:
            with self._replacing:
                files, self.files = self.files, []
            for file in files:
                file.destroy()
            self.flushed_where = 0
            for directory in self.directories:
                self._fs.rmdir(directory)

    def close(self) -> None:
        """Close all descriptors."""
        for file in self.files:
            file.close()
