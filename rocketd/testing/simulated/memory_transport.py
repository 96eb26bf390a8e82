"""Both ends of a connection within a process: transports made of two pipes between two reactors.

Protocols see the behaviour of TCP: bytes come in pieces, a slow reader blocks the writer, a close follows the written
data, an abort does not.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, cast

from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IReactorFDSet, ITCPTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.event_loop.reactor import IReactor

WINDOW = 1 << 18
"""Greatest number of bytes in transit. The rest stays with the writer until the reader has taken some."""
PIECE = 1 << 16
"""Greatest number of bytes passed to a protocol at once."""


class Pipe:
    """Bytes in transit in one direction. Any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pieces: deque[memoryview] = deque()
        self._size = 0
        self._ended: type[Exception] | None = None
        self._broken = False
        self._starved = False
        self.wake_reader: Callable[[], None] | None = None
        self.wake_writer: Callable[[], None] | None = None

    def put(self, data: bytes | memoryview) -> int:
        """Take as many bytes as fit. Return their number, or -1 if the reader is gone."""
        with self._lock:
            if self._broken or self._ended is not None:
                return -1
            taken = min(len(data), WINDOW - self._size)
            self._starved = taken < len(data)
            if not taken:
                return 0
            self._pieces.append(memoryview(bytes(data[:taken])))
            self._size += taken
        self._wake(self.wake_reader)
        return taken

    def take(self) -> bytes:
        """Return some bytes, none if there are none."""
        with self._lock:
            pieces: list[memoryview] = []
            size = 0
            while self._pieces and size < PIECE:
                piece = self._pieces.popleft()
                room = PIECE - size
                if len(piece) > room:
                    self._pieces.appendleft(piece[room:])
                    piece = piece[:room]
                pieces.append(piece)
                size += len(piece)
            self._size -= size
            starved = self._starved and bool(size)
            if starved:
                self._starved = False
        if starved:
            self._wake(self.wake_writer)
        return b"".join(pieces)

    def end(self, reason: type[Exception]) -> None:
        """End the stream. Unless the reason is ConnectionDone, bytes in transit are lost."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = reason
            if reason is not ConnectionDone:
                self._pieces.clear()
                self._size = 0
        self._wake(self.wake_reader)

    def ended(self) -> type[Exception] | None:
        """Return why the stream ended, None until all bytes in transit are read."""
        with self._lock:
            return None if self._pieces else self._ended

    @property
    def waits(self) -> bool:
        """Whether there is something for a reader."""
        return bool(self._pieces) or self._ended is not None

    def break_off(self) -> None:
        """Mark the reader as gone."""
        with self._lock:
            self._broken = True
            self._pieces.clear()
            self._size = 0
        self._wake(self.wake_writer)

    @staticmethod
    def _wake(waker: Callable[[], None] | None) -> None:
        if waker is not None:
            waker()


@implementer(ITCPTransport)
class MemoryTransport(FileDescriptor):
    """One end of a connection. Belongs to the thread of its reactor."""

    reactor: Any

    def __init__(self, reactor: IReactor, inbound: Pipe, outbound: Pipe, host: IPv4Address, peer: IPv4Address) -> None:
        super().__init__(cast(IReactorFDSet, reactor))
        self.protocol: Any = None
        self.on_lost: Callable[[Failure], None] = lambda _: None
        self._inbound = inbound
        self._outbound = outbound
        self._host = host
        self._peer = peer
        self._reads = self._writes = False
        self._read_is_coming = self._write_is_coming = False
        self._aborting = self._held_up = False

    def begin(self, protocol: Any) -> None:
        """Connect a protocol."""
        self.protocol = protocol
        self.connected = 1
        self._inbound.wake_reader = lambda: self.reactor.callFromThread(self._look)
        self._outbound.wake_writer = lambda: self.reactor.callFromThread(self._write_on)
        protocol.makeConnection(self)
        self.startReading()

    # ------------------------------------------------------------ reading

    def startReading(self) -> None:  # noqa: N802
        """Pass received bytes to the protocol."""
        self._reads = True
        self._look()

    def stopReading(self) -> None:  # noqa: N802
        """Leave received bytes in transit."""
        self._reads = False

    def _look(self) -> None:
        """Schedule a read in a separate iteration of the reactor."""
        if self._reads and not self._read_is_coming and self._inbound.waits:
            self._read_is_coming = True
            self.reactor.callFromThread(self._read)

    def _read(self) -> None:
        self._read_is_coming = False
        if not self._reads or self.disconnected or self._aborting:
            return
        data = self._inbound.take()
        if data:
            self.protocol.dataReceived(data)
            self._look()
            return
        reason = self._inbound.ended()
        if reason is not None:
            self.connectionLost(Failure(reason()))

    # ------------------------------------------------------------ writing

    def startWriting(self) -> None:  # noqa: N802
        """Schedule a write in a separate iteration of the reactor."""
        self._writes = True
        if not self._write_is_coming:
            self._write_is_coming = True
            self.reactor.callFromThread(self._write)

    def stopWriting(self) -> None:  # noqa: N802
        """Stop writing: there is nothing to write."""
        self._writes = False

    def _write_on(self) -> None:
        if self._writes:
            self.startWriting()

    def _write(self) -> None:
        self._write_is_coming = False
        if not self._writes or self.disconnected or self._aborting:
            return
        self._held_up = False
        ended = self.doWrite()
        if ended is not None:
            self.connectionLost(Failure(ended))
        elif self._writes and not self._held_up:
            self.startWriting()

    def writeSomeData(self, data: bytes) -> int | BaseException:  # noqa: N802
        """Send bytes."""
        taken = self._outbound.put(data)
        self._held_up = taken < len(data)
        return ConnectionLost() if taken < 0 else taken

    # ------------------------------------------------------------ ends

    def abortConnection(self) -> None:
        """Close at once. The other end loses the bytes in transit."""
        if self.disconnected or self._aborting:
            return
        self._aborting = True
        self.stopReading()
        self.stopWriting()
        self._outbound.end(ConnectionLost)
        self.reactor.callFromThread(self.connectionLost, Failure(ConnectionAborted()))

    def connectionLost(self, reason: Failure) -> None:
        """End the connection."""
        if self.disconnected:
            return
        super().connectionLost(reason)
        self._outbound.end(ConnectionDone)
        self._inbound.break_off()
        # The pipes reference the other end, whose thread may be gone.
        self._inbound.wake_reader = self._outbound.wake_writer = None
        protocol, self.protocol = self.protocol, None
        protocol.connectionLost(reason)
        self.on_lost(reason)

    # ------------------------------------------------------------ as of TCP

    def getHost(self) -> IPv4Address:  # noqa: N802
        """Return this end's address."""
        return self._host

    def getPeer(self) -> IPv4Address:  # noqa: N802
        """Return the other end's address."""
        return self._peer

    def getTcpNoDelay(self) -> bool:  # noqa: N802
        """Return True: bytes are never delayed."""
        return True

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing: bytes are never delayed."""

    def getTcpKeepAlive(self) -> bool:  # noqa: N802
        """Return False: a connection in memory needs no keep-alive."""
        return False

    def setTcpKeepAlive(self, enabled: bool) -> None:  # noqa: N802
        """Do nothing: a connection in memory needs no keep-alive."""
