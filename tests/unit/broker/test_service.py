"""The whole broker: order of opening and closing, and log lines for the operator."""

import ast
import os
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher
from zope.interface import classImplementsOnly, implementer
from zope.interface.interface import Method
from zope.interface.verify import verifyObject

from rocketd import broker as broker_package
from rocketd.broker.base import extensions
from rocketd.broker.base.address import AdvertisedAddress
from rocketd.broker.base.interfaces import IBroker, IMessageStorePlugin
from rocketd.broker.base.json_file import JsonFileError
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.clients.heartbeats import ClientManageProcessor
from rocketd.broker.service import START_ERRORS, Broker
from rocketd.common.settings.daemon_settings import UpdateResult
from rocketd.common.settings.declaration import ConfigError
from rocketd.remoting.bodies.tables import ConsumerData, SubscriptionData
from rocketd.remoting.calling.address_server import TIMEOUT_SECONDS
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.headers.client import RegisterBrokerResponseHeader
from rocketd.remoting.serving.third_party.running_calls import LOG_DISPATCHER
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.errors import StoreLockedError
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import MessageInner
from rocketd.store.interfaces import IMessageStore, StoreWrapper
from tests.support.broker import BORN_HOST, RecordingConnection
from tests.support.broker_service import BrokerTestCase


class LifeTests(BrokerTestCase):
    def test_interface(self):
        broker = self.start()
        verifyObject(IBroker, broker)
        self.stop(broker)

    def test_stop_time_of_plugins_begins_before_timers_stop(self):
        broker = self.start(pluginStopTimeout="0")
        calls = broker.dispatcher.plugin_calls
        call = calls.begin(LOG_DISPATCHER, "theirs", "dispatch")
        stuck = []
        self.patch(broker.timers, "stop", lambda: stuck.append(calls.stuck()) or calls.end(call))
        self.stop(broker)
        self.assertIn("log dispatcher theirs: 1 call of dispatch", stuck[0])

    def test_store_gets_dispatch_blockers_of_plugins(self):
        broker = self.start(pluginStopTimeout="0")
        calls, blockers = broker.dispatcher.plugin_calls, broker.store.dispatch_blockers
        self.assertEqual(blockers(False), "")
        call = calls.begin(LOG_DISPATCHER, "theirs", "dispatch")
        self.assertIn("log dispatcher theirs", blockers(False))
        self.assertEqual(blockers(True), "")
        calls.wait()
        self.assertIn("log dispatcher theirs", blockers(True))
        calls.end(call)
        self.stop(broker)

    def test_nothing_is_opened_before_start(self):
        self.make()
        self.assertFalse(os.path.exists(self.directory))
        self.assertEqual(self.reactor.tcpServers, [])

    def test_ports_follow_listen_port(self):
        broker = self.start()
        self.assertEqual([server[0] for server in self.reactor.tcpServers], [20911, 20909, 20912])
        self.assertEqual((broker.address, broker.ha_address.rpartition(":")[2]), ("10.0.0.1:20911", "20912"))
        self.stop(broker)

    def test_ipv6_addresses_stand_in_brackets(self):
        broker = self.start(brokerIP1="2001:db8::1", brokerIP2="2001:db8::2", haListenPort="7")
        self.assertEqual((broker.address, broker.ha_address), ("[2001:db8::1]:20911", "[2001:db8::2]:7"))
        self.assertEqual(len(broker.store_host), 20)
        self.stop(broker)

    def test_start_and_stop_log_lines(self):
        broker = self.start()
        self.stop(broker)
        text = "\n".join(self.lines())
        for part in (
            "registered as 10.0.0.1:20911 (brokerIP1 is set)\n",
            f"broker broker-a of cluster DefaultCluster serves on port 20911, store {self.directory}, name servers none",
            "broker broker-a stopped",
        ):
            self.assertIn(part, text)
        self.assertEqual(self.lines(LogLevel.warn), [])

    def test_doubtful_address_gives_warning(self):
        self.stop(self.start(AdvertisedAddress("127.0.0.1", "so", "nobody reaches it")))
        self.assertEqual(self.lines(LogLevel.warn), ["nobody reaches it; set another brokerIP1"])

    def test_unresolvable_name_is_registered_with_warning(self):
        broker = self.start(brokerIP1="nosuch.invalid")
        self.assertEqual(broker.address, "nosuch.invalid:20911")
        self.stop(broker)
        (line,) = self.lines(LogLevel.warn)
        self.assertIn("brokerIP1 = nosuch.invalid cannot be resolved here", line)

    def test_offsets_are_stored_at_stop_and_loaded_at_start(self):
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

    def test_stop_stores_latest_subscriptions_before_it_closes_connections(self):
        broker = self.start()
        broker.groups.find("G")
        client = ClientChannelInfo(RecordingConnection(), "c", 0, 0, 0)
        for text, version in (("A", 1), ("B", 2)):
            wanted = SubscriptionData("T", text, sub_version=version)
            broker.consumers.register(client, ConsumerData("G", subscription_data_set=[wanted]), notify=False)
        self.patch(broker.server, "stopService", self.closing(broker, client.connection, broker.server.stopService))
        self.stop(broker)
        broker = self.start()
        self.assertEqual(broker.last_subscriptions.find("G", "T").sub_string, "B")
        self.stop(broker)

    def closing(self, broker, connection, stop):
        """Return a stop that also closes a connection of a consumer."""

        def stop_service():
            broker.consumers.connection_closed(connection)
            return stop()

        return stop_service

    def test_stop_with_unwritable_table_still_flushes_messages(self):
        broker = self.start()
        broker.offsets.commit("c", "G", "T", 0, 5)
        broker.groups.find("Made")
        self.disk.full = True
        self.stop(broker)
        self.assertIn("No space left", "\n".join(self.lines(LogLevel.error)))
        self.assertFalse(os.path.exists(os.path.join(self.directory, "abort")))
        self.assertTrue(os.path.exists(os.path.join(self.directory, "config", "subscriptionGroup.json")))

    def test_change_breaking_next_start_is_refused(self):
        broker = self.start()
        message = MessageInner("T", 0, 0, 0, 0, BORN_HOST, 0, 0, b"x", b"", 0)
        broker.dispatcher.pool("send").call(lambda: broker.store.put_messages([message]))
        self.stop(broker)
        del broker.settings.given["mappedFileSizeCommitLog"]  # an option would win over the change
        (result,) = broker.settings.update("mappedFileSizeCommitLog=2097152")
        self.assertIs(result.outcome, UpdateResult.BAD_VALUE)
        self.assertIn("commitlog/00000000000000000000 has 1048576 bytes", result.explanation)

    def test_stop_leaves_no_timer(self):
        broker = self.start(namesrvAddr="10.0.0.9:9876")
        self.stop(broker)
        self.reactor.advance(4)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class AddressServerTests(BrokerTestCase):
    """A broker asks for its name servers, without an answer."""

    def setUp(self):
        super().setUp()
        self.options = {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": "10.0.0.9"}

    def test_master_waits_3_s_for_address_server_before_serving(self):
        broker = self.start(**self.options)
        served = broker.when_serving()
        self.reactor.advance(TIMEOUT_SECONDS - 0.1)
        self.assertNoResult(served)
        self.reactor.advance(0.1)
        self.successResultOf(served)
        self.stop(broker)

    def test_slave_does_not_wait_for_address_server(self):
        broker = self.start(**self.options, brokerRole="SLAVE", brokerId="1")
        self.successResultOf(broker.when_serving())
        self.stop(broker)

    def test_stop_during_wait_for_address_server_leaves_nothing(self):
        broker = self.start(**self.options)
        self.stop(broker)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertNoResult(broker.when_serving())


@implementer(IMessageStore)
class ExactStore:
    """A store with exactly the members of IMessageStore."""

    def __init__(self, inner):
        object.__setattr__(self, "_inner", inner)
        for name in IMessageStore.names():
            if isinstance(IMessageStore[name], Method):
                object.__setattr__(self, name, getattr(inner, name))

    def __getattr__(self, name):
        if name not in IMessageStore.names():
            raise AttributeError(f"IMessageStore has no {name}")
        return getattr(self._inner, name)

    def __setattr__(self, name, value):
        if name not in IMessageStore.names():
            raise AttributeError(f"IMessageStore has no {name}")
        setattr(self._inner, name, value)


class StorePluginTests(BrokerTestCase):
    def install(self, wrap):
        plugin = SimpleNamespace(name="theirs", wrap_store=lambda broker, store: wrap(store))
        found = {IMessageStorePlugin: [plugin]}
        self.patch(extensions, "find_plugins", lambda kind: found.get(kind, ()))

    def test_store_with_exactly_the_interface_serves(self):
        self.install(ExactStore)
        broker = self.start(messageStorePlugIn="theirs")
        self.assertIsInstance(broker.store, ExactStore)
        self.assertIn("CL:", broker.disk_usage_text())
        self.assertIn("ms", broker.slowest_recent_step())
        message = MessageInner("T", 0, 0, 0, 0, BORN_HOST, 1, 0, b"x", b"", 0)
        self.assertEqual(broker.store.put_messages([message])[0].queue_offset, 0)
        broker.store.release_dispatch(True)
        self.assertEqual(broker.store.get_max_offset("T", 0), 1)
        self.stop(broker)

    def test_incomplete_store_is_refused_with_missing_names(self):
        class Lacking(ExactStore):
            def __init__(self, inner):
                super().__init__(inner)
                del self.__dict__["when_flushed"]

            def __getattr__(self, name):
                if name in ("when_flushed", "messages_put"):
                    raise AttributeError(name)
                return super().__getattr__(name)

            def put_batch(self, messages, more):
                pass

        def lacking(store):
            made = Lacking(store)
            del made.__dict__["put_batch"]
            return made

        self.install(lacking)
        broker = self.make(messageStorePlugIn="theirs")
        error = self.assertRaises(ConfigError, broker.startService)
        for part in (
            "the store of theirs",
            "when_flushed is missing",
            "messages_put is missing",
            "put_batch: ",
            "StoreWrapper",
        ):
            self.assertIn(part, str(error))

    def test_store_without_declared_interface_is_refused(self):
        class Undeclared(ExactStore):
            pass

        classImplementsOnly(Undeclared)
        self.install(Undeclared)
        error = self.assertRaises(ConfigError, self.make(messageStorePlugIn="theirs").startService)
        self.assertIn("its class does not declare the interface", str(error))

    def test_wrapper_provides_whole_store_interface(self):
        self.install(StoreWrapper)
        broker = self.start(messageStorePlugIn="theirs")
        self.assertIsInstance(broker.store, StoreWrapper)
        self.stop(broker)

    def test_store_interface_declares_attributes_used_by_broker(self):
        """Each attribute of a store that the broker's modules use is declared, or is a setting of the store."""
        known = {*IMessageStore.names(), *dir(MessageStoreConfig)}
        used = set()
        for path in Path(broker_package.__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] in (
                    "store",
                    "_store",
                ):
                    used.add(node.attr)
        self.assertGreater(len(used), 40)
        self.assertEqual(used - known, set())


class FailedStartTests(BrokerTestCase):
    def assert_nothing_is_open(self, broker):
        self.assertFalse(broker.running)
        other = self.start()  # the store's lock is free
        self.stop(other)

    def test_invalid_delay_level_fails_start(self):
        self.assertRaises(ConfigError, self.make, messageDelayLevel="1x")

    def test_start_with_locked_store_is_refused(self):
        first = self.start()
        second = self.make()
        self.assertRaises(StoreLockedError, second.startService)
        self.assertFalse(second.running)
        self.stop(first)
        self.assert_nothing_is_open(second)

    def test_damaged_table_fails_start(self):
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


class ClockTests(BrokerTestCase):
    """Steps of the wall clock do not change durations."""

    def setUp(self):
        super().setUp()
        self.clock = Clock()
        self.clock.advance(1_000)
        self.wall_steps = 0
        settings, _ = BrokerSettings.load(None, [("storePathRootDir", self.directory), ("brokerIP1", "10.0.0.1")])
        self.broker = Broker(settings, self.reactor, self.disk, self.now_ms, clock=self.clock.seconds)

    def now_ms(self):
        return int((1_800_000_000 + self.clock.seconds() + self.wall_steps) * 1000)

    def test_lock_lifetime_ignores_clock_steps(self):
        locks = self.broker.locks
        self.assertEqual(locks.lock_batch("G", ["q"], "one"), ["q"])
        self.wall_steps += 300
        self.assertEqual(locks.lock_batch("G", ["q"], "two"), [])
        locks.drop_expired()
        self.assertEqual(len(locks), 1)
        self.wall_steps -= 600
        self.clock.advance(61)
        self.assertEqual(locks.lock_batch("G", ["q"], "two"), ["q"])

    def test_client_expiry_ignores_clock_steps(self):
        broker = self.broker
        body = {"clientID": "c", "consumerDataSet": [{"groupName": "G"}], "producerDataSet": [{"groupName": "P"}]}
        request = RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.dumps(body))
        context = SimpleNamespace(connection=RecordingConnection())
        self.assertEqual(ClientManageProcessor(broker).process(request, context).code, 0)
        for step, seconds, there in ((300, 0, True), (-600, 120, True), (0, 1, False)):
            self.wall_steps += step
            self.clock.advance(seconds)
            broker.consumers.scan_not_active()
            broker.producers.scan_not_active()
            self.assertEqual(broker.consumers.find("G") is not None, there)
            self.assertEqual(bool(broker.producers.clients("P")), there)


class WorkTests(BrokerTestCase):
    def setUp(self):
        super().setUp()
        self.broker = self.start()
        self.addCleanup(lambda: self.stop(self.broker))

    def drain(self, pool):
        """Return when a pool has done its work."""
        done = []
        self.broker.dispatcher.pool(pool).call(lambda: done.append(True))
        while not done:
            pass

    def test_lost_connection_removes_its_clients(self):
        connection = RecordingConnection()
        self.broker.consumers.register(ClientChannelInfo(connection, "c", 0, 0, 0), ConsumerData("G"), notify=False)
        self.broker.connection_lost(connection)
        self.drain("client")
        self.assertIsNone(self.broker.consumers.find("G"))

    def test_silent_clients_are_removed_by_scan(self):
        self.broker.consumers.register(
            ClientChannelInfo(RecordingConnection(), "c", 0, 0, 0), ConsumerData("G"), notify=False
        )
        self.reactor.advance(10)
        self.drain("client")
        self.assertIsNone(self.broker.consumers.find("G"))

    def test_expired_locks_are_dropped(self):
        locks = self.broker.locks
        locks.lock_batch("G", ["q"], "c")
        self.patch(locks, "_max_live_time", -1)
        self.reactor.advance(10)
        self.drain("client")
        self.assertEqual(len(locks), 0)

    def test_offsets_are_written_every_5_seconds(self):
        self.broker.offsets.commit("c", "G", "T", 0, 5)
        self.reactor.advance(5)
        self.wait_for_file("consumerOffset.json")

    def wait_for_file(self, name):
        path = os.path.join(self.directory, "config", name)
        deadline = monotonic() + 60
        while not os.path.exists(path):
            self.assertLess(monotonic(), deadline, f"{name} is not written")

    def test_unwritable_table_is_logged_once_and_written_later(self):
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

    def test_failing_periodic_task_is_logged_and_repeated(self):
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

    def test_measured_values_as_text(self):
        self.broker.store.last_append_ms = 12.4
        self.assertEqual(self.broker.slowest_recent_step(), "append to the log, 12 ms")
        self.assertRegex(self.broker.disk_usage_text(), r"^CL: +-?\d+\.\d\d CQ: +-?\d+\.\d\d INDEX: +-?\d+\.\d\d$")
        self.assertEqual(self.broker.delay_offsets().offset_table, {})


class SlaveTests(BrokerTestCase):
    def test_slave_delivers_nothing_and_refuses_ends_of_transactions(self):
        broker = self.start(brokerRole="SLAVE", brokerId="1")
        calls = []
        broker.schedule.deliver_due = lambda: calls.append(True)
        self.reactor.advance(1)
        self.assertTrue(broker.dispatcher.handles(RequestCode.END_TRANSACTION))
        self.stop(broker)
        self.assertEqual(calls, [])

    def test_slave_follows_master_named_by_name_server(self):
        given = {"namesrvAddr": "10.0.0.9:9876", "haAllowedAddresses": "10.0.0.8"}
        broker = self.start(brokerRole="SLAVE", brokerId="1", **given)
        broker.registration.on_answer("10.0.0.9:9876", RegisterBrokerResponseHeader("10.0.0.8:10912", "10.0.0.8:10911"))
        self.assertIn(("10.0.0.8", 10912), [attempt[:2] for attempt in self.reactor.tcpClients])
        self.assertEqual(broker.replication.synchronize.master_address, "10.0.0.8:10911")
        self.stop(broker)
        self.reactor.advance(4)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
