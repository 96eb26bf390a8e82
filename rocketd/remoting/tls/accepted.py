"""TLS of accepted connections, on any reactor and any transport.

``startTLS`` of Twisted's transports works on the global reactor alone: its short writes and its pull producers wait for
iterations of that one. Reactor thread only.
"""

from collections.abc import Callable
from typing import Any, cast

from twisted.internet import ssl
from twisted.internet.interfaces import IDelayedCall, IProtocol, IPullProducer, IPushProducer, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory
from zope.interface import implementer

_log = Logger()


def start_tls_on_accept(
    transport: object, context: ssl.CertificateOptions, protocol: IProtocol, first_bytes: bytes, clock: IReactorTime
) -> None:
    """Begin TLS on an accepted connection. ``first_bytes`` were already read from it.

    ``protocol`` gets a transport for TLS, then the decrypted bytes. ``clock`` is the connection's reactor.
    """
    accepted: Any = transport
    secured = _AcceptedTLS(TLSMemoryBIOFactory(context, False, Factory(), clock=clock), protocol, clock)
    accepted.protocol = secured
    secured.makeConnection(accepted)
    secured.dataReceived(first_bytes)


class _AcceptedTLS(BufferingTLSTransport):
    """The TLS layer, with pull producers on its reactor."""

    def __init__(self, factory: TLSMemoryBIOFactory, protocol: IProtocol, clock: IReactorTime) -> None:
        super().__init__(factory, protocol)
        self._reactor = clock
        self._pulls: _Pulls | None = None

    def registerProducer(self, producer: IPullProducer | IPushProducer, streaming: bool) -> None:
        """Register a producer of either kind."""
        if streaming:
            super().registerProducer(producer, True)
            return
        pulls = self._pulls = _Pulls(cast(IPullProducer, producer), self._reactor, self.abortConnection)
        super().registerProducer(pulls, True)
        pulls.resumeProducing()

    def unregisterProducer(self) -> None:
        """Unregister the producer."""
        pulls, self._pulls = self._pulls, None
        if pulls is not None:
            pulls.end()
        super().unregisterProducer()


@implementer(IPushProducer)
class _Pulls:
    """Pulls from a producer once in each iteration of the reactor, except in pauses."""

    def __init__(self, producer: IPullProducer, clock: IReactorTime, abort: Callable[[], object]) -> None:
        self._producer = producer
        self._clock = clock
        self._abort = abort
        self._next: IDelayedCall | None = None
        self._pulling = self._ended = False
        self._paused = True

    def resumeProducing(self) -> None:
        """Pull now, and in the following iterations."""
        self._paused = False
        if self._next is None and not self._pulling and not self._ended:
            self._pull()

    def pauseProducing(self) -> None:
        """Pull no more until it is resumed."""
        self._paused = True
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def stopProducing(self) -> None:
        """Stop: the connection is lost."""
        self.end()
        self._producer.stopProducing()

    def end(self) -> None:
        """Pull no more."""
        self._ended = True
        self.pauseProducing()

    def _pull(self) -> None:
        self._next = None
        self._pulling = True
        try:
            self._producer.resumeProducing()
        except Exception:
            _log.failure("the producer of a TLS connection failed")
            self.end()
            self._abort()
        self._pulling = False
        if not self._paused and not self._ended:
            self._next = self._clock.callLater(0, self._pull)
