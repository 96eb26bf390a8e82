"""The thread in which a slave receives its master's log from a plain connection: it reads, appends and reports.

With the reactor and the storage thread instead, each message would pass between the two of them twice.
"""

import select
import socket
from collections.abc import Callable
from threading import Lock, Thread
from time import monotonic

from rocketd.store.log.transfer import REPORT_SIZE, encode_report

READ_BYTES = 1 << 18
"""The number of bytes read at once."""
DISPATCH_SECONDS = 0.005
"""The time after which received data is dispatched. Data received meanwhile shares the cost."""


class ReportSender:
    """Sends reports on a socket that does not block. Any thread.

    Only the greatest offset counts. So if the socket is full, a report is dropped, and ``unsent`` is set.
    """

    def __init__(self, direct: socket.socket) -> None:
        self._direct: socket.socket | None = direct
        self._lock = Lock()
        self._rest = b""
        self._greatest = 0
        self.unsent = False

    def send(self, offset: int) -> None:
        """Send a report with this offset, or a greater one sent before."""
        with self._lock:
            if self._direct is None:
                return
            self._greatest = max(self._greatest, offset)
            data = self._rest + encode_report(self._greatest)
            try:
                data = data[self._direct.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                return  # the thread that reads finds out
            self.unsent = bool(data)
            # The receiver must get the rest of a report of which it has a part.
            self._rest = data[: len(data) % REPORT_SIZE]

    def shut_down(self) -> None:
        """Have the peer and the thread that reads see the end of the connection."""
        with self._lock:
            if self._direct is not None:
                try:
                    self._direct.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it is closed already

    def close(self) -> None:
        """Close the socket. Thread that reads."""
        with self._lock:
            if self._direct is not None:
                self._direct.close()
                self._direct = None


class LogReceiver:
    """Reads a duplicate of the connection's socket in a thread, until its end or an exception.

    ``received`` is called in this thread with bytes, ``dispatch`` soon after it and at the end. ``ended`` is the last call
    there, with the exception, or None at the end of the connection.
    """

    def __init__(
        self,
        direct: socket.socket,
        received: Callable[[bytes], None],
        dispatch: Callable[[], None],
        ended: Callable[[Exception | None], None],
    ) -> None:
        self.reports = ReportSender(direct)
        self._direct = direct
        self._received = received
        self._dispatch = dispatch
        self._ended = ended
        self._thread = Thread(target=self._run, name="rocketd-replica", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Have the thread end after the data that it handles now. Any thread."""
        self.reports.shut_down()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            self._read()
        except Exception as error:
            failure = error
        self.reports.close()
        self._ended(failure)

    def _read(self) -> None:
        readable = select.poll()
        readable.register(self._direct, select.POLLIN)
        due = 0.0
        try:
            while True:
                if not due:
                    readable.poll()
                elif (left := due - monotonic()) <= 0 or not readable.poll(left * 1000):
                    due = 0.0
                    self._dispatch()
                    continue
                try:
                    data = self._direct.recv(READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError:
                    return
                if not data:
                    return
                self._received(data)
                due = due or monotonic() + DISPATCH_SECONDS
        finally:
            self._dispatch()
