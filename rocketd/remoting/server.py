"""The listening side: accepts connections, watches them, and stops in the right order.

Answers to Apache's NettyRemotingServer. Plain and TLS share the port (see ``tls``).
"""

import errno
import socket
from collections.abc import Callable
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet import defer, threads
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.internet.protocol import Factory

from rocketd.common.clocked_loop import ClockedLoop
from rocketd.common.memory_return import MemoryReturn
from rocketd.remoting.admission import Admission, only_from
from rocketd.remoting.connection import Connection, ConnectionLimits
from rocketd.remoting.connection_events import ConnectionEvents, EventKind
from rocketd.remoting.dispatch import Dispatcher
from rocketd.remoting.frame import MAX_FRAME_LENGTH
from rocketd.remoting.frame_budget import FrameBudget
from rocketd.remoting.peer import peer_of
from rocketd.remoting.settings import ServerLimits
from rocketd.remoting.socket_buffers import SocketBuffers, WriteMarks
from rocketd.remoting.unsent_budget import UnsentBudget

NO_SIZES = SocketBuffers()
NO_MARKS = WriteMarks()
_IDLE_SCAN_SECONDS = 5.0
_DRAIN_SECONDS = 5.0
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class ConnectionListener(Protocol):
    """Who wants to know that a connection is gone."""

    def connection_lost(self, connection: Connection) -> None:
        """Forget a closed connection. Reactor thread."""


class ListenError(Exception):
    """The port cannot be listened on; the text says which and why, and what to do. ``cause`` is all but the last.

    ``setting`` is the one that says which port.
    """

    def __init__(self, port: int, error: CannotListenError, setting: str = "listenPort") -> None:
        in_use = getattr(error.socketError, "errno", None) == errno.EADDRINUSE
        reason = getattr(error.socketError, "strerror", None) or str(error.socketError)
        self.cause = f"cannot listen on port {port}: {'it is in use by another process' if in_use else reason}"
        self._remedy = "stop that process or set another {}" if in_use else "set another {}"
        super().__init__(self.advise(setting))

    def advise(self, setting: str) -> str:
        """Say the cause and what to do, where the port is set by another name than listenPort."""
        return f"{self.cause}; {self._remedy.format(setting)}"


class _ConnectionFactory(Factory):
    noisy = False

    def __init__(self, server: "RemotingServer") -> None:
        self._server = server

    def buildProtocol(self, addr: IAddress | None) -> Connection | None:
        host = addr.host if isinstance(addr, IPv4Address | IPv6Address) else "127.0.0.1"
        key = self._server.admission.admit(host)
        return None if key is None else self._server.make_connection(key, addr)


class RemotingServer(Service):
    """One listening port with its connections and dispatcher. All methods belong to the reactor thread.

    ``port`` 0 takes a free port; after start ``port`` is the real one. It is that of all addresses, IPv6 and IPv4, unless
    ``interface`` names one; a system without IPv6 has those of IPv4. ``wrap`` may put TLS detection around the
    factory of connections. A connection on which nothing was read for ``idle_seconds`` is closed. ``admission`` decides
    which connections are kept.
    """

    def __init__(
        self,
        reactor: Any,
        dispatcher: Dispatcher,
        *,
        port: int,
        interface: str | None = None,
        backlog: int = 1024,
        buffers: SocketBuffers = NO_SIZES,
        marks: WriteMarks = NO_MARKS,
        idle_seconds: float = 120.0,
        max_frame_length: int = MAX_FRAME_LENGTH,
        wrap: Callable[[IProtocolFactory], IProtocolFactory] | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.port = port
        limits = limits or ServerLimits()
        self.admission = Admission(
            dispatcher.limits, limits.server_max_connections, limits.server_max_connections_per_address
        )
        self.admission.rules.append(only_from(limits.server_allowed_addresses))
        self.connections: dict[Connection, str | None] = {}
        """The open ones, with what ``admission`` counts each of them by."""
        self.listeners: list[ConnectionListener] = []
        self.events = ConnectionEvents("connection-events")
        """For listeners of third parties."""
        self._reactor = reactor
        self._interface = interface
        self._backlog = backlog
        self._buffers = buffers
        self._idle_seconds = idle_seconds
        log = dispatcher.limits
        self.frames = FrameBudget(
            log,
            limits.server_incomplete_frames_max_bytes,
            limits.server_frame_timeout_millis / 1000,
            limits.server_frame_min_bytes_per_second,
        )
        self.unsent = UnsentBudget(log, limits.server_unsent_max_bytes_in_all, lambda: list(self.connections))
        self._handshake_seconds = limits.server_handshake_timeout_millis / 1000
        self._memory = MemoryReturn(limits.memory_return_threshold_bytes, lambda trim: reactor.callInThread(trim))
        self._connection_limits = ConnectionLimits(
            max_frame_length,
            limits.server_max_header_bytes,
            marks.high or limits.server_unsent_max_bytes_per_connection,
            self.frames,
            self.unsent,
            marks.low,
        )
        dispatcher.limit_connections(limits.server_max_unanswered_requests)
        self._wrap = wrap
        self._listening: list[Any] = []
        self._idle_scan = ClockedLoop(reactor, self._scan)
        self._drained: defer.Deferred[None] | None = None

    def make_connection(self, admitted_by: str | None = None, peer: IAddress | None = None) -> Connection:
        """Make the protocol of an accepted connection, which ``admission`` has counted by a key."""
        connection = Connection(
            self._reactor,
            self.dispatcher.dispatch,
            self._connection_lost,
            self._connection_limits,
            self.dispatcher.peer_log,
        )
        self.connections[connection] = admitted_by
        if peer is not None:
            # It may be closed before it is made, as one that does not speak TLS where only TLS is taken.
            connection.address = peer_of(peer).address
            self.events.put(EventKind.CONNECT, connection.address)
        return connection

    def listen(self, port: int | None = None) -> int:
        """Open the port, or one more, and return its number. Raises ListenError."""
        factory: Any = _ConnectionFactory(self)
        if self._wrap is not None:
            factory = self._wrap(factory)
        wanted = self.port if port is None else port
        try:
            opened = open_port(self._reactor, wanted, factory, self._backlog, self._interface)
        except CannotListenError as error:
            raise ListenError(wanted, error) from error
        for listening in opened:
            self._buffers.set_on(listening)
        self._listening += opened
        host: IPv4Address | IPv6Address = opened[0].getHost()
        if port is None:
            self.port = host.port
        return host.port

    def startService(self) -> None:
        """Listen (unless ``listen`` was called already) and begin to serve; nothing happens if it does already.

        Raises ListenError.
        """
        if self._idle_scan.running:
            return
        super().startService()
        if not self._listening:
            self.listen()
        self.dispatcher.start()
        self.events.start()
        shortest = min(self.frames.seconds, self._handshake_seconds) / 2
        self._idle_scan.start(min(_IDLE_SCAN_SECONDS, shortest), now=False)

    def stopService(self) -> defer.Deferred[None]:
        """Stop listening, let the pools answer what they hold, then close all connections.

        While it stops, and when it has stopped, a further call has nothing to do and returns at once.
        """
        if not self.running:
            self._abort_all()
            return self.stop_listening()
        super().stopService()
        return defer.Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._idle_scan.running:
            self._idle_scan.stop()
        await self.stop_listening()
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.dispatcher.stop)
        self.dispatcher.count_unhandled()
        if self.connections:
            self._drained = defer.Deferred()
            for connection in list(self.connections):
                connection.close()
            abort = self._reactor.callLater(_DRAIN_SECONDS, self._abort_all)
            await self._drained
            if abort.active():
                abort.cancel()
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.events.stop)

    def stop_listening(self) -> defer.Deferred[Any]:
        """Close the ports; fires when they are closed."""
        closing = [defer.maybeDeferred(listening.stopListening) for listening in self._listening]
        self._listening.clear()
        return defer.DeferredList(closing)

    def _abort_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _connection_lost(self, connection: Connection) -> None:
        admitted_by = self.connections.pop(connection, None)
        if admitted_by is not None:
            self.admission.leave(admitted_by)
        for listener in self.listeners:
            listener.connection_lost(connection)
        if connection.fault:
            self.events.put(EventKind.EXCEPTION, connection.address, connection.fault)
        self.events.put(EventKind.CLOSE, connection.address)
        if self._drained is not None and not self.connections:
            drained, self._drained = self._drained, None
            drained.callback(None)

    def _scan(self) -> None:
        now = self._reactor.seconds()
        self.dispatcher.peer_log.flush()
        self.dispatcher.limits.flush()
        self._close_idle(now)
        self.frames.check(now)
        self._memory.sample(self.frames.total + self.unsent.total + self.dispatcher.queued_bytes, now)

    def _close_idle(self, now: float) -> None:
        oldest = now - self._idle_seconds
        earliest = now - self._handshake_seconds
        for connection in list(self.connections):
            if connection.handshake_began is not None and connection.handshake_began < earliest:
                self.dispatcher.limits.reached(
                    "TLS handshakes too slow",
                    "{address}: closing: its TLS handshake is not over after {seconds} s (serverHandshakeTimeoutMillis)",
                    address=connection.address,
                    seconds=self._handshake_seconds,
                )
                connection.abort()
                continue
            if connection.last_active < oldest:
                self.dispatcher.peer_log.warn(
                    "idle",
                    "{address}: closing, nothing was received for {seconds} s",
                    address=connection.address,
                    seconds=self._idle_seconds,
                )
                self.events.put(
                    EventKind.IDLE, connection.address, f"nothing was received for {self._idle_seconds:g} s"
                )
                connection.abort()


def open_port(reactor: Any, port: int, factory: Any, backlog: int = 1024, interface: str | None = None) -> list[Any]:
    """Listen on a port (0: a free one) of an interface, or of all addresses; returns one or two listening ports.

    Raises CannotListenError; nothing stays open then.
    """
    if interface is not None:
        return [reactor.listenTCP(port, factory, backlog=backlog, interface=interface)]
    try:
        both = reactor.listenTCP(port, factory, backlog=backlog, interface="::")
    except CannotListenError as error:
        if getattr(error.socketError, "errno", None) not in _NO_IPV6:
            raise
        return [reactor.listenTCP(port, factory, backlog=backlog, interface="")]
    if not _only_ipv6(both):
        return [both]
    try:
        return [both, reactor.listenTCP(both.getHost().port, factory, backlog=backlog, interface="")]
    except CannotListenError:
        both.stopListening()
        raise


def _only_ipv6(listening: Any) -> bool:
    """Whether the system gives a port of all addresses IPv6 only (bindv6only)."""
    opened = getattr(listening, "socket", None)
    return opened is not None and bool(opened.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
