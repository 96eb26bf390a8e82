"""The whole name server: pools, and settings changed by a request."""

import os
from pathlib import Path

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.settings.daemon_settings import UpdateResult
from rocketd.namesrv.service import NameServer
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.serving.plugins import load_processors
from rocketd.remoting.serving.pools import Job
from rocketd.store.base.filesystem import RealFileSystem


class PoolTests(SynchronousTestCase):
    def setUp(self):
        settings, _ = NamesrvSettings.load(None, [], home=os.path.abspath(self.mktemp()))
        reactor = MemoryReactorClock()
        reactor.callFromThread = reactor.callLater
        self.server = NameServer(settings, reactor, RealFileSystem())

    def order(self, pool_name, *connections):
        """Return the indices of connections in the order in which a pool handles their jobs."""
        pool, seen = self.server.dispatcher.pool(pool_name), []

        class Handler:
            def process_jobs(self, jobs):
                seen.extend(job.received_ms for job in jobs)

        handler = Handler()
        for index, connection in enumerate(connections):
            pool.submit(Job(handler, connection, [(0, b"h", b"")], index))
        pool.start()
        pool.stop()
        return seen

    def test_routes_registrations_and_others_have_separate_pools(self):
        dispatcher = self.server.dispatcher
        load_processors(dispatcher, "namesrv", self.server)
        pools = {code: dispatcher.target_of(code)[0].name for code in (105, 103, 104, 322, 100, 106, 206)}
        self.assertEqual(
            pools,
            {
                105: "routes", 103: "registrations", 104: "registrations", 322: "registrations",
                100: "namesrv", 106: "namesrv", 206: "namesrv",
            },
        )  # fmt: skip

    def test_pools_are_fair_and_keep_registration_order_of_host(self):
        first, second, other = (self.server.server.make_connection() for _ in range(3))
        first.host, second.host, other.host = b"aaaa0001", b"aaaa0002", b"bbbb0001"
        jobs = (first, first, second, other)
        for pool in ("routes", "namesrv"):
            self.assertEqual(self.order(pool, *jobs), [0, 2, 3, 1])
        self.assertEqual(self.order("registrations", *jobs), [0, 3, 1, 2])

    def test_connection_close_is_handled_after_its_registrations(self):
        connection = self.server.server.make_connection()
        connection.host = b"aaaa0001"
        pool, seen = self.server.dispatcher.pool("registrations"), []
        self.server.routes.on_connection_closed = lambda closed: seen.append(closed)

        class Handler:
            def process_jobs(self, jobs):
                seen.extend(job.received_ms for job in jobs)

        handler = Handler()
        for index in range(3):
            pool.submit(Job(handler, connection, [(0, b"h", b"")], index))
        self.server.connection_lost(connection)
        pool.start()
        pool.stop()
        self.assertEqual(seen, [0, 1, 2, connection])


class ChangeTests(SynchronousTestCase):
    def make(self, settings):
        reactor = MemoryReactorClock()
        reactor.callFromThread = reactor.callLater
        return NameServer(settings, reactor, RealFileSystem())

    def test_update_to_tls_mode_without_key_is_refused(self):
        home = os.path.abspath(self.mktemp())
        settings, _ = NamesrvSettings.load(None, [("tls.test.mode.enable", "false")], home=home)
        self.make(settings)
        refused, taken = settings.update("tls.server.mode=enforcing")[0], settings.update("serverSocketBacklog=7")[0]
        self.assertIs(refused.outcome, UpdateResult.BAD_VALUE)
        self.assertEqual(refused.explanation, "the next start would fail: tls.server.keyPath is not set")
        self.assertIs(taken.outcome, UpdateResult.RESTART)

    def test_stored_value_of_given_file_replaces_older_kept_value(self):
        home = os.path.abspath(self.mktemp())
        name_server = self.make(NamesrvSettings.load(home=home)[0])
        name_server.store_settings({"serverSocketBacklog": "77"})
        given = Path(home, "namesrv.conf")
        given.write_text("")
        name_server = self.make(NamesrvSettings.load(str(given), home=home)[0])
        name_server.store_settings({"serverSocketBacklog": "88", "listenPort": "1"})
        self.assertEqual(given.read_text(), "serverSocketBacklog=88\nlistenPort=1\n")
        settings, _ = NamesrvSettings.load(home=home)
        self.assertEqual((settings.server.server_socket_backlog, settings.server.listen_port), (88, 9876))
