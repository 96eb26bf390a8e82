"""Admission: limits in all and per address, rules, and real connections that are refused."""

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rocketd.remoting.limits.connection_limit import (
    AddressCounts,
    ConnectionAdmission,
    address_key,
    descriptor_limit,
    plain_host,
)
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.server import RemotingServer
from rocketd.remoting.serving.settings import ServerLimits
from rocketd.remoting.settings import TlsConfig
from rocketd.remoting.tls.port import wrap_server_factory


class AdmissionTests(SynchronousTestCase):
    def setUp(self):
        self.now = 0.0
        self.lines = []
        log = Logger(observer=self.lines.append)
        self.log = LimitLog(log, lambda: self.now)

    def admitted(self, admission, host, times):
        return [key for key in [admission.admit(host) for _ in range(times)] if key is not None]

    def test_connections_beyond_the_limit_are_refused_until_one_ends(self):
        admission = ConnectionAdmission(self.log, 3)
        keys = self.admitted(admission, "10.0.0.1", 2) + self.admitted(admission, "10.0.0.2", 2)
        self.assertEqual(keys, ["10.0.0.1", "10.0.0.1", "10.0.0.2"])
        self.assertEqual(admission.connections, 3)
        admission.leave("10.0.0.1")
        self.assertEqual(self.admitted(admission, "10.0.0.3", 2), ["10.0.0.3"])
        self.assertEqual(self.log.counts, {"connections refused": 2})

    def test_address_limit_covers_every_form_of_address(self):
        admission = ConnectionAdmission(self.log, 100, 2)
        self.assertEqual(
            len(self.admitted(admission, "10.0.0.1", 1) + self.admitted(admission, "::ffff:10.0.0.1", 3)), 2
        )
        six = [f"2001:db8::{n}" for n in range(3)]
        self.assertEqual([admission.admit(host) for host in six], ["2001:db8::/64", "2001:db8::/64", None])
        self.assertEqual(self.log.counts, {"connections refused of one address": 3})
        for _ in range(2):
            admission.leave("10.0.0.1")
        self.assertEqual(len(self.admitted(admission, "10.0.0.1", 3)), 2)

    def test_busiest_address_makes_room_for_another(self):
        admission = ConnectionAdmission(self.log, 3)
        self.admitted(admission, "10.0.0.1", 3)
        self.assertIsNone(admission.admit("10.0.0.2"), "nobody makes room")
        asked = []
        admission.make_room = lambda key: asked.append(key) or admission.leave(key) or True
        self.assertIsNone(admission.admit("10.0.0.1"), "it is the busiest itself")
        self.assertEqual((admission.admit("10.0.0.2"), asked), ("10.0.0.2", ["10.0.0.1"]))
        self.assertIsNone(admission.admit("10.0.0.2"), "it would then be the busiest")
        self.assertEqual(admission.connections, 3)
        self.assertEqual(self.log.counts, {"connections refused": 3, "connections closed for another address": 1})

    def test_busiest_address_is_found_among_many_at_once(self):
        counts = AddressCounts()
        self.assertIsNone(counts.busiest())
        for key, times in (("a", 2), ("b", 3), ("c", 1)):
            for _ in range(times):
                counts.add(key)
        self.assertEqual(counts.busiest(), "b")
        counts.remove("b")
        counts.remove("b")
        self.assertEqual(([counts[key] for key in "abcd"], counts.busiest()), ([2, 1, 1, 0], "a"))
        for key in "aabc":
            counts.remove(key)
        self.assertIsNone(counts.busiest())

    def test_refusals_are_logged_once_a_minute_with_their_count(self):
        admission = ConnectionAdmission(self.log, 1)
        self.admitted(admission, "10.0.0.1", 11)
        self.now = 61.0
        admission.admit("10.0.0.1")
        self.assertEqual([line["limit_total"] for line in self.lines], [1, 11])

    def test_rule_refusal_is_logged_with_reason(self):
        admission = ConnectionAdmission(self.log)
        admission.rules.append(lambda host: "not in the list" if host.startswith("10.") else None)
        self.assertIsNone(admission.admit("::ffff:10.0.0.1"))
        self.assertEqual(admission.admit("192.0.2.1"), "192.0.2.1")
        (line,) = self.lines
        self.assertEqual((line["host"], line["why"]), ("10.0.0.1", "not in the list"))

    def test_open_files_bound_the_limit(self):
        self.assertEqual(ConnectionAdmission(self.log).max_connections, descriptor_limit())
        self.assertEqual(ConnectionAdmission(self.log, 1 << 40).max_connections, descriptor_limit())

    def test_plain_host_and_address_key(self):
        self.assertEqual(plain_host("fe80::1%eth0"), "fe80::1")
        self.assertEqual(plain_host("::ffff:192.0.2.7"), "192.0.2.7")
        self.assertEqual(address_key("::1"), "::1")
        self.assertEqual(address_key("2001:db8:0:1:2::3"), "2001:db8:0:1::/64")


class Client(Protocol):
    def __init__(self):
        self.closed = Deferred()

    def connectionLost(self, reason=None):
        self.closed.callback(None)


class SocketTests(TestCase):
    timeout = 60

    async def refused_beyond_limit(self, **options):
        limits = ServerLimits(server_max_connections_per_address=2)
        server = RemotingServer(
            reactor, Dispatcher(reactor.callFromThread), port=0, interface="127.0.0.1", limits=limits, **options
        )
        server.startService()
        self.addCleanup(server.stopService)
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", server.port)
        clients = [await connectProtocol(endpoint, Client()) for _ in range(3)]
        await clients[2].closed
        self.assertEqual(server.admission.connections, 2)
        clients[0].transport.loseConnection()
        while server.admission.connections > 1:
            await deferLater(reactor, 0.001)
        clients.append(await connectProtocol(endpoint, Client()))
        while server.admission.connections < 2:
            await deferLater(reactor, 0.001)
        self.assertFalse(clients[3].closed.called)
        for client in clients:
            client.transport.abortConnection()
        while server.admission.connections:
            await deferLater(reactor, 0.001)

    async def test_connection_beyond_limit_is_closed(self):
        await self.refused_beyond_limit()

    async def test_connection_beyond_limit_is_closed_before_tls_detection(self):
        await self.refused_beyond_limit(wrap=wrap_server_factory(TlsConfig(), reactor))
