"""One accepted connection: bytes in to frames, frames to the dispatcher, answers out.

Answers to Apache's NettyServerHandler and channel. Reading and all Twisted calls belong to the reactor thread. ``write``
may be called from any thread: when nothing is pending it sends on the socket at once, under a lock and on a descriptor of
its own, so that a closing connection can never hand that number to another; what the socket does not take is written by
the reactor.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from twisted.internet import interfaces
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.log_throttle import ThrottledLog
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import FrameError
from rocketd.remoting.frame import Frame, FrameDecoder
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.peer import peer_of

OUTBOUND_LIMIT = 8 << 20
"""Bytes of unsent answers above which no more requests are read from a connection."""

_CHUNK = 1 << 18


@implementer(IConnection, interfaces.IPullProducer)
class Connection(Protocol):
    """A peer that sends requests and, where it is a client, takes ours."""

    transport: Any

    def __init__(
        self,
        reactor: Any,
        dispatch: Callable[["Connection", list[Frame]], None],
        on_lost: Callable[["Connection"], None],
        max_frame_length: int,
        log: ThrottledLog | None = None,
    ) -> None:
        self._log = log or ThrottledLog(Logger())
        self.address = "unknown"
        self.host = b""
        self.closed = False
        self.fault = ""
        """Why the connection failed, if it did."""
        self.last_active = reactor.seconds()
        self._reactor = reactor
        self._dispatch = dispatch
        self._on_lost = on_lost
        self._decoder = FrameDecoder(max_frame_length)
        self._lock = Lock()
        self._direct: socket.socket | None = None
        self._outbound: deque[bytes | memoryview] = deque()
        self._outbound_bytes = 0
        self._flushing = False
        self._pauses: set[object] = set()

    # ------------------------------------------------------------ reactor thread: reading

    def connectionMade(self) -> None:
        """Learn the peer's address and take a descriptor for direct writes."""
        self.address, self.host = peer_of(self.transport.getPeer())
        if interfaces.ITCPTransport.providedBy(self.transport) and not interfaces.ISSLTransport.providedBy(
            self.transport
        ):
            self.transport.setTcpNoDelay(True)
            plain = getattr(self.transport, "socket", None)
            if plain is not None:
                try:
                    self._direct = plain.dup()
                except OSError:
                    pass  # no descriptor left: the reactor writes everything

    def dataReceived(self, data: bytes) -> None:
        """Cut frames and hand them on. Bytes that are no frame close the connection with one log line."""
        self.last_active = self._reactor.seconds()
        try:
            frames = self._decoder.feed(data)
            if frames:
                self._dispatch(self, frames)
        except FrameError as error:
            self._log.warn("bad frame", "{address}: closing: {error}", address=self.address, error=error)
            self.fault = str(error)
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Drop what is unsent and tell the server."""
        if not self.fault and not reason.check(ConnectionDone, ConnectionAborted):
            self.fault = reason.getErrorMessage()
        with self._lock:
            self.closed = True
            self._outbound.clear()
            self._outbound_bytes = 0
            if self._direct is not None:
                self._direct.close()
                self._direct = None
        self._on_lost(self)

    def pause_reading(self, reason: object) -> None:
        """Read no more until every reason is taken back."""
        if not self._pauses and not self.closed:
            self.transport.pauseProducing()
        self._pauses.add(reason)

    def resume_reading(self, reason: object) -> None:
        """Take a reason back."""
        self._pauses.discard(reason)
        if not self._pauses and not self.closed:
            self.transport.resumeProducing()

    # ------------------------------------------------------------ any thread: writing

    def send(self, command: RemotingCommand) -> None:
        """Write one command."""
        self.write((command.encode(),))

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write buffers one after the other. Bytes for a closed connection are dropped."""
        with self._lock:
            if self.closed:
                return
            if self._direct is not None and not self._flushing:
                buffers = self._send_now(self._direct, buffers)
                if not buffers:
                    return
            before = self._outbound_bytes
            self._outbound.extend(buffers)
            self._outbound_bytes += sum(map(len, buffers))
            if not self._flushing:
                self._flushing = True
                then = self._start_flushing
            elif before <= OUTBOUND_LIMIT < self._outbound_bytes:
                then = self._pause_if_behind
            else:
                return
        self._reactor.callFromThread(then)

    def _send_now(self, direct: socket.socket, buffers: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        """Send what the socket takes, and return the rest."""
        try:
            sent = direct.send(buffers[0]) if len(buffers) == 1 else direct.sendmsg(buffers[:1024])
        except BlockingIOError:
            return buffers
        except OSError:
            return ()  # the peer is gone; the reactor finds out and closes
        for index, buffer in enumerate(buffers):
            if sent < len(buffer):
                return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
            sent -= len(buffer)
        return ()

    def close(self) -> None:
        """Write what is pending, then close. Any thread."""
        self._reactor.callFromThread(self._close)

    def abort(self) -> None:
        """Close at once, unsent bytes or not. Reactor thread."""
        if not self.closed and self.transport is not None:
            self.transport.abortConnection()

    # ------------------------------------------------------------ reactor thread: the unsent rest

    def _close(self) -> None:
        if not self.closed:
            self.transport.loseConnection()

    def _start_flushing(self) -> None:
        if not self.closed:
            self._pause_if_behind()
            self.transport.registerProducer(self, False)

    def _pause_if_behind(self) -> None:
        # What is unsent shrinks in this thread only, and reading resumes when nothing is left.
        if self._outbound_bytes > OUTBOUND_LIMIT:
            self.pause_reading(self)

    def resumeProducing(self) -> None:
        """Called by the transport whenever it has written all that it had: the peer reads."""
        self.last_active = self._reactor.seconds()
        with self._lock:
            chunk: list[bytes | memoryview] = []
            size = 0
            while self._outbound and size < _CHUNK:
                chunk.append(self._outbound.popleft())
                size += len(chunk[-1])
            self._outbound_bytes -= size
            if not chunk:
                self._flushing = False
        if chunk:
            self.transport.write(b"".join(chunk))
        else:
            self.transport.unregisterProducer()
            self.resume_reading(self)

    def stopProducing(self) -> None:
        """The transport closes: connectionLost cleans up."""
