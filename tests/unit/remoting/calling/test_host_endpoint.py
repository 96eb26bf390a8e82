"""Connecting to the addresses of a host name, on a fake reactor."""

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.calling.host_endpoint import NEXT_SECONDS, HostEndpoint

FOUR = IPv4Address("TCP", "10.0.0.1", 9876)
SIX = IPv6Address("TCP", "fd00::1", 9876)


class Resolver:
    """Answers when ``answer`` is called."""

    def __init__(self):
        self.resolveHostName = self.resolve

    def resolve(self, receiver, host, *_, portNumber):  # noqa: N803 - the keyword is Twisted's
        self.asked = (host, portNumber)
        self.receiver = receiver
        receiver.resolutionBegan(self)

    def answer(self, *addresses):
        for address in addresses:
            self.receiver.addressResolved(address)
        self.receiver.resolutionComplete()


class HostEndpointTests(SynchronousTestCase):
    def setUp(self):
        self.reactor = MemoryReactorClock()
        self.reactor.nameResolver = self.resolver = Resolver()
        self.factory = Factory.forProtocol(Protocol)
        self.connected = HostEndpoint(self.reactor, "broker.local", 9876, 3.0).connect(self.factory)

    def attempts(self):
        return [attempt[0] for attempt in self.reactor.tcpClients]

    def accept(self, number):
        factory = self.reactor.tcpClients[number][2]
        factory.doStart()
        factory.buildProtocol(None).makeConnection(StringTransport())

    def refuse(self, number):
        attempt = self.reactor.tcpClients[number]
        attempt[2].clientConnectionFailed(self.reactor.connectors[number], Failure(ConnectError(111)))

    def test_connect_to_single_address(self):
        self.assertEqual(self.resolver.asked, ("broker.local", 9876))
        self.resolver.answer(FOUR)
        self.assertEqual(self.reactor.tcpClients[0][:2], ("10.0.0.1", 9876))
        self.assertNoResult(self.connected)
        self.accept(0)
        self.assertIsNotNone(self.successResultOf(self.connected).transport)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_failed_address_is_followed_by_next_at_once(self):
        self.resolver.answer(SIX, FOUR)
        self.assertEqual(self.attempts(), ["fd00::1"])
        self.refuse(0)
        self.assertEqual(self.attempts(), ["fd00::1", "10.0.0.1"])
        self.accept(1)
        self.successResultOf(self.connected)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_first_of_parallel_attempts_wins(self):
        self.resolver.answer(SIX, FOUR)
        self.reactor.advance(NEXT_SECONDS)
        self.assertEqual(self.attempts(), ["fd00::1", "10.0.0.1"])
        self.accept(1)
        self.successResultOf(self.connected)
        self.assertTrue(self.reactor.connectors[0].stoppedConnecting)

    def test_connect_with_all_addresses_failing_fails(self):
        self.resolver.answer(SIX, FOUR)
        self.refuse(0)
        self.assertNoResult(self.connected)
        self.refuse(1)
        self.failureResultOf(self.connected, ConnectError)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_connect_without_address_fails(self):
        self.resolver.answer()
        self.assertIn("broker.local", str(self.failureResultOf(self.connected, DNSLookupError).value))

    def test_cancel_during_lookup_connects_to_no_address(self):
        self.connected.cancel()
        self.failureResultOf(self.connected, CancelledError)
        self.resolver.answer(FOUR)
        self.assertEqual(self.attempts(), [])

    def test_cancel_during_connect_stops_attempts(self):
        self.resolver.answer(SIX, FOUR)
        self.connected.cancel()
        self.failureResultOf(self.connected, CancelledError)
        self.assertTrue(self.reactor.connectors[0].stoppedConnecting)
        self.reactor.advance(NEXT_SECONDS)
        self.assertEqual(self.attempts(), ["fd00::1"])
