"""One fixed-length file of a consume queue, and the limit of how many of them are mapped.

Counterpart: `MappedFile` (Apache). There, each queue keeps a descriptor and a mapping, so a broker with very many queues
reaches the limits of the system and cannot store messages to new ones.
"""

import contextlib
import os
from threading import Lock

from twisted.logger import Logger

from rocketd.store.base.filesystem import IFileSystem, sync_names
from rocketd.store.log.mapped_file import PAGE_SIZE, MappedFile

RESERVE_STEP = 4 * PAGE_SIZE
"""Disk space reserved at a time for a file written through its mapping."""

_MAP_COUNT = "/proc/sys/vm/max_map_count"
_USUAL_MAP_COUNT = 65_530

_log = Logger()


def max_mappings() -> int:
    """Return how many queue files may be mapped at a time: half of what the system allows the process."""
    try:
        with open(_MAP_COUNT, encoding="ascii") as file:
            return max(1, int(file.read()) // 2)
    except (OSError, ValueError):
        return _USUAL_MAP_COUNT // 2


class QueueMappings:
    """The queue files that are mapped now. Any thread.

    If there are too many, the mapping of one that has not been used lately is given up. The file is mapped again if it is
    needed.
    """

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is the greatest number of mapped files, `max_mappings` if it is None."""
        self._limit = max_mappings() if limit is None else limit
        self._guard = Lock()
        self._mapped: dict[QueueFile, None] = {}
        """From the file that has waited longest for the question whether it is used."""
        self._has_given_up = False

    def open_file(self, fs: IFileSystem, path: str, file_from_offset: int, file_size: int) -> "QueueFile":
        """Open a file, creating it if it is missing. Raises OSError."""
        return QueueFile(fs, path, file_from_offset, file_size, self)

    @property
    def count(self) -> int:
        """Number of mapped files."""
        return len(self._mapped)

    def admit(self, file: "QueueFile") -> None:
        """Count a file that was mapped, and give up the mapping of another one if there are too many."""
        with self._guard:
            if file.is_removed:
                return
            self._mapped[file] = None
            while len(self._mapped) > self._limit:
                oldest = next(iter(self._mapped))
                del self._mapped[oldest]
                if oldest is file or not oldest.give_up_unless_used():
                    self._mapped[oldest] = None
            if len(self._mapped) < self._limit or self._has_given_up:
                return
            self._has_given_up = True
        _log.info(
            "more than {limit} queue files: those least used are mapped when they are needed; {setting} bounds them",
            limit=self._limit,
            setting="vm.max_map_count",
        )

    def forget(self, file: "QueueFile") -> None:
        """Count a file no more. It keeps its mapping."""
        with self._guard:
            self._mapped.pop(file, None)

    def begin_removal(self, file: "QueueFile", view: memoryview | None) -> None:
        """Count a file no more, and let it keep this mapping, if there is one."""
        with self._guard:
            file.is_removed = True
            self._mapped.pop(file, None)
            file.keep(view)


class QueueFile(MappedFile):
    """A file appended to through its mapping: the entries are so small that a system call for each would dominate.

    Disk space is reserved before the mapping is used, because a store into a page without space raises a fatal signal.
    No descriptor is kept open, and the mapping only as long as `QueueMappings` allows, because there are many such files.
    """

    def __init__(
        self, fs: IFileSystem, path: str, file_from_offset: int, file_size: int, mappings: QueueMappings
    ) -> None:
        """Open the file, creating it and its directory if they are missing. Raises OSError."""
        super().__init__(fs, path, file_from_offset, file_size)
        self.first_create_in_queue = False
        # The name of an existing file may also be unsynced: the process that created it may have been killed before.
        self._name_synced = False
        self._reserved = 0
        self._mappings = mappings
        self._view: memoryview | None = None
        self.is_removed = False
        """Whether its name is removed, or about to be."""
        self._used = False
        """Whether it was used since it was mapped, and since the last question of `QueueMappings`."""
        if not fs.exists(path):
            fs.makedirs(os.path.dirname(path))
        self._map(fs.open(path, file_size))

    @property
    def view(self) -> memoryview:
        """The whole mapping. Raises OSError if the file has to be mapped again and cannot be."""
        self._used = True
        view = self._view
        return self._map_again() if view is None else view

    def _map_again(self) -> memoryview:
        try:
            return self._map(self._fs.open(self.path))
        except FileNotFoundError:
            view = self._view
            if view is None:
                raise
            return view  # of the thread that has removed the file meanwhile

    def _map(self, fd: int) -> memoryview:
        """Map the file and close the descriptor. Raises OSError."""
        try:
            view = self._view = self._fs.map_for_stores(fd, self.file_size)
        finally:
            self._fs.close(fd)
        self._used = False
        self._mappings.admit(self)
        return view

    def give_up_unless_used(self) -> bool:
        """Give up the mapping if it was not used since the last call. Return whether it was given up.

        Views that readers have stay valid.
        """
        if self._used:
            self._used = False
            return False
        self._view = None
        return True

    def append(self, data: bytes) -> None:
        """Store at `wrote_position` and advance it. Raises OSError, with nothing stored, if the disk is full."""
        position = self.wrote_position
        end = position + len(data)
        if end > self._reserved:
            self._reserve(position, end)
        self.view[position:end] = data
        self.wrote_position = end

    def clear_from(self, position: int) -> None:
        """Zero everything after a position. The space reserved there may be released."""
        self._reserved = min(self._reserved, position)
        super().clear_from(position)

    def _reserve(self, position: int, end: int) -> None:
        size = min(max(RESERVE_STEP, end - position), self.file_size - position)
        fd = self._fs.open(self.path)
        try:
            self._fs.allocate(fd, position, size)
        finally:
            self._fs.close(fd)
        self._reserved = position + size

    def _sync(self) -> None:
        fd = self._fs.open(self.path)
        try:
            self._fs.fdatasync(fd)
        finally:
            self._fs.close(fd)
        if not self._name_synced:
            # The names of the file, its queue, its topic, and the directory of all queues or extensions.
            sync_names(self._fs, self.path, 4)
            self._name_synced = True

    def remove_name(self) -> None:
        """See MappedFile. The mapping is kept from now on, since it cannot be recreated."""
        view = None
        with contextlib.suppress(OSError):  # a file that cannot be mapped can be removed
            view = self.view
        self._mappings.begin_removal(self, view)
        try:
            super().remove_name()
        except OSError:
            self.is_removed = False
            if view is not None:
                self._mappings.admit(self)
            raise

    def keep(self, view: memoryview | None) -> None:
        """Use this mapping from now on, if there is one. For QueueMappings."""
        if view is not None:
            self._view = view

    def close(self) -> None:
        """Forget the mapping. It goes with its last view."""
        self._mappings.forget(self)
