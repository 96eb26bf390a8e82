"""One connection that we made: frames out, answers and the peer's own requests in.

Answers to Apache's NettyClientHandler and channel. All of it belongs to the reactor thread, but for ``send`` and
``close``, which any thread may call.
"""

import socket
from threading import get_ident
from typing import Any, Protocol

from twisted.internet import interfaces
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import FrameError, RemotingConnectError
from rocketd.remoting.frame import FrameDecoder
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.peer import peer_of

CLOSE_SECONDS = 2.0
"""How long a connection that closes may take to write what is pending."""


class ConnectionOwner(Protocol):
    """Who is told what happens on a connection."""

    def command_received(self, connection: "ClientConnection", command: RemotingCommand) -> None:
        """Handle a response or a request of the peer."""

    def connection_lost(self, connection: "ClientConnection") -> None:
        """Forget a closed connection."""


@implementer(IConnection, interfaces.IHandshakeListener, interfaces.IPushProducer)
class ClientConnection(TwistedProtocol):
    """A connection to ``address``, as it was dialled: ``host:port``.

    ``ready`` fires with the connection when commands may be sent: when it is made, over TLS when the server is believed.
    It fails with RemotingConnectError when that does not happen.
    """

    _log = Logger()

    def __init__(self, reactor: Any, owner: ConnectionOwner, address: str, max_frame_length: int, secure: bool) -> None:
        self.address = address
        self.host = b""
        self.closed = True
        self.last_active = reactor.seconds()
        self.received = 0
        """How often bytes have come."""
        self.fault: str | None = None
        """What came that cannot be understood, for which it was closed."""
        self.ready: Deferred[ClientConnection] = Deferred(lambda _: self.abort())
        self._reactor = reactor
        self._owner = owner
        self._decoder = FrameDecoder(max_frame_length)
        self._secure = secure
        self._thread = 0
        self._paused = False
        self._draining = False
        self._socket: socket.socket | None = None
        self._closing = False
        self._aborting: Any = None
        self._unwritten: list[Deferred[None]] = []

    # ------------------------------------------------------------ the transport's calls

    def connectionMade(self) -> None:
        """Set the socket up; without TLS the connection is ready."""
        transport: Any = self.transport
        self._thread = get_ident()
        self.host = peer_of(transport.getPeer()).host
        transport.setTcpNoDelay(True)
        transport.registerProducer(self, True)
        self.closed = False
        if not self._secure:
            self._socket = getattr(transport, "socket", None)
            self.ready.callback(self)

    def handshakeCompleted(self) -> None:
        """The server is believed: the connection is ready."""
        if not self.ready.called:
            self.ready.callback(self)

    def dataReceived(self, data: bytes) -> None:
        """Cut commands and hand them on. Bytes that are no frame close the connection with one log line."""
        self.last_active = self._reactor.seconds()
        self.received += 1
        try:
            for frame in self._decoder.feed(data):
                self._owner.command_received(self, RemotingCommand.decode(frame))
        except FrameError as error:
            http = data.startswith(b"HTTP/")
            self.fault = "what answers there is an HTTP server" if http else f"what came is no frame: {error}"
            self._log.warn("{address}: closing: {fault}", address=self.address, fault=self.fault)
            self.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell everybody who waits."""
        self.closed = True
        self._socket = None
        if self._aborting is not None and self._aborting.active():
            self._aborting.cancel()
        self.resumeProducing()
        if not self.ready.called:
            self.ready.errback(RemotingConnectError(self.address, _why(reason)))
        self._owner.connection_lost(self)

    def pauseProducing(self) -> None:
        """The transport holds much that the peer does not take."""
        self._paused = True

    def resumeProducing(self) -> None:
        """What was sent is on its way."""
        if self._draining:
            self._draining = False
            self._register(streaming=True)
        self._paused = False
        unwritten, self._unwritten = self._unwritten, []
        for written in unwritten:
            written.callback(None)

    def stopProducing(self) -> None:
        """The transport closes: connectionLost follows."""

    # ------------------------------------------------------------ any thread

    def send(self, command: RemotingCommand) -> Any:
        """Write a command; it is dropped when the connection is gone.

        In the reactor thread, while the peer takes no more, returns a Deferred that fires when it does again.
        """
        data = command.encode()
        if get_ident() != self._thread:
            self._reactor.callFromThread(self._write, data)
            return None
        return self._write(data)

    def close(self) -> None:
        """Write what is pending, then close: after CLOSE_SECONDS at the latest, whether the peer takes it or not."""
        if get_ident() != self._thread:
            self._reactor.callFromThread(self._close)
        else:
            self._close()

    # ------------------------------------------------------------ reactor thread

    def abort(self) -> None:
        """Close at once, unsent bytes or not."""
        transport: Any = self.transport
        if transport is not None and not self.closed:
            transport.abortConnection()

    def _write(self, data: bytes) -> Deferred[None] | None:
        if self.closed:
            return None
        self.last_active = self._reactor.seconds()
        rest = self._send_now(data)
        if rest:
            transport: Any = self.transport
            transport.write(rest)
            if self._socket is not None and not self._draining:
                self._drain()
        if not self._paused:
            return None
        written: Deferred[None] = Deferred()
        self._unwritten.append(written)
        return written

    def _send_now(self, data: bytes) -> bytes:
        """Send what the socket takes, which is a turn of the reactor less than to let the transport; return the rest."""
        if self._socket is None or self._draining:
            return data
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        except OSError:
            return b""  # the peer is gone; the reactor finds out and closes
        return data[sent:]

    def _drain(self) -> None:
        """Let the transport write, until it tells that it has written all."""
        self._register(streaming=False)  # which asks for more at once
        self._draining = self._paused = True

    def _register(self, *, streaming: bool) -> None:
        transport: Any = self.transport
        if not self.closed and not self._closing:
            transport.unregisterProducer()
            transport.registerProducer(self, streaming)

    def _close(self) -> None:
        if not self.closed and not self._closing:
            self._closing = True
            transport: Any = self.transport
            transport.unregisterProducer()
            self._aborting = self._reactor.callLater(CLOSE_SECONDS, self.abort)
            transport.loseConnection()


def _why(reason: Failure) -> str:
    """Say in words why a connection ended before it was ready."""
    error = reason.value
    if isinstance(error, Exception) and error.args and isinstance(error.args[0], list):
        return ", ".join(str(part[-1]) for part in error.args[0])  # how OpenSSL packs its errors
    return f"{type(error).__name__}: {error}" if type(error).__module__.startswith("service_identity") else str(error)
