"""Admission of slaves: addresses, certificates, limits of idle connections."""

from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.replication.as_master.slave_admission import SlaveAdmission
from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.common.logs.throttle import INTERVAL
from rocketd.common.settings.declaration import ConfigError
from rocketd.store.base.settings import MessageStoreConfig

SLAVE, STRANGER = "10.0.0.9", "10.0.0.66"


class Connection:
    def __init__(self, host, certificate=False, is_local=False):
        self.host = host
        self.is_local = is_local
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
        self.config.ha_allowed_addresses = f"loopback,{SLAVE}"
        self.peers = TrustedPeers(self.config, self.clock)
        self.admission = SlaveAdmission(self.config, self.clock, self.peers)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def open(self, host, *, report=False, **how):
        connection = Connection(host, **how)
        self.admission.opened(connection)
        if report:
            self.admission.reported(connection)
        return connection

    def state(self, host, **how):
        return self.open(host, report=True, **how).state

    def lines(self):
        events, self.events[:] = list(self.events), []
        return [formatEvent(event) for event in events]

    def test_listed_host_becomes_slave_with_first_report(self):
        connection = self.open(SLAVE)
        self.assertEqual(connection.state, "open")
        self.admission.reported(connection)
        self.assertEqual(connection.state, "slave")

    def test_stranger_is_closed_and_setting_is_logged(self):
        self.assertEqual(self.state(STRANGER), "aborted")
        (line,) = self.lines()
        self.assertEqual(
            line,
            "10.0.0.66:4097 is not accepted as a slave: its address is not in haAllowedAddresses (loopback,10.0.0.9); if "
            "it is a slave of this broker, add its address",
        )
        self.config.ha_tls_mode = "permissive"
        self.clock.advance(INTERVAL)
        self.state(STRANGER)
        self.assertIn("(loopback,10.0.0.9), and it has shown no certificate", self.lines()[0])

    def test_refusals_are_counted_and_logged_once_a_minute(self):
        for _ in range(100):
            self.state(STRANGER)
        self.assertEqual((len(self.lines()), self.admission.refused), (1, 100))
        self.clock.advance(INTERVAL)
        self.state(STRANGER)
        self.assertIn(" (99 more like this were not logged)", self.lines()[0])

    def test_list_may_change(self):
        self.config.ha_allowed_addresses = "10.0.0.66,192.0.2.0/24"
        self.assertEqual([self.state(host) for host in (SLAVE, "192.0.2.9", STRANGER)], ["aborted", "slave", "slave"])

    def test_loopback_stands_for_all_addresses_of_this_machine(self):
        self.assertEqual(self.state("203.0.113.5", is_local=True), "slave")
        self.config.ha_allowed_addresses = SLAVE
        self.assertEqual(self.state("203.0.113.5", is_local=True), "aborted")

    def test_certificate_identifies_connection_and_makes_its_host_a_trusted_peer(self):
        self.assertEqual(self.state(STRANGER, certificate=True), "slave")
        self.assertEqual(self.state(STRANGER), "aborted")
        self.assertTrue(self.peers.trusts(STRANGER))

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
        self.config.ha_allowed_addresses = "10.0.0.1,10.0.0.2"
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


class SettingTests(SynchronousTestCase):
    def test_list_has_networks_and_no_other_words(self):
        settings, _ = BrokerSettings.load(None, [("haAllowedAddresses", "loopback, 10.0.0.0/8")])
        self.assertEqual(settings.store.ha_allowed_addresses, "loopback, 10.0.0.0/8")
        for key in ("haAllowedAddresses", "adminWithoutAcl"):
            with self.assertRaisesRegex(ConfigError, key):
                BrokerSettings.load(None, [(key, "brokers")])

    def test_slave_uses_tls_if_plain_connections_are_refused(self):
        for given, expected in (
            ({}, False),
            ({"haTlsMode": "permissive"}, False),
            ({"haTlsMode": "enforcing"}, True),
            ({"haTlsMode": "enforcing", "haTlsEnable": "false"}, False),
        ):
            settings, _ = BrokerSettings.load(None, given.items())
            self.assertEqual(settings.store.ha_tls_enable, expected, given)
