"""A lock that lets only one process at a time write for a sink.

It is the operating system's lock on a file. It is released when the process ends, for whatever reason. It also works on
network file systems that support locks.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from time import monotonic, sleep
from types import TracebackType
from typing import Final, Self

from rocketd.spark.sink.problems import SinkError

_PAUSE: Final = 0.1
_BUSY: Final = (errno.EACCES, errno.EAGAIN)


class SinkLock:
    """The lock of a sink's folder, held within a `with` block.

    If another process holds the lock, this waits for `patience` seconds. That process may belong to a killed driver,
    and ends once its batch is sent. Raises SinkError after that time, and for a file system without locks.
    """

    def __init__(
        self,
        folder: str,
        patience: float,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._folder = folder
        self._patience = patience
        self._clock = clock
        self._wait = wait
        self._descriptor = -1

    def __enter__(self) -> Self:
        self._descriptor = os.open(os.path.join(self._folder, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take()
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def _take(self) -> None:
        ends = self._clock() + self._patience
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _BUSY:
                    raise SinkError(
                        f"{self._folder} cannot be locked ({error.strerror}): put stagingDir where files have locks"
                    ) from error
                if self._clock() >= ends:
                    holder = os.pread(self._descriptor, 200, 0).decode("utf-8", "replace") or "another process"
                    raise SinkError(
                        f"the sink in {self._folder} is being written by {holder}, which was waited for "
                        f"{self._patience:g} s: two writers need a sinkId each; if that process is a left-over, end it"
                    ) from None
                self._wait(_PAUSE)
            else:
                return
