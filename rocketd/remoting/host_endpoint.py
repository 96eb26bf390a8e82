"""Connecting to a host by name: its addresses in turn, the next one not waiting until the one before has failed.

Answers to what Netty does with an unresolved address, which tries the first alone. Twisted's HostnameEndpoint would do,
but installs the global reactor, which a client in an asyncio loop or in a thread of its own must leave alone.
"""

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.python.failure import Failure
from zope.interface import implementer

NEXT_SECONDS = 0.3
"""How long an address has before the next one is tried beside it."""


@implementer(IStreamClientEndpoint)
class HostEndpoint:
    """Connects to ``host``, each of its addresses within ``timeout`` seconds. Fails with the last address's error, or
    with DNSLookupError when there is none.
    """

    def __init__(self, reactor: Any, host: str, port: int, timeout: float) -> None:
        self._reactor = reactor
        self._host = host
        self._port = port
        self._timeout = timeout

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Return the first connection that is made. The factory may be asked for one protocol only."""
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

    def resolutionBegan(self, resolutionInProgress: Any) -> None:  # noqa: N802, N803 - Twisted's names
        """Nothing is there yet."""

    def addressResolved(self, address: IAddress) -> None:  # noqa: N802
        if isinstance(address, IPv4Address | IPv6Address):
            self._addresses.append(address)

    def resolutionComplete(self) -> None:  # noqa: N802
        if not self.resolved.called:  # whoever waited may have given up
            self.resolved.callback(self._addresses)


class _Race:
    """Attempts to connect, of which the first that succeeds ends the others. ``won`` fires with its protocol."""

    def __init__(self, reactor: Any, endpoints: list[IStreamClientEndpoint], factory: IProtocolFactory) -> None:
        self.won: Deferred[IProtocol] = Deferred(lambda _: self._end())
        self._reactor = reactor
        self._left = endpoints
        self._factory = factory
        self._attempts: set[Deferred[IProtocol]] = set()
        self._timer: Any = None
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
