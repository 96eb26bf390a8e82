"""The backlog and the idle time of connections are those that the settings of both daemons say, Apache's by default."""

import os

from twisted.internet.testing import StringTransport

from rocketd.namesrv.service import NameServer
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.store.base.filesystem import RealFileSystem
from tests.support.broker_service import BrokerTestCase

BROKER_PORTS = (20911, 20909)
NAME_SERVER_PORTS = (9876,)
LIMIT = 200  # seconds


class DaemonConnectionTests(BrokerTestCase):
    def start_both(self, **options):
        """Start a broker and a name server with the same settings."""
        given = {"kvConfigPath": f"{self.directory}/kvConfig.json", "tls.server.mode": "disabled", **options}
        settings, _ = NamesrvSettings.load(None, list(given.items()))
        os.mkdir(self.directory)
        name_server = NameServer(settings, self.reactor, RealFileSystem())
        name_server.startService()
        both = (self.start(**options), name_server)
        for daemon in both:
            self.addCleanup(self.stop, daemon)
        return both

    def backlogs(self):
        ports = (*BROKER_PORTS, *NAME_SERVER_PORTS)
        return {server[0]: server[2] for server in self.reactor.tcpServers if server[0] in ports}

    def seconds_until_closed(self, daemon):
        """Advance the clock until a silent connection is closed; return how long that took, at most LIMIT."""
        connection, transport = daemon.server.make_connection(), StringTransport()
        connection.makeConnection(transport)
        seconds = 0
        while not transport.disconnected and seconds < LIMIT:
            self.reactor.advance(1)
            seconds += 1
        connection.connectionLost()
        return seconds

    def test_backlog_is_1024_or_the_setting(self):
        self.start_both()
        self.assertEqual(self.backlogs(), dict.fromkeys((*BROKER_PORTS, *NAME_SERVER_PORTS), 1024))
        self.reactor.tcpServers.clear()
        self.directory = os.path.abspath(self.mktemp())
        self.start_both(serverSocketBacklog="77")
        self.assertEqual(self.backlogs(), dict.fromkeys((*BROKER_PORTS, *NAME_SERVER_PORTS), 77))

    def test_slow_peer_is_read_again_below_low_water_mark(self):
        marks = {"writeBufferHighWaterMark": "400000", "writeBufferLowWaterMark": "300000"}
        for daemon in self.start_both(**marks):
            connection, transport = daemon.server.make_connection(), StringTransport()
            connection.makeConnection(transport)
            connection.write([bytes(100_000)] * 5)
            self.reactor.advance(0)
            self.assertEqual(transport.producerState, "paused")
            while transport.producerState == "paused":
                transport.producer.resumeProducing()
            self.assertIn(connection._outbound_bytes, range(1, 300_001))
            connection.connectionLost()

    def test_idle_time_is_120_s_by_default(self):
        for daemon in self.start_both():
            self.assertIn(self.seconds_until_closed(daemon), range(120, 127))

    def test_idle_time_follows_the_setting(self):
        for daemon in self.start_both(serverChannelMaxIdleTimeSeconds="30"):
            self.assertIn(self.seconds_until_closed(daemon), range(30, 37))

    def test_idle_time_of_0_closes_nothing(self):
        for daemon in self.start_both(serverChannelMaxIdleTimeSeconds="0"):
            self.assertEqual(self.seconds_until_closed(daemon), LIMIT)
