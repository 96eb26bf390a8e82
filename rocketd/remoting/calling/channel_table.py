"""Outgoing connections: one per address, shared by all concurrent callers.

Counterpart: `channelTables` of `NettyRemotingClient` (Apache). A connection is made on request and dropped from the
table when it closes. It does not reconnect on its own. Everything belongs to the reactor thread.
"""

import os
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.abstract import isIPAddress
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.common.event_loop import timers
from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.logs.throttle import LogThrottle
from rocketd.remoting.calling.client_connection import ClientConnection, ConnectionOwner
from rocketd.remoting.errors import RemotingConnectError
from rocketd.remoting.interfaces import EventKind
from rocketd.remoting.settings import NettyClientConfig
from rocketd.remoting.socket_buffers import SocketBuffers
from rocketd.remoting.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocketd.remoting.tls.contexts import ClientTLS

V = TypeVar("V")

IDLE_SCAN_SECONDS = 1.0


class _Channel:
    """Entry of an address: its connection, or the attempt to make one and its waiters."""

    __slots__ = ("attempt", "connection", "waiters")

    def __init__(self) -> None:
        self.connection: ClientConnection | None = None
        self.attempt: Deferred[ClientConnection] | None = None
        self.waiters: list[Deferred[ClientConnection]] = []


class ChannelOwner(ConnectionOwner, Protocol):
    """Gets the events of all connections."""

    def connection_event(self, kind: EventKind, address: str, reason: str = "") -> None:
        """Take a connect or an idle connection. ``connection_lost`` tells the other kinds."""


class ChannelTable:
    """Makes, keeps and closes connections. ``owner`` gets received commands and the events of connections.

    With ``tls``, all connections are encrypted. A connection idle in both directions for
    ``clientChannelMaxIdleTimeSeconds`` is closed.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactor,
        config: NettyClientConfig,
        tls: "ClientTLS | None",
        max_frame_length: int,
        owner: ChannelOwner,
    ) -> None:
        self._reactor = reactor
        self._config = config
        self._buffers = SocketBuffers(config.client_socket_snd_buf_size, config.client_socket_rcv_buf_size)
        self._tls = tls
        self._max_frame_length = max_frame_length
        self._owner = owner
        self._open = False
        self._channels: dict[str, _Channel] = {}
        self._failures = LogThrottle(reactor.seconds)
        self._connections: set[ClientConnection] = set()
        self._idle_scan = timers.ClockedLoop(reactor, self._close_idle)
        self._all_closed: Deferred[None] | None = None

    # ------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Allow connections from now on."""
        self._open = True
        self._idle_scan.start(IDLE_SCAN_SECONDS, now=False)

    def stop(self) -> Deferred[None]:
        """Refuse new connections, write pending bytes, close all connections. Fires when all are closed."""
        self._open = False
        if self._idle_scan.running:
            self._idle_scan.stop()
        for channel in list(self._channels.values()):
            if channel.attempt is not None:
                channel.attempt.cancel()
        self._channels.clear()
        if not self._connections:
            return succeed(None)
        all_closed = self._all_closed = Deferred()
        for connection in list(self._connections):
            connection.close()
        return all_closed

    # ------------------------------------------------------------ connections

    def get(self, address: str) -> ClientConnection | None:
        """Return the open connection to an address, None without one."""
        channel = self._channels.get(address)
        if channel is None or channel.connection is None or channel.connection.closed:
            return None
        return channel.connection

    def connect(self, address: str) -> Deferred[ClientConnection]:
        """Return the open connection to an address, or make one. Fails with RemotingConnectError."""
        if not self._open:
            return fail(RemotingConnectError(address, "this client is stopped"))
        connection = self.get(address)
        if connection is not None:
            return succeed(connection)
        channel = self._channels.get(address)
        if channel is not None and channel.attempt is not None:
            return join(channel.waiters)
        channel = self._channels[address] = _Channel()
        waiter = join(channel.waiters)
        seconds = self._config.connect_timeout_millis / 1000
        channel.attempt = Deferred.fromCoroutine(self._make(address)).addTimeout(
            seconds,
            self._reactor,
            lambda *_: Failure(RemotingConnectError(address, f"no connection within {seconds:g} s")),
        )
        channel.attempt.addBoth(self._made, address, channel)
        return waiter

    def close(self, connection: ClientConnection) -> None:
        """Close a connection and drop it, unless its address already has another one."""
        self._forget(connection)
        connection.close()

    def connection_lost(self, connection: ClientConnection) -> None:
        """Drop a closed connection, then notify the owner."""
        self._forget(connection)
        self._connections.discard(connection)
        self._owner.connection_lost(connection)
        if self._all_closed is not None and not self._connections:
            all_closed, self._all_closed = self._all_closed, None
            all_closed.callback(None)

    def command_received(self, connection: ClientConnection, command: RemotingCommand) -> None:
        """Pass on a received command."""
        self._owner.command_received(connection, command)

    async def _make(self, address: str) -> ClientConnection:
        host, port = split_address(address)
        secure = self._tls is not None
        connection = ClientConnection(self._reactor, self, address, self._max_frame_length, secure)
        factory: Factory[Any] = Factory.forProtocol(lambda: connection)
        factory.noisy = False
        if self._tls is not None:
            # Not at the top: a client without TLS does not need OpenSSL.
            from twisted.protocols.tls import TLSMemoryBIOFactory

            creator = self._tls.connection_creator(host)
            # Given a clock, it does not use the global reactor.
            factory = TLSMemoryBIOFactory(creator, True, factory, clock=self._reactor)
        await self._endpoint(host, port).connect(factory)
        self._buffers.set_on(connection.transport)
        self._connections.add(connection)
        self._owner.connection_event(EventKind.CONNECT, address)
        return await connection.ready

    def _endpoint(self, host: str, port: int) -> IStreamClientEndpoint:
        # Not at the top: Twisted's module of endpoints imports OpenSSL.
        from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint

        from rocketd.remoting.calling.host_endpoint import HostEndpoint

        seconds = self._config.connect_timeout_millis / 1000 + 1  # ``connect`` limits the whole attempt
        if ":" in host:
            return TCP6ClientEndpoint(self._reactor, host, port, seconds)
        if isIPAddress(host):
            return TCP4ClientEndpoint(self._reactor, host, port, seconds)
        return HostEndpoint(self._reactor, host, port, seconds)

    def _made(self, result: ClientConnection | Failure, address: str, channel: _Channel) -> None:
        channel.attempt = None
        if isinstance(result, Failure):
            if self._channels.get(address) is channel:
                del self._channels[address]
            error = _connect_error(address, result.value)
            more = self._failures.admit(address)
            if self._open and more is not None:  # a stop cancels running attempts, without a warning
                self._log.warn("{error}{more}", error=error, more=more)
            result = Failure(error)
        else:
            self._failures.clear(address)
            channel.connection = result
        tell_all(result, channel.waiters)

    def _forget(self, connection: ClientConnection) -> None:
        channel = self._channels.get(connection.address)
        if channel is not None and channel.connection is connection:
            del self._channels[connection.address]

    def _close_idle(self) -> None:
        limit = self._config.client_channel_max_idle_time_seconds
        if limit <= 0:
            return
        oldest = self._reactor.seconds() - limit
        for channel in list(self._channels.values()):
            connection = channel.connection
            if connection is not None and connection.last_active < oldest:
                self._log.info("{address}: closing, idle for {limit} s", address=connection.address, limit=limit)
                self._owner.connection_event(EventKind.IDLE, connection.address, f"idle for {limit} s")
                self.close(connection)


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``. Raises RemotingConnectError if it is neither."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise RemotingConnectError(address, "an address is host:port")
    return host, int(port)


def join(waiters: list[Deferred[V]]) -> Deferred[V]:
    """Share one pending result; cancelling one waiter leaves the rest waiting."""

    def leave(gone: Deferred[V]) -> None:
        if gone in waiters:
            waiters.remove(gone)

    waiter: Deferred[V] = Deferred(leave)
    waiters.append(waiter)
    return waiter


def tell_all(result: V | Failure, waiters: list[Deferred[V]]) -> None:
    """Give a result to all waiters, except those cancelled by the callbacks of others."""
    told = list(waiters)
    waiters.clear()
    for waiter in told:
        if not waiter.called:
            waiter.errback(result) if isinstance(result, Failure) else waiter.callback(result)


def _connect_error(address: str, error: BaseException | None) -> RemotingConnectError:
    if isinstance(error, RemotingConnectError):
        return error
    if isinstance(error, CancelledError):
        return RemotingConnectError(address, "this client is stopped")
    if isinstance(error, ConnectError) and isinstance(error.osError, int):
        return RemotingConnectError(address, os.strerror(error.osError))
    return RemotingConnectError(address, error)
