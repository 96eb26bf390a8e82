"""The ordered files of one directory, seen as one run of bytes; `multi_path` knows those of several.

Answers to Apache's `MappedFileQueue`. The list of files is replaced, never changed, so that any thread may walk the
one it has. Two locks keep those who replace it apart: one around each replacement, held for no longer; the other around
the removal of names, so that a name is only ever removed while its file is in the list. An append never waits for the
disk because of a deletion.
"""

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Generic, TypeVar

from twisted.logger import Logger

from rocketd.store.errors import StoreFileSizeError
from rocketd.store.filesystem import IFileSystem
from rocketd.store.layout import is_mapped_file_name, offset_to_file_name
from rocketd.store.mapped_file import PAGE_SIZE, MappedFile

FileT = TypeVar("FileT", bound=MappedFile)

_log = Logger()


class MappedFileQueue(Generic[FileT]):
    """Files of one size in one directory.

    `load`, `add`, `truncate` and `destroy` belong to the thread that appends; `flush` and `delete_first` may be
    called by any thread but block it; all else may be called by any thread. Offsets are bytes in the whole run.
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
        """Map all files of the directory; raises StoreFileSizeError when one has another size than the settings say.

        A crash may have come between a file's name and its length: such a file is removed, with those behind it, if
        they are unused. With `cut_at_empty` they need not be: what they hold can be made again.
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
        """Paths of the files that are there, in their order. Raises OSError."""
        return [
            os.path.join(directory, name)
            for directory in self.directories
            for name in self._fs.listdir(directory)
            if is_mapped_file_name(name)
        ]

    def _is_unused(self, path: str, size: int) -> bool:
        """Whether a file holds nothing: no record and no entry begins with so many zeros."""
        if size != self.file_size:
            return size == 0
        file = self._make(self._fs, path, int(os.path.basename(path)), size)
        try:
            return not any(file.view[:20])
        finally:
            file.close()

    @property
    def directories(self) -> tuple[str, ...]:
        """Where files may lie: one directory, here."""
        return (self.directory,)

    def path_of(self, offset: int) -> str:
        """Path of the file whose first byte has this offset."""
        return os.path.join(self.directory, offset_to_file_name(offset))

    def open_file(self, offset: int) -> FileT:
        """Make or open the file that starts at an offset, without adding it. Raises OSError."""
        return self._make(self._fs, self.path_of(offset), offset, self.file_size)

    def add(self, file: FileT) -> None:
        """Take a file in as the last one."""
        with self._replacing:
            self.files = [*self.files, file]

    def delete_first(self, file: FileT) -> bool:
        """Remove a file that nobody needs any more, if it is the first but not the last, and wholly on the disk.

        Returns whether that was so. When it returns, the name is gone from the disk for good: whatever happens then,
        no later file is missing while this one is there. Raises OSError; a file whose name could not be removed stays
        as it is.
        """
        with self._removing:
            files = self.files
            # A flush that is under way uses the descriptor of a file that is not flushed.
            if len(files) < 2 or files[0] is not file or file.flushed_position < file.wrote_position:
                return False
            self._fs.remove(file.path)
            with self._replacing:
                self.files = self.files[1:]
            file.retire()
            self._fs.sync_dir(os.path.dirname(file.path))
            return True

    @property
    def last(self) -> FileT | None:
        """The file that is appended to, None where there is none yet."""
        files = self.files
        return files[-1] if files else None

    @property
    def min_offset(self) -> int:
        """Offset of the first byte there is, -1 without files."""
        files = self.files
        return files[0].file_from_offset if files else -1

    @property
    def max_offset(self) -> int:
        """Offset behind the last byte there is, 0 without files."""
        files = self.files
        return files[-1].file_from_offset + files[-1].wrote_position if files else 0

    def find(self, offset: int) -> FileT | None:
        """The file that holds an offset, None where there is none."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].file_from_offset) // self.file_size
        if 0 <= index < len(files):
            file = files[index]
            if file.file_from_offset <= offset < file.file_from_offset + self.file_size:
                return file
        # Only where a file is missing in between.
        for file in files:
            if file.file_from_offset <= offset < file.file_from_offset + self.file_size:
                return file
        return None

    def truncate(self, offset: int, clear: bool) -> None:
        """Forget all bytes from an offset on: whole files are removed, the file that holds it ends there.

        `clear` makes the rest of that file zero, and returns when that is on the disk. What a crash left behind must be
        cleared: it could otherwise become valid again when later records happen to end where it begins, or after the
        next crash.
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
            # From the end, so that a crash on the way leaves no gap.
            for file in reversed(gone):
                file.destroy()
            if clear:
                for directory in {os.path.dirname(file.path) for file in gone}:
                    self._fs.sync_dir(directory)
            with self._replacing:
                self.files = kept
            self.flushed_where = min(self.flushed_where, offset)

    def forget_flushed(self, offset: int) -> None:
        """Count nothing from an offset on as flushed, so that the next flush has it put on the disk."""
        self.flushed_where = min(self.flushed_where, max(offset, self.min_offset))
        for file in self.files:
            if file.file_from_offset + file.file_size > offset:
                file.forget_flushed(offset - file.file_from_offset)

    def flush(self, least_pages: int) -> bool:
        """Put what was appended before the call on the disk, unless it is fewer pages than asked for (0: in any case).

        Returns whether all of it is there now. Raises OSError when the disk refuses; nothing then counts as flushed
        that is not.
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
        """Remove all files and the directories that are empty then."""
        with self._removing:
            with self._replacing:
                files, self.files = self.files, []
            for file in files:
                file.destroy()
            self.flushed_where = 0
            for directory in self.directories:
                self._fs.rmdir(directory)

    def close(self) -> None:
        """Give all descriptors back."""
        for file in self.files:
            file.close()
