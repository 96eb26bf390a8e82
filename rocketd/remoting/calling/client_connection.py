"""One outgoing connection: frames out, answers and the peer's requests in.

Counterpart: `NettyClientHandler` and its channel (Apache). Everything belongs to the reactor thread, except ``send``
and ``close``: they may be called by any thread.
"""

import socket
from threading import get_ident
from typing import Any, Protocol

from twisted.internet import interfaces
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.event_loop.reactor import IReactor
from rocketd.remoting.errors import FrameError, RemotingConnectError
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.peer import peer_of
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder

MAX_JOINED = 64 << 10
"""Bytes of joined commands from which they are written before the iteration of the reactor ends."""

CLOSE_SECONDS = 2.0
"""Time in which a closing connection may write pending bytes."""


class ConnectionOwner(Protocol):
    """Gets the events of a connection."""

    def command_received(self, connection: "ClientConnection", command: RemotingCommand) -> None:
        """Handle a response or a request of the peer."""

    def connection_lost(self, connection: "ClientConnection") -> None:
        """Drop a closed connection."""


@implementer(IConnection, interfaces.IHandshakeListener, interfaces.IPushProducer)
class ClientConnection(TwistedProtocol):
    """A connection to ``address``, as dialled: ``host:port``.

    ``ready`` fires with the connection when commands may be sent: after connecting, or with TLS after the server is
    verified. Otherwise it fails with RemotingConnectError.
    """

    _log = Logger()

    def __init__(
        self, reactor: IReactor, owner: ConnectionOwner, address: str, max_frame_length: int, secure: bool
    ) -> None:
        self.address = address
        self.host = b""
        self.closed = True
        self.last_active = reactor.seconds()
        self.received = 0
        """Number of times bytes were received."""
        self.fault: str | None = None
        """Description of the unreadable bytes or the failed handshake for which the connection was closed."""
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
        self._aborting: IDelayedCall | None = None
        self._unwritten: list[Deferred[None]] = []
        self._wrote = False
        """Whether a command was written since bytes were received last."""
        self._joined: list[bytes] = []
        self._joined_size = 0
        self._joining: IDelayedCall | None = None

    # ------------------------------------------------------------ the transport's calls

    def connectionMade(self) -> None:
        """Set up the socket. Without TLS the connection is ready."""
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
        """The TLS peer is verified; the connection is ready."""
        if not self.ready.called:
            self.ready.callback(self)

    def dataReceived(self, data: bytes) -> None:
        """Cut commands and pass them on. Bytes that are not a frame close the connection with one log line."""
        self.last_active = self._reactor.seconds()
        self.received += 1
        self._wrote = False
        try:
            for frame in self._decoder.feed(data):
                self._owner.command_received(self, RemotingCommand.decode(frame))
        except FrameError as error:
            http = data.startswith(b"HTTP/")
            self.fault = "an HTTP server answers there" if http else f"the received bytes are not a frame: {error}"
            self._log.warn("{address}: closing: {fault}", address=self.address, fault=self.fault)
            self.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify all waiters."""
        self.closed = True
        self._socket = None
        self._take_joined()
        if self._aborting is not None and self._aborting.active():
            self._aborting.cancel()
        self.resumeProducing()
        if not self.ready.called:
            self.fault = _why(reason)
            self.ready.errback(RemotingConnectError(self.address, self.fault))
        self._owner.connection_lost(self)

    def pauseProducing(self) -> None:
        """The transport holds much unsent data."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The transport has sent its data."""
        if self._draining:
            self._draining = False
            self._register(streaming=True)
        self._paused = False
        unwritten, self._unwritten = self._unwritten, []
        for written in unwritten:
            written.callback(None)

    def stopProducing(self) -> None:
        """The transport closes. connectionLost follows."""

    # ------------------------------------------------------------ any thread

    def send(self, command: RemotingCommand) -> Any:
        """Write a command. It is dropped if the connection is gone.

        On the reactor thread, while the peer does not read, return a Deferred that fires when it reads again.
        """
        data = command.encode()
        if get_ident() != self._thread:
            self._reactor.callFromThread(self._write, data)
            return None
        return self._write(data)

    def close(self) -> None:
        """Write pending bytes, then close, after CLOSE_SECONDS at the latest."""
        if get_ident() != self._thread:
            self._reactor.callFromThread(self._close)
        else:
            self._close()

    # ------------------------------------------------------------ reactor thread

    def abort(self) -> None:
        """Close at once and drop unsent bytes."""
        transport: Any = self.transport
        if transport is not None and not self.closed:
            transport.abortConnection()

    def _write(self, data: bytes) -> Deferred[None] | None:
        if self.closed:
            return None
        self.last_active = self._reactor.seconds()
        if self._joined:
            self._joined.append(data)
            self._joined_size += len(data)
            return self._write_joined() if self._joined_size > MAX_JOINED else None
        if self._wrote and self._may_join() and len(data) < MAX_JOINED:
            self._joined.append(data)
            self._joined_size = len(data)
            self._joining = self._reactor.callLater(0, self._write_joined)
            return None
        self._wrote = True
        return self._write_now(data)

    def _may_join(self) -> bool:
        return self._socket is not None and not self._paused and not self._closing

    def _write_joined(self) -> Deferred[None] | None:
        """Write the commands of this iteration of the reactor at once, except the first, which was written when it came.

        An answer completes one request, and a clump of answers many, whose callers send the next ones in one iteration.
        """
        data = self._take_joined()
        return None if self.closed or not data else self._write_now(data)

    def _take_joined(self) -> bytes:
        data = b"".join(self._joined)
        self._joined.clear()
        joining, self._joining = self._joining, None
        if joining is not None and joining.active():
            joining.cancel()
        return data

    def _write_now(self, data: bytes) -> Deferred[None] | None:
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
        """Send as much as the socket takes, and return the rest. It saves one iteration of the reactor."""
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
        """Let the transport write until it reports that everything is written."""
        self._register(streaming=False)  # which asks for more at once
        self._draining = self._paused = True

    def _register(self, *, streaming: bool) -> None:
        transport: Any = self.transport
        if not self.closed and not self._closing:
            transport.unregisterProducer()
            transport.registerProducer(self, streaming)

    def _close(self) -> None:
        if not self.closed and not self._closing:
            self._write_joined()
            self._closing = True
            transport: Any = self.transport
            transport.unregisterProducer()
            self._aborting = self._reactor.callLater(CLOSE_SECONDS, self.abort)
            transport.loseConnection()


def _why(reason: Failure) -> str:
    """Return in words why a connection ended before it was ready."""
    error = reason.value
    if isinstance(error, Exception) and error.args and isinstance(error.args[0], list):
        return ", ".join(str(part[-1]) for part in error.args[0])  # how OpenSSL packs its errors
    return f"{type(error).__name__}: {error}" if type(error).__module__.startswith("service_identity") else str(error)
