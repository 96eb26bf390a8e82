"""The listening side: accepts connections, watches them, and stops in the right order.

Counterpart: `NettyRemotingServer` (Apache). Plain text and TLS share the port (see ``tls``).
"""

import errno
import socket
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol, cast

from twisted.application.service import Service
from twisted.internet import defer, threads
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IProtocolFactory, IReactorFDSet
from twisted.internet.protocol import Factory
from zope.interface import implementer

from rocketd.common.event_loop.clocked_loop import ClockedLoop
from rocketd.common.event_loop.loop_lag import LagHistogram, ReactorLag
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.process.memory_return import MemoryReturn
from rocketd.remoting.interfaces import EventKind, IRemotingServer, IRPCHook
from rocketd.remoting.limits.connection_limit import ConnectionAdmission, only_from
from rocketd.remoting.limits.frame_budget import FrameBudget
from rocketd.remoting.limits.unsent_budget import UnsentBudget
from rocketd.remoting.peer import peer_of
from rocketd.remoting.serving.connection import Connection, ConnectionLimits
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.lane import HAS_LANES, STAND_IN_SECONDS, Lane
from rocketd.remoting.serving.settings import ServerLimits
from rocketd.remoting.serving.third_party.connection_events import ConnectionEvents
from rocketd.remoting.socket_buffers import SocketBuffers, WriteMarks
from rocketd.remoting.wire.frame import MAX_FRAME_LENGTH

NO_SIZES = SocketBuffers()
NO_MARKS = WriteMarks()
_IDLE_SCAN_SECONDS = 5.0
_DRAIN_SECONDS = 5.0
_LOOKED_AT = 100
"""Connections looked at when one of them is closed to make room."""
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class ConnectionListener(Protocol):
    """Gets notified of lost connections."""

    def connection_lost(self, connection: Connection) -> None:
        """Forget a closed connection. Reactor thread."""


class ListenError(Exception):
    """The port cannot be opened. The text has the port, the reason and the next step.

    ``cause`` is the text without the next step. ``setting`` is the setting of the port.
    """

    def __init__(self, port: int, error: CannotListenError, setting: str = "listenPort") -> None:
        code = getattr(error.socketError, "errno", None)
        in_use = code == errno.EADDRINUSE
        reason = getattr(error.socketError, "strerror", None) or str(error.socketError)
        self.cause = f"cannot listen on port {port}: {'it is in use by another process' if in_use else reason}"
        self.setting = setting
        self._remedy = "stop that process or set another {}" if in_use else "set another {}"
        if code == errno.EADDRNOTAVAIL:
            self.cause = f"cannot listen on {error.interface}: it is not an address of this machine"
            self._remedy = "set another bindAddress, or another --host of rocketd up"
        super().__init__(self.advise(setting))

    def advise(self, setting: str) -> str:
        """Return cause and next step, for a port with another setting than listenPort."""
        return f"{self.cause}; {self._remedy.format(setting)}"


class _ConnectionFactory(Factory):
    noisy = False

    def __init__(self, server: "RemotingServer") -> None:
        self._server = server

    def buildProtocol(self, addr: IAddress | None) -> Connection | None:
        host = addr.host if isinstance(addr, IPv4Address | IPv6Address) else "127.0.0.1"
        key = self._server.admission.admit(host)
        return None if key is None else self._server.make_connection(key, addr)


@implementer(IRemotingServer)
class RemotingServer(Service):
    """One listening port with its connections and dispatcher. All methods belong to the reactor thread.

    - ``port`` 0 takes a free port; after the start, ``port`` is the real one.
    - ``interface`` is the address to listen on. The default is all addresses, IPv6 and IPv4, or IPv4 only on a system
      without IPv6.
    - ``wrap`` may put TLS detection around the factory of connections.
    - ``idle_seconds`` is the time without received bytes after which a connection is closed.
    - ``admission`` decides about accepted connections.
    - ``lanes`` are the names of pools whose threads read the connections that they serve (see ``lane``).
    - ``stand_in_seconds`` is the interval at which the reactor looks for lanes that are held up.
    - ``stopwatch`` measures the reactor's delays in seconds. The default is the reactor's time.
    """

    def __init__(
        self,
        reactor: IReactor,
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
        lanes: Sequence[str] = (),
        stand_in_seconds: float = STAND_IN_SECONDS,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self._lane_pools = lanes
        self._stand_in_seconds = stand_in_seconds
        self.port = port
        limits = limits or ServerLimits()
        self.admission = ConnectionAdmission(
            dispatcher.limits, limits.server_max_connections, limits.server_max_connections_per_address
        )
        self.admission.rules.append(only_from(limits.server_allowed_addresses))
        self.admission.make_room = self._close_quiet
        self.connections: dict[Connection, str | None] = {}
        """The open connections, with their ``admission`` keys."""
        self._of_address: dict[str, dict[Connection, None]] = {}
        """Those with a key, the oldest first."""
        self.listeners: list[ConnectionListener] = []
        self.events = ConnectionEvents("connection-events", calls=dispatcher.plugin_calls)
        """For third-party listeners."""
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
            log,
        )
        dispatcher.limit_connections(limits.server_max_unanswered_requests)
        self._wrap = wrap
        self._listening: list[Any] = []
        self._idle_scan = ClockedLoop(reactor, self._scan)
        self._lanes: list[Lane] = []
        self._lag = ReactorLag(reactor, stopwatch)
        self._stand_in = ClockedLoop(reactor, self._stand_in_for_lanes)
        self._drained: defer.Deferred[None] | None = None

    def make_connection(self, admitted_by: str | None = None, peer: IAddress | None = None) -> Connection:
        """Return the protocol of an accepted connection, counted by ``admission`` with a key."""
        connection = Connection(
            self._reactor,
            self.dispatcher.dispatch,
            self._connection_lost,
            self._connection_limits,
            self.dispatcher.answers.peer_log,
        )
        self.connections[connection] = admitted_by
        if admitted_by is not None:
            self._of_address.setdefault(admitted_by, {})[connection] = None
        if peer is not None:
            # It may be closed before it is made, for example a plain connection to a TLS-only port.
            connection.address = peer_of(peer).address
            self.events.put(EventKind.CONNECT, connection.address)
        return connection

    def register_rpc_hook(self, hook: IRPCHook) -> None:
        """Add a hook around all requests of peers."""
        self.dispatcher.answers.hooks = (*self.dispatcher.answers.hooks, hook)

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
        """Listen (unless ``listen`` was called before) and begin to serve. Does nothing if it already serves.

        Raises ListenError.
        """
        if self._idle_scan.running:
            return
        super().startService()
        if not self._listening:
            self.listen()
        self._make_lanes()
        self._lag.start()
        self.dispatcher.start()
        self.events.start()
        shortest = min(self.frames.seconds, self._handshake_seconds) / 2
        self._idle_scan.start(min(_IDLE_SCAN_SECONDS, shortest), now=False)

    def _make_lanes(self) -> None:
        if not (HAS_LANES and self._lane_pools and IReactorFDSet.providedBy(self._reactor)):
            return
        for name in self._lane_pools:
            pool = self.dispatcher.pool(name)
            lane = Lane(pool, self._reactor)
            pool.loop = lane
            self._lanes.append(lane)
        self._stand_in.start(self._stand_in_seconds, now=False)

    def lags(self) -> dict[str, LagHistogram]:
        """Return how late the event loops are: ``reactor``, and ``lane <pool>`` for each lane. Any thread."""
        return {"reactor": self._lag.histogram} | {f"lane {lane.name}": lane.lag for lane in self._lanes}

    def _stand_in_for_lanes(self) -> None:
        for lane in self._lanes:
            lane.stand_in()

    def stopService(self) -> defer.Deferred[None]:
        """Stop listening, let the pools answer their requests, then close all connections.

        During and after the stop, further calls return at once.
        """
        if not self.running:
            self._abort_all()
            return self.stop_listening()
        super().stopService()
        return defer.Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._lag.stop()
        if self._idle_scan.running:
            self._idle_scan.stop()
        await self.stop_listening()
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.dispatcher.stop)
        self.dispatcher.count_unhandled()
        self.dispatcher.limits.flush(last=True)
        if self.connections:
            self._drained = defer.Deferred()
            for connection in list(self.connections):
                connection.close()
            abort = self._reactor.callLater(_DRAIN_SECONDS, self._abort_all)
            await self._drained
            if abort.active():
                abort.cancel()
        if self._stand_in.running:
            self._stand_in.stop()  # not before: a lane abandoned with a plugin still has its connections
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.events.stop)

    def stop_listening(self) -> defer.Deferred[Any]:
        """Close the ports. Fires when they are closed."""
        closing = [defer.maybeDeferred(listening.stopListening) for listening in self._listening]
        self._listening.clear()
        return defer.DeferredList(closing)

    def _abort_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _connection_lost(self, connection: Connection) -> None:
        admitted_by = self.connections.pop(connection, None)
        if admitted_by is not None:
            self._give_up_place(connection, admitted_by)
        self.dispatcher.connection_lost(connection)
        for listener in self.listeners:
            listener.connection_lost(connection)
        if connection.fault:
            self.events.put(EventKind.EXCEPTION, connection.address, connection.fault)
        self.events.put(EventKind.CLOSE, connection.address)
        if self._drained is not None and not self.connections:
            drained, self._drained = self._drained, None
            drained.callback(None)

    def _close_quiet(self, admitted_by: str) -> bool:
        """Close one of the oldest connections of an address: one without a whole frame so far, or else the quietest."""
        oldest = list(islice(self._of_address.get(admitted_by, ()), _LOOKED_AT))
        if not oldest:
            return False
        connection = min(oldest, key=lambda each: (each.has_asked, each.last_active))
        self.connections[connection] = None
        self._give_up_place(connection, admitted_by)
        connection.abort()
        return True

    def _give_up_place(self, connection: Connection, admitted_by: str) -> None:
        others = self._of_address[admitted_by]
        del others[connection]
        if not others:
            del self._of_address[admitted_by]
        self.admission.leave(admitted_by)

    def _scan(self) -> None:
        now = self._reactor.seconds()
        self.dispatcher.answers.peer_log.flush()
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
                self.dispatcher.answers.peer_log.warn(
                    "idle",
                    "{address}: closing, nothing was received for {seconds} s",
                    address=connection.address,
                    seconds=self._idle_seconds,
                )
                self.events.put(
                    EventKind.IDLE, connection.address, f"nothing was received for {self._idle_seconds:g} s"
                )
                connection.abort()


def open_port(
    reactor: IReactor, port: int, factory: Any, backlog: int = 1024, interface: str | None = None
) -> list[Any]:
    """Listen on a port (0: a free one) of an interface, or of all addresses. Return one or two listening ports.

    Raises CannotListenError; all ports are closed then.
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
        return [both, reactor.listenTCP(cast(IPv6Address, both.getHost()).port, factory, backlog=backlog, interface="")]
    except CannotListenError:
        both.stopListening()
        raise


def _only_ipv6(listening: Any) -> bool:
    """Return whether the system gives a port of all addresses IPv6 only (bindv6only)."""
    opened = getattr(listening, "socket", None)
    return opened is not None and bool(opened.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
