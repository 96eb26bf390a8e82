"""One port for plain traffic and TLS: the first byte of a connection tells which it is.

Answers to the handshake handler of Apache's NettyRemotingServer. Reactor thread only.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet import ssl
from twisted.internet.interfaces import IProtocol, IProtocolFactory
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketd.common.log_throttle import ThrottledLog
from rocketd.remoting.certificate_watch import CertificateWatch
from rocketd.remoting.peer import peer_of
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls import DISABLED, ENFORCING

_HANDSHAKE = 0x16

_log = Logger()


def wrap_server_factory(settings: TlsConfig, reactor: Any) -> Callable[[IProtocolFactory], IProtocolFactory]:
    """Return what puts TLS detection around the factory of a listening port. Raises TLSConfigError."""
    watch = CertificateWatch(settings, reactor)
    return lambda factory: DetectingFactory(factory, settings.server_mode, watch)


class DetectingFactory(Factory):
    """Makes connections that become plain or TLS by their first byte, as far as the mode allows.

    The wrapped factory's protocol is made when a connection is accepted and has its ``transport`` from then on, but
    ``connectionMade`` comes with the first byte; ``connectionLost`` comes in every case. Changed certificates count for
    connections that begin then.
    """

    noisy = False

    def __init__(
        self, factory: IProtocolFactory, mode: str, watch: CertificateWatch, setting: str = "tls.server.mode"
    ) -> None:
        """``setting`` is the one that gives the mode."""
        self._factory = factory
        self.mode = mode
        self.setting = setting
        self._watch = watch
        self.log = ThrottledLog(_log)

    @property
    def context(self) -> ssl.CertificateOptions | None:
        """What is shown to those who begin TLS; None where none can."""
        return self._watch.context

    def buildProtocol(self, addr: Any) -> Protocol | None:
        """Make the wrapped factory's protocol and what looks at its first byte."""
        protocol = self._factory.buildProtocol(addr)
        return None if protocol is None else _FirstByte(self, protocol)

    def doStart(self) -> None:
        """Start the wrapped factory."""
        self._watch.start()
        self._factory.doStart()

    def doStop(self) -> None:
        """Stop the wrapped factory."""
        self._watch.stop()
        self._factory.doStop()


class _FirstByte(Protocol):
    """Stands in until the first byte of a connection is there, then leaves the transport to the real protocol."""

    def __init__(self, detecting: DetectingFactory, protocol: IProtocol) -> None:
        self._detecting = detecting
        self._protocol: Any = protocol

    def connectionMade(self) -> None:
        self._protocol.transport = self.transport

    def dataReceived(self, data: bytes) -> None:
        detecting, protocol = self._detecting, self._protocol
        transport: Any = self.transport
        if data[0] != _HANDSHAKE:
            if detecting.mode == ENFORCING:
                self._refuse(f"it is plain, and {detecting.setting} is enforcing")
                return
            transport.protocol = protocol
            protocol.makeConnection(transport)
            protocol.dataReceived(data)
            return
        if detecting.context is None:
            self._refuse(
                f"it is TLS, and {detecting.setting} is disabled"
                if detecting.mode == DISABLED
                else "it is TLS, and no certificate is configured"
            )
            return
        transport.setTcpNoDelay(True)
        transport.protocol = protocol
        start_tls_on_accept(transport, detecting.context, data, lambda: protocol.makeConnection(transport))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._protocol.connectionLost(reason)

    def _refuse(self, why: str) -> None:
        transport: Any = self.transport
        self._detecting.log.warn(
            "refused connection", "{address}: closing, {why}", address=peer_of(transport.getPeer()).address, why=why
        )
        transport.abortConnection()


def start_tls_on_accept(
    transport: Any, context: ssl.CertificateOptions, first_bytes: bytes, ready: Callable[[], object] = lambda: None
) -> None:
    """Begin TLS on an accepted connection of which ``first_bytes`` were read already.

    ``transport.protocol`` is the protocol that is to get the decrypted bytes. ``ready`` is called when what is written to
    the transport is encrypted, before the first bytes are looked at.
    """
    transport.startTLS(context)
    ready()
    transport.protocol.dataReceived(first_bytes)
