"""Creates the next file of the log before it is needed.

Counterpart: `AllocateMappedFileService` and `MappedFile.warmMappedFile` (Apache). A request for a file also requests
the file after it. Files created but not used are removed at the stop. Apache's sender waits until a file is warm; here
it waits only until the disk space is reserved.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from twisted.logger import Logger

from rocketd.common.process.cpu_affinity import UnboundThread
from rocketd.store.base.errors import CreateMappedFileError
from rocketd.store.log.mapped_file import LogFile

WarmFile = Callable[[LogFile, Callable[[], bool]], None]
"""Loads a new file into memory. Ends early as soon as the given function returns True. Raises OSError."""

WAIT_SECONDS = 5.0

_log = Logger()


class _Request:
    """A requested file. `done` is set when `file` or `error` is present, `wanted` when a caller waits for it."""

    __slots__ = ("done", "error", "file", "offset", "wanted")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.wanted = False
        self.done = threading.Event()
        self.file: LogFile | None = None
        self.error: Exception | None = None


class AllocateMappedFileService:
    """Service thread that creates files. `take` belongs to the storage thread, `start` and `stop` to the owner of the
    store.
    """

    def __init__(self, make: Callable[[int], LogFile], path_of: Callable[[int], str]) -> None:
        """Take the maker of files.

        `make` opens the file at an offset and returns when its name is on disk. `path_of` names the file in errors.
        `warm` may be set before the start; it is called for each file created ahead.
        """
        self.warm: WarmFile | None = None
        self._make = make
        self._path_of = path_of
        self._requests: dict[int, _Request] = {}
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._stopping = False
        self._thread = UnboundThread(target=self._run, name="rocketd-store-allocate", daemon=True)
        self._thread.start()

    def take(self, offset: int, next_offset: int) -> LogFile:
        """Return the file at `offset`, created now or before, and have the file at `next_offset` created next.

        Raises CreateMappedFileError after 5 s, or if the disk refuses.
        """
        if self._thread is None:
            return self._make_now(offset)
        request = self._ask(offset)
        request.wanted = True
        self._ask(next_offset)
        if not request.done.wait(WAIT_SECONDS):
            raise CreateMappedFileError(self._path_of(offset), f"the disk took longer than {WAIT_SECONDS:.0f} s")
        del self._requests[offset]
        if request.file is None:
            raise CreateMappedFileError(self._path_of(offset), str(request.error))
        return request.file

    def stop(self) -> None:
        """Stop the thread and remove the unused files."""
        if self._thread is not None:
            self._stopping = True
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        for request in self._requests.values():
            if request.file is not None:
                try:
                    request.file.destroy()
                except OSError as error:
                    _log.warn("cannot remove {path}: {error}", path=request.file.path, error=error)
        self._requests.clear()

    def _ask(self, offset: int) -> _Request:
        request = self._requests.get(offset)
        if request is None or request.error is not None:
            request = self._requests[offset] = _Request(offset)
            self._queue.put(request)
        return request

    def _make_now(self, offset: int) -> LogFile:
        try:
            return self._make(offset)
        except OSError as error:
            raise CreateMappedFileError(self._path_of(offset), str(error)) from error

    def _create_warmed(self, request: _Request) -> LogFile:
        file = self._make(request.offset)
        if self.warm is not None:
            try:
                self.warm(file, lambda: request.wanted or self._stopping)
            except BaseException:
                # It may have taken the last disk space, needed by others now.
                file.destroy()
                raise
        return file

    def _run(self) -> None:
        while (request := self._queue.get()) is not None:
            try:
                request.file = self._create_warmed(request)
            except Exception as error:
                request.error = error
                _log.error("cannot create {path}: {error}", path=self._path_of(request.offset), error=error)
            request.done.set()
