"""The broker put together: what is opened and closed in which order, and what an operator reads."""

import os
from time import monotonic

from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker.address import AdvertisedAddress
from rocketd.broker.clients import ClientChannelInfo
from rocketd.broker.interfaces import IBroker
from rocketd.broker.json_file import JsonFileError
from rocketd.broker.service import START_ERRORS, Broker
from rocketd.broker.settings import BrokerSettings
from rocketd.broker.testing import BORN_HOST, RecordingConnection
from rocketd.common.config import ConfigError
from rocketd.remoting.bodies import ConsumerData
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.headers import RegisterBrokerResponseHeader
from rocketd.store.errors import StoreLockedError
from rocketd.store.filesystem import RealFileSystem
from rocketd.store.message import MessageInner


class InlineThreads:
    def callInThreadWithCallback(self, on_result, function, *args, **kwargs):
        try:
            result = function(*args, **kwargs)
        except BaseException:
            on_result(False, Failure())
        else:
            on_result(True, result)


class FakeReactor(MemoryReactorClock):
    def callFromThread(self, function, *args, **kwargs):
        self.callLater(0, function, *args, **kwargs)

    def getThreadPool(self):
        return InlineThreads()


class FailingFileSystem(RealFileSystem):
    full = False

    def write_file(self, path, data):
        if self.full and path.endswith("consumerOffset.json.tmp"):
            raise OSError(28, "No space left on device")
        super().write_file(path, data)


class BrokerTestCase(SynchronousTestCase):
    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())
        self.reactor = FakeReactor()
        self.disk = FailingFileSystem()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def make(self, advertised=None, **options):
        given = {
            "storePathRootDir": self.directory,
            "listenPort": "20911",
            "brokerName": "broker-a",
            "brokerIP1": "10.0.0.1",
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": "6000",
            "maxHashSlotNum": "100",
            "maxIndexNum": "400",
            "diskMaxUsedSpaceRatio": "99",
            "tls.server.mode": "disabled",
            **options,
        }
        settings, _ = BrokerSettings.load(None, list(given.items()))
        return Broker(settings, self.reactor, self.disk, lambda: 1_800_000_000_000, advertised)

    def start(self, *args, **options):
        broker = self.make(*args, **options)
        broker.startService()
        return broker

    def stop(self, broker):
        result = broker.stopService()
        for _ in range(20):
            self.reactor.advance(0.5)  # name servers are given some time
        self.successResultOf(result)

    def lines(self, level=LogLevel.info):
        return [formatEvent(event) for event in self.events if event["log_level"] == level]


class LifeTests(BrokerTestCase):
    def test_interface(self):
        broker = self.start()
        verifyObject(IBroker, broker)
        self.stop(broker)

    def test_nothing_is_opened_before_the_start(self):
        self.make()
        self.assertFalse(os.path.exists(self.directory))
        self.assertEqual(self.reactor.tcpServers, [])

    def test_ports(self):
        broker = self.start()
        self.assertEqual([server[0] for server in self.reactor.tcpServers], [20911, 20909, 20912])
        self.assertEqual((broker.address, broker.ha_address.rpartition(":")[2]), ("10.0.0.1:20911", "20912"))
        self.stop(broker)

    def test_ipv6_addresses_stand_in_brackets(self):
        broker = self.start(brokerIP1="2001:db8::1", brokerIP2="2001:db8::2", haListenPort="7")
        self.assertEqual((broker.address, broker.ha_address), ("[2001:db8::1]:20911", "[2001:db8::2]:7"))
        self.assertEqual(len(broker.store_host), 20)
        self.stop(broker)

    def test_what_the_operator_reads(self):
        broker = self.start()
        self.stop(broker)
        text = "\n".join(self.lines())
        for part in (
            "registered as 10.0.0.1:20911 (brokerIP1 says so); set brokerIP1 to register another address",
            f"broker broker-a of cluster DefaultCluster serves on port 20911, store {self.directory}, name servers none",
            "broker broker-a stopped",
        ):
            self.assertIn(part, text)
        self.assertEqual(self.lines(LogLevel.warn), [])

    def test_a_doubtful_address_is_a_warning(self):
        self.stop(self.start(AdvertisedAddress("127.0.0.1", "so", "nobody reaches it")))
        self.assertEqual(self.lines(LogLevel.warn), ["nobody reaches it; set brokerIP1"])

    def test_a_name_that_does_not_resolve_is_registered_with_a_warning(self):
        broker = self.start(brokerIP1="nosuch.invalid")
        self.assertEqual(broker.address, "nosuch.invalid:20911")
        self.stop(broker)
        (line,) = self.lines(LogLevel.warn)
        self.assertIn("brokerIP1 = nosuch.invalid cannot be resolved here", line)

    def test_stored_and_loaded(self):
        broker = self.start()
        broker.offsets.commit("c", "G", "T", 0, 5)
        message = MessageInner("T", 0, 0, 0, 0, BORN_HOST, 0, 0, b"x", b"", 0)
        broker.dispatcher.pool("send").call(lambda: broker.store.put_messages([message]))
        self.assertTrue(os.path.exists(os.path.join(self.directory, "abort")))
        self.stop(broker)
        self.assertFalse(os.path.exists(os.path.join(self.directory, "abort")))
        broker = self.start()
        self.assertEqual(broker.offsets.query("G", "T", 0), 5)
        self.assertEqual(broker.store.get_max_offset("T", 0), 1)
        self.stop(broker)

    def test_a_table_that_cannot_be_written_does_not_keep_the_messages_from_the_disk(self):
        broker = self.start()
        broker.offsets.commit("c", "G", "T", 0, 5)
        broker.groups.find("Made")
        self.disk.full = True
        self.stop(broker)
        self.assertIn("No space left", "\n".join(self.lines(LogLevel.error)))
        self.assertFalse(os.path.exists(os.path.join(self.directory, "abort")))
        self.assertTrue(os.path.exists(os.path.join(self.directory, "config", "subscriptionGroup.json")))

    def test_no_timer_outlives_it(self):
        broker = self.start(namesrvAddr="10.0.0.9:9876")
        self.stop(broker)
        self.reactor.advance(4)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class FailedStartTests(BrokerTestCase):
    def assert_nothing_is_open(self, broker):
        self.assertFalse(broker.running)
        other = self.start()  # the store's lock is free
        self.stop(other)

    def test_a_wrong_delay_level(self):
        self.assertRaises(ConfigError, self.make, messageDelayLevel="1x")

    def test_a_store_of_another(self):
        first = self.start()
        second = self.make()
        self.assertRaises(StoreLockedError, second.startService)
        self.assertFalse(second.running)
        self.stop(first)
        self.assert_nothing_is_open(second)

    def test_a_damaged_table(self):
        config = os.path.join(self.directory, "config")
        os.makedirs(config)
        path = os.path.join(config, "delayOffset.json")
        with open(path, "w") as file:
            file.write("{")
        broker = self.make()
        error = self.assertRaises(JsonFileError, broker.startService)
        self.assertIsInstance(error, START_ERRORS)
        os.remove(path)
        self.assert_nothing_is_open(broker)


class WorkTests(BrokerTestCase):
    def setUp(self):
        super().setUp()
        self.broker = self.start()
        self.addCleanup(lambda: self.stop(self.broker))

    def drain(self, pool):
        """Return when a pool has done what it was given."""
        done = []
        self.broker.dispatcher.pool(pool).call(lambda: done.append(True))
        while not done:
            pass

    def test_a_lost_connection_takes_its_clients_along(self):
        connection = RecordingConnection()
        self.broker.consumers.register(ClientChannelInfo(connection, "c", 0, 0, 0), ConsumerData("G"), notify=False)
        self.broker.connection_lost(connection)
        self.drain("client")
        self.assertIsNone(self.broker.consumers.find("G"))

    def test_silent_clients_are_scanned_away(self):
        self.broker.consumers.register(
            ClientChannelInfo(RecordingConnection(), "c", 0, 0, 0), ConsumerData("G"), notify=False
        )
        self.reactor.advance(10)
        self.drain("client")
        self.assertIsNone(self.broker.consumers.find("G"))

    def test_offsets_are_written_every_5_seconds(self):
        self.broker.offsets.commit("c", "G", "T", 0, 5)
        self.reactor.advance(5)
        self.wait_for_file("consumerOffset.json")

    def wait_for_file(self, name):
        path = os.path.join(self.directory, "config", name)
        deadline = monotonic() + 60
        while not os.path.exists(path):
            self.assertLess(monotonic(), deadline, f"{name} is not written")

    def test_a_table_that_cannot_be_written_is_logged_once_and_written_later(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)

        def failures():
            return [event for event in events if "cannot be written" in (event.get("log_format") or "")]

        self.disk.full = True
        self.broker.offsets.commit("c", "G", "T", 0, 5)
        self.reactor.advance(5)
        deadline = monotonic() + 60
        while not failures():
            self.assertLess(monotonic(), deadline)
        self.disk.full = False
        # Nothing else asks for it: the writer itself tries again.
        self.wait_for_file("consumerOffset.json")
        self.assertEqual(len(failures()), 1)

    def test_a_periodic_task_that_fails_is_logged_and_done_again(self):
        calls = []

        def failing():
            calls.append(True)
            raise OSError(5, "Input/output error")

        self.broker.offsets.save = failing
        for _ in range(2):
            self.reactor.advance(5)
            self.drain("admin")
        self.assertEqual((len(calls), len(self.flushLoggedErrors(OSError))), (2, 2))

    def test_deliveries_do_not_pile_up_and_survive_an_error(self):
        calls = []

        def failing():
            calls.append(True)
            raise KeyError("oops")

        self.broker.schedule.deliver_due = failing
        for _ in range(3):
            self.reactor.advance(0.1)
            self.drain("send")
        self.assertEqual((len(calls), len(self.flushLoggedErrors(KeyError))), (3, 3))

    def test_measured_values_in_words(self):
        self.broker.store.last_append_ms = 12.4
        self.assertEqual(self.broker.slowest_recent_step(), "append to the log, 12 ms")
        self.assertRegex(self.broker.disk_usage_text(), r"^CL: +-?\d+\.\d\d CQ: +-?\d+\.\d\d INDEX: +-?\d+\.\d\d$")
        self.assertEqual(self.broker.delay_offsets().offset_table, {})


class SlaveTests(BrokerTestCase):
    def test_a_slave_delivers_nothing_and_refuses_ends_of_transactions(self):
        broker = self.start(brokerRole="SLAVE", brokerId="1")
        calls = []
        broker.schedule.deliver_due = lambda: calls.append(True)
        self.reactor.advance(1)
        self.assertTrue(broker.dispatcher.handles(RequestCode.END_TRANSACTION))
        self.stop(broker)
        self.assertEqual(calls, [])

    def test_a_slave_follows_whom_a_name_server_names(self):
        broker = self.start(brokerRole="SLAVE", brokerId="1", namesrvAddr="10.0.0.9:9876")
        broker.registration.on_answer("10.0.0.9:9876", RegisterBrokerResponseHeader("10.0.0.8:10912", "10.0.0.8:10911"))
        self.assertIn(("10.0.0.8", 10912), [attempt[:2] for attempt in self.reactor.tcpClients])
        self.assertEqual(broker.replication.synchronize.master_address, "10.0.0.8:10911")
        self.stop(broker)
        self.reactor.advance(4)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
