"""One port for plain traffic and TLS, told apart by the first byte of a connection.

Counterpart: the handshake handler of `NettyRemotingServer` (Apache). Reactor thread only.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet import ssl
from twisted.internet.interfaces import ILoggingContext, IProtocol, IProtocolFactory, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketd.common.event_loop.reactor import IReactor
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.remoting.peer import peer_of
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.accepted import start_tls_on_accept
from rocketd.remoting.tls.certificate_watch import CertificateWatch
from rocketd.remoting.tls.contexts import DISABLED, ENFORCING

_HANDSHAKE = 0x16

_log = Logger()


def wrap_server_factory(settings: TlsConfig, reactor: IReactor) -> Callable[[IProtocolFactory], IProtocolFactory]:
    """Return a function that wraps the factory of a listening port with TLS detection. Raises TLSConfigError."""
    watch = CertificateWatch(settings, reactor)
    return lambda factory: DetectingFactory(factory, settings.server_mode, watch, reactor)


@implementer(ILoggingContext)
class DetectingFactory(Factory):
    """Creates connections that become plain or TLS by their first byte, as far as the mode allows.

    The wrapped factory's protocol is created when a connection is accepted, and has its ``transport`` from then on.
    ``connectionMade`` comes with the first byte, with another ``transport`` in case of TLS, and ``connectionLost`` in
    every case. Changed certificates apply to new connections.
    """

    noisy = False

    def logPrefix(self) -> str:  # noqa: N802 - the name is Twisted's
        """Return the name in Twisted's line about the open port."""
        return "port for requests"

    def __init__(
        self,
        factory: IProtocolFactory,
        mode: str,
        watch: CertificateWatch,
        clock: IReactorTime,
        setting: str = "tls.server.mode",
    ) -> None:
        """``setting`` is the name of the mode's setting. ``clock`` is the reactor of the connections."""
        self._factory = factory
        self.mode = mode
        self.clock = clock
        self.setting = setting
        self._watch = watch
        self.log = ThrottledLog(_log)

    @property
    def context(self) -> ssl.CertificateOptions | None:
        """The context for TLS connections, None if TLS is not possible."""
        return self._watch.context

    def buildProtocol(self, addr: Any) -> Protocol | None:
        """Return the wrapped factory's protocol behind a detector of its first byte."""
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
    """Placeholder until the first byte of a connection arrives, then passes the transport to the real protocol."""

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
        start_tls_on_accept(transport, detecting.context, protocol, data, detecting.clock)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._protocol.connectionLost(reason)

    def _refuse(self, why: str) -> None:
        transport: Any = self.transport
        self._detecting.log.warn(
            "refused connection", "{address}: closing, {why}", address=peer_of(transport.getPeer()).address, why=why
        )
        transport.abortConnection()
