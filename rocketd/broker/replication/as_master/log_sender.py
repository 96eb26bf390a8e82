"""The log as frames for a slave, and their way to the slave's socket without the reactor.

A message that waits for a slave changes threads less often if the thread that appends it also sends it. This is safe
for the same reasons as the direct answers of docs/decisions/0004: a duplicate of the descriptor, one lock, and a socket
that does not block.
"""

import socket
from threading import Lock

from twisted.internet.interfaces import ISSLTransport, ITCPTransport

from rocketd.store.interfaces import IMessageStore
from rocketd.store.log.transfer import encode_header

FRAMES_AT_ONCE = 8
"""The greatest number of frames given to the socket by one call."""
RECENT_BYTES = 1 << 20
"""The distance from the end of the log within which its bytes are in memory, so that the storage thread may send them."""

Buffer = bytes | memoryview


def duplicate_socket(transport: object) -> socket.socket | None:
    """Return a duplicate of the socket of a plain TCP connection, to be closed by the caller.

    Return None for any other connection, for example with TLS, and if no descriptor is free.
    """
    plain = getattr(transport, "socket", None)
    if plain is None or not ITCPTransport.providedBy(transport) or ISSLTransport.providedBy(transport):
        return None
    try:
        duplicate: socket.socket = plain.dup()
    except OSError:
        return None
    return duplicate


def send_now(direct: socket.socket, buffers: list[Buffer]) -> list[Buffer]:
    """Send as much as the socket takes, and return the rest. The rest is empty if the peer is gone."""
    try:
        sent = direct.sendmsg(buffers)
    except BlockingIOError:
        return buffers
    except OSError:
        return []  # the reactor finds out and closes
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []


class LogFrames:
    """Cuts the log into frames of at most ``batch_size`` bytes. ``next_offset`` is -1 until the start is known.

    ``expired`` tells that the log no longer has the next bytes.
    """

    def __init__(self, store: IMessageStore, batch_size: int) -> None:
        self._store = store
        self._batch_size = batch_size
        self.next_offset = -1
        self.expired = False

    @property
    def end(self) -> int:
        """The end of the log."""
        return self._store.max_physical_offset()

    def take(self, count: int, end: int) -> list[Buffer]:
        """Return the buffers of the next frames, at most this number; none at the end of the log."""
        buffers: list[Buffer] = []
        while count > 0 and self.next_offset < end:
            data = self._store.log_data_from(self.next_offset)
            if data is None or not len(data):
                self.expired = self.next_offset < self._store.min_physical_offset()
                break
            body = data[: self._batch_size]
            buffers += (encode_header(self.next_offset, len(body)), body)
            self.next_offset += len(body)
            count -= 1
        return buffers


class LogSender:
    """Sends frames of the log on a socket. ``close`` closes the socket.

    The reactor thread calls ``send`` and ``send_heartbeat``, the thread that appends calls ``send_recent``. The
    buffers that the socket does not accept are views of the log, or headers. They are sent before all later frames.
    """

    def __init__(self, direct: socket.socket, frames: LogFrames) -> None:
        self._direct: socket.socket | None = direct
        self._frames = frames
        self._lock = Lock()
        self._unsent: list[Buffer] = []

    @property
    def has_work(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._unsent) or self._frames.next_offset < self._frames.end

    def send(self) -> bool:
        """Send the next frames. Return whether everything is sent now."""
        with self._lock:
            return self._send(self._frames.end)

    def send_recent(self) -> bool:
        """Do the same without waiting: for another thread that sends, or for a disk.

        The result is also False if that is not possible.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            end = self._frames.end
            return end - self._frames.next_offset <= RECENT_BYTES and self._send(end)
        finally:
            self._lock.release()

    def send_heartbeat(self) -> bool:
        """Send a frame without data, unless other bytes wait for the socket. Return whether everything is sent now."""
        with self._lock:
            if not self._unsent and self._direct is not None:
                self._unsent = send_now(self._direct, [encode_header(self._frames.next_offset, 0)])
            return not self._unsent

    def _send(self, end: int) -> bool:
        buffers = self._unsent or self._frames.take(FRAMES_AT_ONCE, end)
        if not buffers or self._direct is None:
            return True
        self._unsent = send_now(self._direct, buffers)
        return not self._unsent and self._frames.next_offset >= end

    def close(self) -> None:
        """Close the socket. Nothing is sent any more."""
        with self._lock:
            self._unsent = []
            if self._direct is not None:
                self._direct.close()
                self._direct = None
