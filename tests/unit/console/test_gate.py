"""Limits of connections, pages and sign-ins, in virtual time."""

from twisted.internet.error import ConnectionLost
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from rocketd.console.gate import (
    HEADER_SECONDS,
    IDLE_SECONDS,
    MAX_CONNECTIONS,
    MAX_RUNNING,
    MAX_SIGN_INS,
    BoundedRequest,
    FewConnections,
    Gate,
    HostCheck,
    QuietSite,
)
from rocketd.console.service import ConsoleService
from rocketd.console.settings import ConsoleConfig, ConsoleSettings


class Held(Resource):
    """Pages that never end, except those of health."""

    isLeaf = True  # noqa: N815 - the name is Twisted's

    def render(self, request):
        return b"ok" if request.postpath == [b"healthz"] else NOT_DONE_YET


def status_of(transport):
    return int(transport.value().split(b" ")[1]) if transport.value() else None


class GateTests(SynchronousTestCase):
    def setUp(self):
        self.reactor = MemoryReactorClock()
        site = QuietSite(Gate(Held(), "", HostCheck("localhost", None)), requestFactory=BoundedRequest)
        site.reactor = self.reactor
        self.factory = FewConnections(site, self.reactor)

    def connect(self, data=b""):
        """Connect as a browser. Return None if the connection is refused."""
        protocol = self.factory.buildProtocol(None)
        if protocol is None:
            return None
        transport = StringTransport()
        transport.protocol = protocol
        protocol.makeConnection(transport)
        self.send(transport, data)
        return transport

    def send(self, transport, data):
        if data:
            transport.protocol.dataReceived(data)

    def ask(self, path, method="GET"):
        end = "Content-Length: 0\r\n\r\n" if method == "POST" else "\r\n"
        return self.connect(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{end}".encode())

    def test_headers_that_do_not_end_close_the_connection(self):
        silent, half, busy = self.connect(), self.connect(b"GET / HT"), self.ask("/page")
        for _ in range(HEADER_SECONDS - 1):
            self.reactor.advance(1)
            self.send(half, b"T")
        self.assertEqual((silent.disconnected, half.disconnected), (False, False))
        self.reactor.advance(1)
        self.assertEqual((silent.disconnected, half.disconnected, busy.disconnected), (True, True, False))

    def test_headers_of_a_second_request_have_the_limit_too(self):
        kept = self.ask("/healthz")
        self.assertEqual(status_of(kept), 200)
        self.reactor.advance(2 * HEADER_SECONDS)
        self.assertFalse(kept.disconnected)
        self.send(kept, b"G")
        self.reactor.advance(HEADER_SECONDS)
        self.assertTrue(kept.disconnected)

    def test_connection_beyond_the_limit_replaces_the_oldest_without_a_request(self):
        busy = self.ask("/page")
        half = [self.connect(b"GET / HT") for _ in range(MAX_CONNECTIONS - 1)]
        self.assertEqual(status_of(self.ask("/healthz")), 200)
        self.assertEqual([busy.disconnected, *(each.disconnected for each in half[:2])], [False, True, False])
        self.assertEqual(status_of(self.ask("/healthz")), 200)
        self.assertEqual([each.disconnected for each in half[:3]], [True, True, False])

    def test_connection_is_refused_if_all_others_have_requests(self):
        for _ in range(MAX_CONNECTIONS):
            self.connect().protocol.busy = True
        self.assertIsNone(self.connect())

    def test_page_beyond_the_limit_is_refused_but_not_health(self):
        held = [self.ask("/page") for _ in range(MAX_RUNNING)]
        self.assertEqual({status_of(each) for each in held}, {None})
        self.assertEqual(status_of(self.ask("/page")), 503)
        self.assertEqual(status_of(self.ask("/healthz")), 200)
        self.assertIsNone(status_of(self.ask("/login", "POST")))
        held[0].protocol.connectionLost(Failure(ConnectionLost()))
        self.assertIsNone(status_of(self.ask("/page")))

    def test_sign_ins_that_wait_leave_the_pages_free(self):
        held = [self.ask("/login", "POST") for _ in range(MAX_SIGN_INS)]
        self.assertEqual({status_of(each) for each in held}, {None})
        self.assertEqual(status_of(self.ask("/login", "POST")), 503)
        self.assertIsNone(status_of(self.ask("/page")))


class ServiceTests(SynchronousTestCase):
    def test_idle_connection_is_closed(self):
        reactor = MemoryReactorClock()
        service = ConsoleService(reactor, ConsoleSettings(console=ConsoleConfig(console_login="accounts")))
        service.startService()
        self.addCleanup(service.stopService)
        protocol, transport = reactor.tcpServers[0][1].buildProtocol(None), StringTransport()
        protocol.makeConnection(transport)
        protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(status_of(transport), 200)
        reactor.advance(IDLE_SECONDS - 1)
        self.assertFalse(transport.disconnecting)
        reactor.advance(1)
        self.assertTrue(transport.disconnecting)
