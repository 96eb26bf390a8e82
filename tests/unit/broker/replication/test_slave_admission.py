"""Admission of slaves: addresses, certificates, limits of idle connections, brokers known from name servers."""

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.replication.known_brokers import LOOK_SECONDS, REMEMBER_SECONDS, KnownBrokers
from rocketd.broker.replication.slave_admission import SlaveAdmission
from rocketd.common.config import ConfigError
from rocketd.common.log_throttle import INTERVAL
from rocketd.remoting.bodies.tables import BrokerData, ClusterInfo
from rocketd.remoting.errors import RemotingConnectError
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.settings import MessageStoreConfig

SLAVE, STRANGER = "10.0.0.9", "10.0.0.66"


class Brokers:
    """``looking`` fires when name servers have answered."""

    def __init__(self, *known):
        self.known = set(known)
        self.looking = succeed(None)
        self.looks = 0

    def knows(self, host):
        return host in self.known

    def look(self):
        self.looks += 1
        return self.looking


class Connection:
    def __init__(self, host, certificate=False):
        self.host = host
        self.address = f"{host}:4097"
        self.has_certificate = certificate
        self.state = "open"

    def abort(self):
        self.state = "aborted"

    def identified(self):
        self.state = "slave"


class AdmissionTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.config = MessageStoreConfig()
        self.brokers = Brokers(SLAVE)
        self.admission = SlaveAdmission(self.config, self.clock, self.brokers)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def open(self, host, *, certificate=False, report=False):
        connection = Connection(host, certificate)
        if not self.admission.opened(connection):
            return None
        if report:
            self.admission.reported(connection)
        return connection

    def state(self, host, **how):
        connection = self.open(host, report=True, **how)
        return connection and connection.state

    def lines(self):
        events, self.events[:] = list(self.events), []
        return [formatEvent(event) for event in events]

    def test_known_broker_becomes_slave_with_first_report(self):
        connection = self.open(SLAVE)
        self.assertEqual(connection.state, "open")
        self.admission.reported(connection)
        self.assertEqual(connection.state, "slave")

    def test_stranger_is_closed_and_setting_is_logged(self):
        self.assertEqual(self.state(STRANGER), "aborted")
        (line,) = self.lines()
        self.assertEqual(
            line,
            "10.0.0.66:4097 is not accepted as a slave: haAllowedAddresses is brokers, and at this address the name "
            "servers know no broker of this brokerName, or none that answers as a slave; if it is a slave, add its "
            "address",
        )

    def test_refusals_are_counted_and_logged_once_a_minute(self):
        for _ in range(100):
            self.state(STRANGER)
        self.assertEqual((len(self.lines()), self.admission.refused), (1, 100))
        self.clock.advance(INTERVAL)
        self.state(STRANGER)
        self.assertIn(" (99 more like this were not logged)", self.lines()[0])

    def test_newly_registered_slave_is_waited_for(self):
        self.brokers.looking = Deferred()
        connection = self.open("10.0.0.10", report=True)
        self.assertEqual(connection.state, "open")
        self.brokers.known.add("10.0.0.10")
        self.brokers.looking.callback(None)
        self.assertEqual(connection.state, "slave")

    def test_connection_lost_during_lookup_is_forgotten(self):
        self.brokers.looking = Deferred()
        connection = self.open(STRANGER, report=True)
        self.admission.closed(connection)
        self.brokers.looking.callback(None)
        self.assertEqual((connection.state, self.admission.refused), ("open", 0))

    def test_address_list_decides_without_name_servers(self):
        self.config.ha_allowed_addresses = "10.0.0.66,192.0.2.0/24"
        self.assertEqual(self.state(STRANGER), "slave")
        self.assertEqual(self.state("192.0.2.9"), "slave")
        self.assertIsNone(self.state(SLAVE))
        self.assertIsNone(self.state(SLAVE, certificate=True))
        self.assertEqual(self.brokers.looks, 0)

    def test_list_with_brokers_takes_both(self):
        self.config.ha_allowed_addresses = "brokers,192.0.2.0/24"
        self.assertEqual([self.state(host) for host in (SLAVE, "192.0.2.9", STRANGER)], ["slave", "slave", "aborted"])

    def test_certificate_identifies_at_any_address(self):
        self.assertEqual(self.state(STRANGER, certificate=True), "slave")

    def test_idle_connections_make_room_for_new_ones(self):
        idle = [self.open(STRANGER) for _ in range(70)]
        self.assertEqual([connection.state for connection in idle].count("open"), 64)
        self.assertEqual([connection.state for connection in idle[:6]], ["aborted"] * 6)
        self.assertEqual(self.state(SLAVE), "slave")

    def test_new_connection_replaces_idle_one_of_busiest_address(self):
        first = self.open(SLAVE)
        for _ in range(200):
            self.open(STRANGER)
        self.assertEqual(first.state, "open")
        self.admission.reported(first)
        self.assertEqual(first.state, "slave")

    def test_connection_without_report_is_closed_in_time(self):
        connection = self.open(SLAVE)
        self.clock.advance(14.9)
        self.admission.close_unidentified()
        self.assertEqual(connection.state, "open")
        self.clock.advance(0.1)
        self.admission.close_unidentified()
        self.assertEqual(connection.state, "aborted")
        self.assertIn("made no report within 15 s (haIdentifyTimeout)", self.lines()[0])

    def test_slaves_are_limited_in_total_and_by_address(self):
        self.config.ha_max_slaves, self.config.ha_max_slaves_per_address = 5, 3
        self.brokers.known = {"10.0.0.1", "10.0.0.2"}
        states = [self.state("10.0.0.1") for _ in range(4)] + [self.state("10.0.0.2") for _ in range(3)]
        self.assertEqual(states, [*["slave"] * 3, "aborted", "slave", "slave", "aborted"])
        lines = self.lines()
        self.assertIn("3 slaves are connected from its address (haMaxSlavesPerAddress)", lines[0])
        self.assertIn("5 slaves are connected (haMaxSlaves)", lines[1])

    def test_lost_slave_frees_its_place(self):
        self.config.ha_max_slaves = 1
        first = self.open(SLAVE, report=True)
        self.assertEqual(self.state(SLAVE), "aborted")
        self.admission.closed(first)
        self.assertEqual(self.state(SLAVE), "slave")


class FakeReactor(Clock):
    def getThreadPool(self):
        return self

    def callInThreadWithCallback(self, on_result, function, *arguments):
        on_result(True, function(*arguments))

    def callFromThread(self, function, *arguments):
        function(*arguments)


class NameServers:
    """A client and the brokers that each name server answers with; None: it cannot be reached."""

    def __init__(self, **answers):
        self.answers = answers
        self.name_servers = self
        self.asked = 0

    @property
    def addresses(self):
        return list(self.answers)

    def invoke_sync(self, address, request, timeout_ms):
        self.asked += 1
        brokers = self.answers[address]
        if brokers is None:
            return fail(RemotingConnectError(address))
        data = BrokerData("c", "broker-a", dict(enumerate(brokers)))
        other = BrokerData("c", "broker-b", {0: "10.0.0.99:1"})
        info = ClusterInfo({"broker-a": data, "broker-b": other}, {})
        return succeed(RemotingCommand.response(body=info.encode()))


class Broker:
    address = "10.0.0.1:10911"

    def __init__(self):
        self.settings, _ = BrokerSettings.load(None, [("brokerName", "broker-a")])


class KnownBrokersTests(SynchronousTestCase):
    def setUp(self):
        self.reactor = FakeReactor()
        self.others = set()

    def make(self, **answers):
        self.servers = NameServers(**answers)
        self.known = KnownBrokers(Broker(), self.servers, self.reactor, self.is_slave)

    async def is_slave(self, address):
        return address not in self.others

    def look(self):
        self.reactor.advance(LOOK_SECONDS)
        self.successResultOf(self.known.look())

    def test_brokers_of_same_name_are_known_from_all_name_servers(self):
        self.make(
            n1=["10.0.0.1:10911", "10.0.0.9:10911"], n2=["nonsense", "10.0.0.1:10911", "[2001:db8::7]:1"], n3=None
        )
        self.look()
        hosts = ["10.0.0.9", "::ffff:10.0.0.9", "[2001:db8::7]", "10.0.0.1", "10.0.0.99", "127.0.0.1", "nonsense"]
        self.assertEqual([host for host in hosts if self.known.knows(host)], hosts[:3])

    def test_registered_broker_is_known_once_it_answers_as_slave(self):
        self.make(n1=["10.0.0.1:10911", "10.0.0.9:10911"])
        self.others = {"10.0.0.9:10911"}
        self.look()
        self.assertFalse(self.known.knows("10.0.0.9"))
        self.others = set()
        self.look()
        self.assertTrue(self.known.knows("10.0.0.9"))

    def test_slave_on_this_machine_makes_its_addresses_known(self):
        self.make(n1=["10.0.0.1:10911", "127.0.0.1:20911"])
        self.assertFalse(self.known.knows("127.0.0.1"))
        self.look()
        self.assertTrue(self.known.knows("127.0.0.1"))
        self.assertTrue(self.known.knows("::1"))

    def test_name_is_resolved(self):
        self.make(n1=["10.0.0.1:10911", "localhost:20911", "no.such.host.invalid:1"])
        self.look()
        self.assertTrue(self.known.knows("127.0.0.1"))

    def test_name_servers_are_asked_once_per_interval(self):
        self.make(n1=["10.0.0.1:10911"])
        self.look()
        for _ in range(5):
            self.successResultOf(self.known.look())
        self.assertEqual(self.servers.asked, 1)
        self.look()
        self.assertEqual(self.servers.asked, 2)

    def test_broker_is_remembered_for_a_while_and_without_name_servers(self):
        self.make(n1=["10.0.0.1:10911", "10.0.0.9:10911"])
        self.look()
        self.servers.answers["n1"] = None
        self.reactor.advance(10 * REMEMBER_SECONDS)
        self.look()
        self.assertTrue(self.known.knows("10.0.0.9"))
        self.servers.answers["n1"] = []
        self.look()
        self.reactor.advance(REMEMBER_SECONDS / 2)
        self.look()
        self.assertTrue(self.known.knows("10.0.0.9"))
        self.reactor.advance(REMEMBER_SECONDS / 2)
        self.look()
        self.assertFalse(self.known.knows("10.0.0.9"))

    def test_private_networks_are_taken_without_name_servers(self):
        self.make()
        self.assertTrue(self.known.knows("10.0.0.9"))
        self.assertFalse(self.known.knows("203.0.113.9"))


class SettingTests(SynchronousTestCase):
    def test_brokers_word_is_allowed_in_list_of_slaves_only(self):
        settings, _ = BrokerSettings.load(None, [("haAllowedAddresses", "brokers, 10.0.0.0/8")])
        self.assertEqual(settings.store.ha_allowed_addresses, "brokers, 10.0.0.0/8")
        for key in ("haAllowedAddresses", "adminWithoutAcl"):
            with self.assertRaisesRegex(ConfigError, key):
                BrokerSettings.load(None, [(key, "broker")])
        with self.assertRaisesRegex(ConfigError, "adminWithoutAcl"):
            BrokerSettings.load(None, [("adminWithoutAcl", "brokers")])

    def test_slave_uses_tls_if_plain_connections_are_refused(self):
        for given, expected in (
            ({}, False),
            ({"haTlsMode": "permissive"}, False),
            ({"haTlsMode": "enforcing"}, True),
            ({"haTlsMode": "enforcing", "haTlsEnable": "false"}, False),
        ):
            settings, _ = BrokerSettings.load(None, given.items())
            self.assertEqual(settings.store.ha_tls_enable, expected, given)
