"""Both ends of a connection within a process: transports that are two pipes between two reactors.

No counterpart in Apache. Protocols see what they see of TCP: bytes come in pieces, a slow reader holds the writer up, a
close comes behind what was written, an abort at once.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import ITCPTransport
from twisted.python.failure import Failure
from zope.interface import implementer

WINDOW = 1 << 18
"""Bytes that are on their way at most: more stays with the writer until the reader has taken some."""
PIECE = 1 << 16
"""Bytes that a protocol is given at once, at most."""


class Pipe:
    """Bytes on their way in one direction. Any thread."""

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
        """Take bytes as far as there is room; returns how many, -1 when nobody will read them."""
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
        """Return some bytes, none when none are there."""
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
        """Nothing more comes; with any reason but ConnectionDone what is on its way is lost."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = reason
            if reason is not ConnectionDone:
                self._pieces.clear()
                self._size = 0
        self._wake(self.wake_reader)

    def ended(self) -> type[Exception] | None:
        """Why nothing more comes, once all that was on its way is taken."""
        with self._lock:
            return None if self._pieces else self._ended

    @property
    def waits(self) -> bool:
        """Whether a reader has something to look at."""
        return bool(self._pieces) or self._ended is not None

    def break_off(self) -> None:
        """Nobody reads any more."""
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
    """One end of a connection. It belongs to the thread of its reactor."""

    reactor: Any

    def __init__(self, reactor: Any, inbound: Pipe, outbound: Pipe, host: IPv4Address, peer: IPv4Address) -> None:
        super().__init__(reactor)
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
        """Give the protocol what comes."""
        self._reads = True
        self._look()

    def stopReading(self) -> None:  # noqa: N802
        """Leave on its way what comes."""
        self._reads = False

    def _look(self) -> None:
        """Read in a turn of the reactor of its own."""
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
        """Write in a turn of the reactor of its own."""
        self._writes = True
        if not self._write_is_coming:
            self._write_is_coming = True
            self.reactor.callFromThread(self._write)

    def stopWriting(self) -> None:  # noqa: N802
        """There is nothing to write."""
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
        """Put bytes on their way."""
        taken = self._outbound.put(data)
        self._held_up = taken < len(data)
        return ConnectionLost() if taken < 0 else taken

    # ------------------------------------------------------------ ends

    def abortConnection(self) -> None:
        """Close at once; the other end loses what is on its way."""
        if self.disconnected or self._aborting:
            return
        self._aborting = True
        self.stopReading()
        self.stopWriting()
        self._outbound.end(ConnectionLost)
        self.reactor.callFromThread(self.connectionLost, Failure(ConnectionAborted()))

    def connectionLost(self, reason: Failure) -> None:
        """It is over."""
        if self.disconnected:
            return
        super().connectionLost(reason)
        self._outbound.end(ConnectionDone)
        self._inbound.break_off()
        # The pipes keep the other end, which may live in a thread that is gone.
        self._inbound.wake_reader = self._outbound.wake_writer = None
        protocol, self.protocol = self.protocol, None
        protocol.connectionLost(reason)
        self.on_lost(reason)

    # ------------------------------------------------------------ as of TCP

    def getHost(self) -> IPv4Address:  # noqa: N802
        """This end's address."""
        return self._host

    def getPeer(self) -> IPv4Address:  # noqa: N802
        """The other end's address."""
        return self._peer

    def getTcpNoDelay(self) -> bool:  # noqa: N802
        """Nothing is delayed."""
        return True

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Nothing is delayed."""

    def getTcpKeepAlive(self) -> bool:  # noqa: N802
        """Nothing has to be kept alive."""
        return False

    def setTcpKeepAlive(self, enabled: bool) -> None:  # noqa: N802
        """Nothing has to be kept alive."""
