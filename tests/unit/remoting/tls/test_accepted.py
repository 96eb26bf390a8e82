"""rocketd.remoting.tls.accepted: TLS of accepted connections needs no other reactor than that of the connection."""

from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.contexts import ClientTLS
from rocketd.remoting.tls.port import wrap_server_factory
from rocketd.testing.simulated.memory_network import MemoryNetwork
from rocketd.testing.simulated.virtual_time import VirtualReactor, VirtualTime
from tests.support.turns import Recorder, Turns

PIECE = 1 << 17
PIECES = 40


class Answers(Protocol):
    """Sends pieces as a pull producer after the first byte."""

    def __init__(self):
        self.left = PIECES
        self.pulls = 0
        self.error = None
        self.stopped = False
        self.lost = None

    def dataReceived(self, data):
        self.transport.registerProducer(self, False)

    def resumeProducing(self):
        self.pulls += 1
        if self.error is not None:
            raise self.error
        if self.left:
            self.left -= 1
            self.transport.write(bytes(PIECE))
        else:
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    def stopProducing(self):
        self.stopped = True

    def connectionLost(self, reason):
        self.lost = reason


class AcceptedTLSTests(SynchronousTestCase):
    """On a network in memory, with a clock that no reactor runs."""

    def setUp(self):
        self.turns = Turns()
        self.reactor = VirtualReactor(self.turns, VirtualTime(), MemoryNetwork())
        self.server = Answers()
        factory = Factory.forProtocol(lambda: self.server)
        factory.noisy = False
        port = self.reactor.listenTCP(0, wrap_server_factory(TlsConfig(), self.reactor)(factory))
        self.addCleanup(port.stopListening)
        endpoint = TCP4ClientEndpoint(self.reactor, "127.0.0.1", port.getHost().port)
        client = Factory.forProtocol(Recorder)
        client.noisy = False
        creator = ClientTLS(TlsConfig()).connection_creator("127.0.0.1")
        connecting = endpoint.connect(TLSMemoryBIOFactory(creator, True, client, clock=self.reactor))
        self.turns.settle()
        self.client = self.successResultOf(connecting).wrappedProtocol

    def ask(self):
        self.client.transport.write(b"?")
        self.turns.settle()

    def test_pull_producer_sends_everything(self):
        self.ask()
        self.assertEqual(len(self.client.data), PIECES * PIECE)
        self.assertIsNotNone(self.client.lost)
        self.assertEqual(self.server.pulls, PIECES + 1)

    def test_slow_reader_pauses_pull_producer(self):
        self.client.transport.pauseProducing()
        self.ask()
        self.assertGreater(self.server.left, PIECES // 2)
        self.client.transport.resumeProducing()
        self.turns.settle()
        self.assertEqual(len(self.client.data), PIECES * PIECE)

    def test_lost_reader_stops_pull_producer(self):
        self.client.transport.pauseProducing()
        self.ask()
        left = self.server.left
        self.client.transport.abortConnection()
        self.turns.settle()
        self.assertTrue(self.server.stopped)
        self.assertTrue(self.server.lost.check(ConnectionLost))
        self.assertEqual(self.server.left, left)

    def test_failing_pull_producer_ends_connection(self):
        self.server.error = ValueError("no more")
        self.ask()
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.server.pulls, 1)
        self.assertIsNotNone(self.client.lost)
