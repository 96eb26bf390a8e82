"""Connecting to a host by name: its addresses in turn, the next one started before the previous one has failed.

Netty tries only the first address of an unresolved name. Twisted's HostnameEndpoint installs the global reactor, so a
client on an asyncio loop or on a separate thread cannot use it.
"""

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHostResolution,
    IProtocol,
    IProtocolFactory,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.event_loop.reactor import IReactor

NEXT_SECONDS = 0.3
"""Head start of an address before the next one is tried as well."""


@implementer(IStreamClientEndpoint)
class HostEndpoint:
    """Connects to ``host``, each address within ``timeout`` seconds.

    Fails with the last address's error, or with DNSLookupError if the name has no address.
    """

    def __init__(self, reactor: IReactor, host: str, port: int, timeout: float) -> None:
        self._reactor = reactor
        self._host = host
        self._port = port
        self._timeout = timeout

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Return the first connection made. The factory is asked for one protocol only."""
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        receiver = _Receiver()
        self._reactor.nameResolver.resolveHostName(receiver, self._host, portNumber=self._port)
        addresses = await receiver.resolved
        endpoints = [self._endpoint(address) for address in addresses]
        if not endpoints:
            raise DNSLookupError(f"host name {self._host} has no address")
        return await _Race(self._reactor, endpoints, factory).won

    def _endpoint(self, address: Any) -> IStreamClientEndpoint:
        kind = TCP6ClientEndpoint if isinstance(address, IPv6Address) else TCP4ClientEndpoint
        return kind(self._reactor, address.host, address.port, self._timeout)


@implementer(IResolutionReceiver)
class _Receiver:
    def __init__(self) -> None:
        self.resolved: Deferred[list[IAddress]] = Deferred()
        self._addresses: list[IAddress] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:  # noqa: N802, N803 - Twisted's names
        """Ignore the start of the resolution."""

    def addressResolved(self, address: IAddress) -> None:  # noqa: N802
        if isinstance(address, IPv4Address | IPv6Address):
            self._addresses.append(address)

    def resolutionComplete(self) -> None:  # noqa: N802
        if not self.resolved.called:  # the waiter may have cancelled
            self.resolved.callback(self._addresses)


class _Race:
    """Concurrent attempts to connect. The first success cancels the others. ``won`` fires with its protocol."""

    def __init__(self, reactor: IReactor, endpoints: list[IStreamClientEndpoint], factory: IProtocolFactory) -> None:
        self.won: Deferred[IProtocol] = Deferred(lambda _: self._end())
        self._reactor = reactor
        self._left = endpoints
        self._factory = factory
        self._attempts: set[Deferred[IProtocol]] = set()
        self._timer: IDelayedCall | None = None
        self._ended = False
        self._begin_next()

    def _begin_next(self) -> None:
        self._stop_timer()
        endpoint = self._left.pop(0)
        if self._left:
            self._timer = self._reactor.callLater(NEXT_SECONDS, self._begin_next)
        attempt: Deferred[IProtocol] = endpoint.connect(self._factory)
        self._attempts.add(attempt)
        attempt.addCallbacks(self._connected, self._failed, callbackArgs=(attempt,), errbackArgs=(attempt,))

    def _connected(self, protocol: IProtocol, attempt: Deferred[IProtocol]) -> None:
        self._attempts.discard(attempt)
        self._end()
        self.won.callback(protocol)

    def _failed(self, failure: Failure, attempt: Deferred[IProtocol]) -> None:
        self._attempts.discard(attempt)
        if self._ended:
            return
        if self._left:
            self._begin_next()
        elif not self._attempts:
            self._ended = True
            self.won.errback(failure)

    def _end(self) -> None:
        self._ended = True
        self._left.clear()
        self._stop_timer()
        for attempt in list(self._attempts):
            attempt.cancel()

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
