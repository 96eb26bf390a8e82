"""The ports of a network within a process.

A port without a listener refuses. Connections are pairs of MemoryTransports.
"""

import errno
from itertools import count
from threading import Lock
from typing import Any
from weakref import WeakSet

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as RefusedError
from twisted.internet.interfaces import IListeningPort
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.event_loop.reactor import IReactor
from rocketd.testing.simulated.memory_transport import MemoryTransport, Pipe

HOST = "127.0.0.1"
FIRST_PORT = 49152
"""First port given to connecting sides, and to listeners on any port."""


@implementer(IListeningPort)
class MemoryPort:
    """A listening port, with a real one beside it if ``real`` is given. Belongs to its reactor's thread."""

    def __init__(
        self, network: "MemoryNetwork", reactor: IReactor, address: IPv4Address, factory: Any, real: Any
    ) -> None:
        self._network = network
        self._reactor = reactor
        self._address = address
        self._factory = factory
        self._real = real
        self._accepted: WeakSet[MemoryTransport] = WeakSet()

    def startListening(self) -> None:  # noqa: N802
        """Accept connections from now on."""
        self._factory.doStart()

    def stopListening(self) -> Deferred[Any]:  # noqa: N802
        """Stop accepting connections. Open ones stay."""
        if not self._network.leave(self._address.port, self):
            return succeed(None)
        self._factory.doStop()
        return succeed(None) if self._real is None else maybeDeferred(self._real.stopListening)

    def getHost(self) -> IPv4Address:  # noqa: N802
        """Return the address."""
        return self._address

    def connect(self, inbound: Pipe, outbound: Pipe, peer: IPv4Address) -> None:
        """Accept a connection. Any thread."""
        self._reactor.callFromThread(self._accept, inbound, outbound, peer)

    def _accept(self, inbound: Pipe, outbound: Pipe, peer: IPv4Address) -> None:
        protocol = self._factory.buildProtocol(peer) if self._network.has(self._address.port, self) else None
        if protocol is None:
            outbound.end(ConnectionLost)
            inbound.break_off()
            return
        transport = MemoryTransport(self._reactor, inbound, outbound, self._address, peer)
        self._accepted.add(transport)
        transport.begin(protocol)

    def abort_connections(self) -> None:
        """Break the accepted connections in memory."""
        for transport in list(self._accepted):
            transport.abortConnection()


class _Connector:
    """An attempt to connect, and its connection. Reactor thread."""

    def __init__(self, reactor: IReactor, address: IPv4Address, factory: Any) -> None:
        self._reactor = reactor
        self._address = address
        self._factory = factory
        self._connecting = True
        self._transport: MemoryTransport | None = None

    def getDestination(self) -> IPv4Address:  # noqa: N802
        """Return the address."""
        return self._address

    def stopConnecting(self) -> None:  # noqa: N802
        """Cancel the attempt."""
        self._connecting = False

    def disconnect(self) -> None:
        """Close the connection, or cancel the attempt."""
        self._connecting = False
        if self._transport is not None:
            self._transport.loseConnection()

    def abort(self) -> None:
        """Close the connection at once, or cancel the attempt."""
        self._connecting = False
        if self._transport is not None:
            self._transport.abortConnection()

    def begin(self, port: MemoryPort | None, source: IPv4Address) -> None:
        """Connect to a port, or be refused."""
        if not self._connecting:
            return
        self._connecting = False
        if port is None:
            refused = RefusedError(osError=errno.ECONNREFUSED)
            self._factory.clientConnectionFailed(self, Failure(refused))
            self._factory.doStop()
            return
        protocol = self._factory.buildProtocol(self._address)
        if protocol is None:
            return
        there, here = Pipe(), Pipe()
        transport = self._transport = MemoryTransport(self._reactor, here, there, source, self._address)
        transport.on_lost = self._lost
        port.connect(there, here, source)
        transport.begin(protocol)

    def _lost(self, reason: Failure) -> None:
        self._factory.clientConnectionLost(self, reason)
        self._factory.doStop()


class MemoryNetwork:
    """The ports of one cluster. Any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ports: dict[int, MemoryPort] = {}
        self._numbers = count(FIRST_PORT)

    def listen(self, reactor: IReactor, number: int, factory: Any, real: Any = None) -> MemoryPort:
        """Open a port, 0 for any. Raises CannotListenError."""
        with self._lock:
            number = number or next(self._numbers)
            if number in self._ports:
                raise CannotListenError(HOST, number, OSError(errno.EADDRINUSE, "Address already in use"))
            port = self._ports[number] = MemoryPort(self, reactor, IPv4Address("TCP", HOST, number), factory, real)
        port.startListening()
        return port

    def has(self, number: int, port: MemoryPort) -> bool:
        """Return whether a port is still listening."""
        return self._ports.get(number) is port

    def leave(self, number: int, port: MemoryPort) -> bool:
        """Remove a port. Return whether it was there."""
        with self._lock:
            return self.has(number, port) and self._ports.pop(number) is port

    def connect(self, reactor: IReactor, host: str, number: int, factory: Any) -> _Connector:
        """Connect a factory's protocol to a port. Reactor thread."""
        connector = _Connector(reactor, IPv4Address("TCP", host, number), factory)
        factory.doStart()
        factory.startedConnecting(connector)
        source = IPv4Address("TCP", HOST, next(self._numbers))
        reactor.callFromThread(lambda: connector.begin(self._ports.get(number), source))
        return connector
