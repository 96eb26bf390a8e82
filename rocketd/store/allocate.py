"""Makes the log's next file before it is needed.

Answers to Apache's `AllocateMappedFileService`: whoever asks for a file also has the one behind it made. Made but
unused files are removed at the stop. Answers to `MappedFile.warmMappedFile` too, where files are to be warmed: but
Apache's sender waits until all of a file is warm, ours only until its room on the disk is reserved.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from twisted.logger import Logger

from rocketd.store.errors import CreateMappedFileError
from rocketd.store.mapped_file import LogFile

WarmFile = Callable[[LogFile, Callable[[], bool]], None]
"""Brings a new file into memory; ends early when the function it is given says so. Raises OSError."""

WAIT_SECONDS = 5.0

_log = Logger()


class _Request:
    """A file that is asked for: `done` is set when either `file` or `error` is there, `wanted` when somebody waits
    for it.
    """

    __slots__ = ("done", "error", "file", "offset", "wanted")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.wanted = False
        self.done = threading.Event()
        self.file: LogFile | None = None
        self.error: Exception | None = None


class AllocateMappedFileService:
    """Service thread that makes files. `take` belongs to the storage thread, `start` and `stop` to the one that
    owns the store.
    """

    def __init__(self, make: Callable[[int], LogFile], path_of: Callable[[int], str]) -> None:
        """`make` opens the file at an offset and returns when its name is on the disk; `path_of` names it for
        errors. `warm`, which may be set before the start, is done to each file made ahead.
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
        self._thread = threading.Thread(target=self._run, name="rocketd-store-allocate", daemon=True)
        self._thread.start()

    def take(self, offset: int, next_offset: int) -> LogFile:
        """The file at `offset`, made now or before; the one at `next_offset` is made next.

        Raises CreateMappedFileError after 5 s, or with the disk's refusal.
        """
        if self._thread is None:
            return self._make_now(offset)
        request = self._ask(offset)
        request.wanted = True
        self._ask(next_offset)
        if not request.done.wait(WAIT_SECONDS):
            raise CreateMappedFileError(self._path_of(offset), f"the disk needs longer than {WAIT_SECONDS:.0f} s")
        del self._requests[offset]
        if request.file is None:
            raise CreateMappedFileError(self._path_of(offset), str(request.error))
        return request.file

    def stop(self) -> None:
        """Stop the thread and remove what it made in vain."""
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

    def _make_warm(self, request: _Request) -> LogFile:
        file = self._make(request.offset)
        if self.warm is not None:
            try:
                self.warm(file, lambda: request.wanted or self._stopping)
            except BaseException:
                # It may have taken the disk's last room, which others need now.
                file.destroy()
                raise
        return file

    def _run(self) -> None:
        while (request := self._queue.get()) is not None:
            try:
                request.file = self._make_warm(request)
            except Exception as error:
                request.error = error
                _log.error("cannot make {path}: {error}", path=self._path_of(request.offset), error=error)
            request.done.set()
