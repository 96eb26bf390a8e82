"""Registration of the broker at name servers."""

import os

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.registration import TOLD_SECONDS, Registration
from rocketd.remoting.bodies.tables import DataVersion, KVTable, RegisterBrokerBody, TopicConfig
from rocketd.remoting.calling.name_servers import NameServers
from rocketd.remoting.errors import RemotingConnectError, RemotingTimeoutError
from rocketd.remoting.headers.client import RegisterBrokerRequestHeader, RegisterBrokerResponseHeader, read_header
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.record import body_crc
from tests.support.broker import SmallBroker

A, B = "10.0.0.1:9876", "10.0.0.2:9876"


class InOrder:
    """A source of chance without any."""

    def shuffle(self, items):
        """Leave them so."""

    def randrange(self, stop):
        return 0


class FakeClient:
    """A fake of name servers. ``away`` cannot be reached; ``answers`` holds responses by address or code."""

    def __init__(self):
        self.name_servers = NameServers(InOrder())
        self.asked = []
        self.away = set()
        self.answers = {}
        self.connections = {}

    def connection_to(self, address):
        return succeed(self.connections.setdefault(address, object()))

    def update_name_server_addresses(self, addresses):
        self.name_servers.update(addresses)

    def invoke_sync(self, address, request, timeout_ms):
        self.asked.append((address, request, timeout_ms))
        if address in self.away:
            return fail(RemotingConnectError(address, "refused"))
        answer = self.answers.get(address, self.answers.get(request.code))
        if isinstance(answer, Deferred):
            return answer
        return succeed(answer or RemotingCommand.response())

    def take(self):
        """Return (address, code) of the requests since the last call."""
        asked, self.asked = self.asked, []
        return [(address, RequestCode(request.code).name) for address, request, _ in asked]


class ReactorClock(Clock):
    def callFromThread(self, function, *arguments):
        self.callLater(0, function, *arguments)


class RegistrationTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), namesrvAddr=f"{A};{B}")
        self.reactor = ReactorClock()
        self.client = FakeClient()
        self.cpu_seconds = 0.0
        self.registration = self.make()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def make(self):
        return Registration(self.broker, self.client, self.reactor, lambda: self.cpu_seconds)

    def start(self):
        self.successResultOf(self.registration.start())
        return self.client.take()

    def told(self):
        """Count log lines of level info and above that name a name server."""
        events, self.events[:] = list(self.events), []
        return [(e["log_level"], e["address"]) for e in events if "address" in e and e["log_level"] >= LogLevel.info]

    def set(self, **settings):
        for name, value in settings.items():
            setattr(self.broker.settings.broker, name, value)

    def test_registration_has_header_and_tables(self):
        self.set(broker_id=0)
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.successResultOf(self.registration.start())
        address, request, timeout = self.client.asked[0]
        self.assertEqual((address, request.code, timeout), (A, 103, 6000))
        header = read_header(RegisterBrokerRequestHeader, request)
        self.assertEqual(
            (header.broker_name, header.broker_addr, header.cluster_name, header.broker_id, header.ha_server_addr),
            ("broker-a", "127.0.0.1:10911", "DefaultCluster", 0, "127.0.0.1:10912"),
        )
        self.assertEqual(header.body_crc32, body_crc(request.body))
        self.assertFalse(header.compressed)
        wrapper = RegisterBrokerBody.decode(request.body).topic_config_serialize_wrapper
        self.assertEqual(wrapper.topic_config_table["T"], TopicConfig("T", 4, 4))
        self.assertEqual(wrapper.data_version, self.broker.topics.data_version)

    def test_registration_is_compressed_if_configured(self):
        self.set(compressed_register=True)
        self.start()
        self.successResultOf(self.registration.register())
        _, request, _ = self.client.asked[0]
        header = read_header(RegisterBrokerRequestHeader, request)
        self.assertTrue(header.compressed)
        self.assertEqual(header.body_crc32, body_crc(request.body))
        self.assertIn(
            "BenchmarkTest", RegisterBrokerBody.inflate(request.body).topic_config_serialize_wrapper.topic_config_table
        )

    def test_registration_limits_topics_to_broker_permission(self):
        self.set(broker_permission=4)
        self.successResultOf(self.registration.start())
        table = RegisterBrokerBody.decode(
            self.client.asked[0][1].body
        ).topic_config_serialize_wrapper.topic_config_table
        self.assertEqual({config.perm for config in table.values()}, {4})

    def test_burst_of_changes_wakes_reactor_once(self):
        self.start()
        calls = []
        self.patch(self.reactor, "callFromThread", lambda function: calls.append(function))
        for number in range(500):
            self.registration.changed(f"topic {number}")
        self.assertEqual(len(calls), 1)
        calls.pop()()
        self.registration.changed("one more")
        self.assertEqual(len(calls), 1)

    def test_registration_at_start_after_10_s_and_every_period(self):
        both = [(A, "REGISTER_BROKER"), (B, "REGISTER_BROKER")]
        self.assertEqual(self.start(), both)
        self.reactor.advance(9.9)
        self.assertEqual(self.client.take(), [])
        self.reactor.advance(0.1)
        self.assertEqual(self.client.take(), both)
        for _ in range(3):
            self.reactor.advance(29.9)
            self.assertEqual(self.client.take(), [])
            self.reactor.advance(0.1)
            self.assertEqual(self.client.take(), both)

    def test_registration_period_is_limited(self):
        for period, seconds in ((1, 10), (10**9, 60)):
            self.set(register_name_server_period=period)
            self.start()
            self.reactor.advance(10)
            self.client.take()
            self.reactor.advance(seconds - 0.1)
            self.assertEqual(self.client.take(), [])
            self.reactor.advance(0.2)
            self.assertEqual(len(self.client.take()), 2)
            self.successResultOf(self.registration.stop())
            self.registration = self.make()
            self.client.take()

    def test_master_addresses_in_answer_are_passed_on(self):
        heard = []
        self.registration.on_answer = lambda address, answer: heard.append((address, answer))
        fields = {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}
        self.client.answers[A] = RemotingCommand.response(ext_fields=fields)
        self.client.away = {B}
        self.start()
        self.assertEqual(heard, [(A, RegisterBrokerResponseHeader("10.0.0.1:10912", "10.0.0.1:10911"))])

    def test_when_told_waits_for_all_name_servers(self):
        self.start()
        self.client.answers[B] = Deferred()
        heard = []
        self.registration.changed("one")
        self.registration.when_told(lambda: heard.append(1))
        self.registration.when_told(lambda: heard.append(2))
        for _ in range(3):
            self.reactor.advance(0)
        self.assertEqual((len(self.client.take()), heard), (2, []))
        self.client.answers[B].callback(RemotingCommand.response())
        self.assertEqual(sorted(heard), [1, 2])
        self.reactor.advance(TOLD_SECONDS)
        self.assertEqual(len(heard), 2)

    def test_when_told_waits_for_limited_time(self):
        self.start()
        self.client.answers[B] = Deferred()
        heard = []
        self.registration.when_told(lambda: heard.append(1))
        self.reactor.pump((0, 0, TOLD_SECONDS))
        self.assertEqual(heard, [1])
        self.client.answers[B].callback(RemotingCommand.response())
        self.assertEqual(heard, [1])

    def test_when_told_during_stop_is_called_at_once(self):
        self.start()
        self.registration.stop()
        heard = []
        self.registration.when_told(lambda: heard.append(1))
        self.reactor.pump((0, 0))
        self.assertEqual(heard, [1])

    def test_burst_of_changes_is_registered_once(self):
        self.start()
        self.registration.changed("one")
        self.registration.changed("two")
        self.reactor.advance(0)
        self.reactor.advance(0)
        self.assertEqual(len(self.client.take()), 2)
        self.reactor.advance(5)
        self.assertEqual(self.client.take(), [])

    def test_unforced_registration_queries_data_version_first(self):
        self.set(force_register=False)
        self.start()
        known = self.broker.topics.data_version.encode()
        self.client.answers[A] = RemotingCommand.response(ext_fields={"changed": "false"}, body=known)
        self.client.answers[B] = RemotingCommand.response(
            ext_fields={"changed": "false"}, body=DataVersion(1, 99).encode()
        )
        self.successResultOf(self.registration.register())
        asked = self.client.take()
        self.assertEqual(asked.count((A, "QUERY_DATA_VERSION")), 1)
        self.assertNotIn((A, "REGISTER_BROKER"), asked)
        self.assertIn((B, "REGISTER_BROKER"), asked)
        self.client.answers[A] = RemotingCommand.response(ext_fields={"changed": "true"}, body=known)
        self.successResultOf(self.registration.register())
        self.assertIn((A, "REGISTER_BROKER"), self.client.take())

    def test_unreachable_name_server_is_logged_once_and_at_return(self):
        self.client.away = {B}
        self.assertEqual(len(self.start()), 2)
        self.assertEqual(self.told(), [(LogLevel.warn, B)])
        self.reactor.advance(10)
        self.reactor.advance(30)
        self.assertEqual(self.told(), [])
        self.client.away.clear()
        self.reactor.advance(30)
        self.assertEqual(self.told(), [(LogLevel.info, B)])
        self.client.answers[B] = RemotingCommand.response(1, "no room")
        self.reactor.advance(30)
        self.assertEqual(self.told(), [(LogLevel.warn, B)])

    def test_malformed_answer_does_not_end_rounds(self):
        self.client.answers[A] = RemotingCommand.response(body=b"{")
        self.start()
        self.assertEqual(self.told(), [(LogLevel.warn, A)])
        self.reactor.advance(10)
        self.assertEqual(len(self.client.take()), 2)

    def test_internal_error_does_not_end_rounds(self):
        self.client.answers[A] = 5
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        self.reactor.advance(10)
        self.assertEqual(len(self.client.take()), 2)
        self.flushLoggedErrors(AttributeError)

    def test_failed_encoding_does_not_end_rounds(self):
        self.start()
        snapshot = self.broker.topics.numbered_snapshot

        def failing():
            raise KeyError("oops")

        self.broker.topics.numbered_snapshot = failing
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.reactor.advance(10)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 2)
        self.broker.topics.numbered_snapshot = snapshot
        self.reactor.advance(30)
        self.assertEqual(len(self.client.take()), 2)

    def test_slow_name_server_does_not_delay_others(self):
        slow = self.client.answers[A] = Deferred()
        self.assertNoResult(self.registration.start())
        self.assertEqual([address for address, _ in self.client.take()], [A, B])
        slow.errback(RemotingTimeoutError(A, 24000))
        self.assertEqual(self.told(), [(LogLevel.warn, A)])

    def test_order_topics_are_set_in_the_admin_pool(self):
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.broker.dispatcher.delay = True
        self.client.answers[A] = RemotingCommand.response(body=KVTable({"T": "broker-a:4"}).encode())
        self.client.answers[B] = self.client.answers[A]
        self.start()
        self.assertFalse(self.broker.topics.is_order_topic("T"))
        self.assertEqual(self.broker.dispatcher.run(), ["admin", "admin"])
        self.assertTrue(self.broker.topics.is_order_topic("T"))

    def test_answer_without_order_table_changes_no_topic(self):
        self.broker.topics.update(TopicConfig("T", 4, 4, order=True))
        self.client.answers[A] = RemotingCommand.response()
        self.client.answers[B] = self.client.answers[A]
        self.start()
        self.assertTrue(self.broker.topics.is_order_topic("T"))

    def test_changed_name_servers_apply_from_next_round(self):
        self.start()
        self.set(namesrv_addr=f" {B} ; 10.0.0.3:9876;")
        self.reactor.advance(10)
        self.assertEqual([address for address, _ in self.client.take()], [B, "10.0.0.3:9876"])
        self.set(namesrv_addr="")
        self.reactor.advance(30)
        self.assertEqual(len(self.client.take()), 2)

    def test_broker_without_name_servers_registers_nowhere(self):
        self.set(namesrv_addr=None)
        self.assertEqual(self.start(), [])
        self.set(namesrv_addr=A)
        self.reactor.advance(10)
        self.assertEqual(self.client.take(), [(A, "REGISTER_BROKER")])

    def test_first_registration_and_its_callers_wait_for_check(self):
        self.set(namesrv_addr=None)
        checks = []

        def check():
            checks.append(Deferred())
            return checks[-1]

        self.registration.before_first = check
        self.assertEqual((self.start(), checks), ([], []))
        self.set(namesrv_addr=A)
        callers = [self.registration.register() for _ in range(2)]
        self.assertEqual((self.client.take(), len(checks)), ([], 1))
        checks[0].callback(None)
        self.assertEqual(self.client.take(), [(A, "REGISTER_BROKER")])
        for caller in callers:
            self.successResultOf(caller)
        self.successResultOf(self.registration.register())
        self.assertEqual((self.client.take(), len(checks)), ([(A, "REGISTER_BROKER")], 1))

    def test_held_by_check_before_it_a_registration_is_not_sent(self):
        self.start()
        checked = []

        def check(address):
            checked.append(address)
            self.registration.hold()
            return succeed(None)

        self.registration.before_each = check
        self.successResultOf(self.registration.register(force=True))
        self.assertEqual((self.client.take(), checked), ([], [A, B]))

    def test_registration_delayed_by_its_check_has_the_latest_topics(self):
        self.set(namesrv_addr=A)
        self.start()
        checks = []

        def check(address):
            checks.append(Deferred())
            return checks[-1]

        self.registration.before_each = check
        self.registration.register(force=True)
        self.broker.topics.update(TopicConfig("New", 4, 4))
        self.registration.register(force=True)
        (check,) = checks
        check.callback(None)
        # It serves both callers.
        self.assertEqual(["New" in table for _, table in self.sent()], [True])

    def sent(self):
        """Return (address, topics) of the registrations since the last call."""
        asked, self.client.asked = self.client.asked, []
        return [
            (address, RegisterBrokerBody.decode(request.body).topic_config_serialize_wrapper.topic_config_table)
            for address, request, _ in asked
        ]

    def change(self, topic, queues=4):
        self.broker.topics.update(TopicConfig(topic, queues, queues))
        self.registration.changed("a topic")
        self.reactor.pump((0, 0))

    def names_sent(self):
        """Return the topics sent since the last call, by name server: "all", or the names."""
        everything = self.broker.topics.snapshot().topic_config_table
        return {address: "all" if table == everything else set(table) for address, table in self.sent()}

    def test_change_sends_only_the_changed_topics(self):
        self.start()
        self.change("New")
        self.assertEqual(self.names_sent(), {A: {"New"}, B: {"New"}})
        self.change("New", 8)
        ((_, table), _) = self.sent()
        self.assertEqual(table, {"New": TopicConfig("New", 8, 8)})
        self.change("New2")
        (_, request, _) = self.client.asked[0]
        wrapper = RegisterBrokerBody.decode(request.body).topic_config_serialize_wrapper
        self.assertEqual(wrapper.data_version, self.broker.topics.data_version)
        self.client.take()
        self.reactor.advance(10)
        self.assertEqual(self.names_sent(), {A: "all", B: "all"})

    def test_change_that_is_not_of_single_topics_sends_all(self):
        self.start()
        for change in (
            lambda: self.broker.topics.delete("New"),
            self.broker.topics.next_version,
            lambda: self.broker.topics.update_order_topics(["TBW102"]),
            lambda: self.broker.topics.update(TopicConfig("SELF_TEST_TOPIC", 2, 2)),
        ):
            self.change("New")
            self.client.take()
            change()
            self.change("New2")
            self.assertEqual(self.names_sent(), {A: "all", B: "all"})

    def test_name_server_without_the_last_registration_gets_all_topics(self):
        self.start()
        # It was restarted.
        del self.client.connections[A]
        self.change("New")
        self.assertEqual(self.names_sent(), {A: "all", B: {"New"}})
        # It did not answer.
        self.client.away = {B}
        self.change("New2")
        self.assertEqual(self.names_sent(), {A: {"New2"}, B: {"New2"}})
        self.client.away.clear()
        self.change("New3")
        self.assertEqual(self.names_sent(), {A: {"New3"}, B: "all"})

    def take_cpu_time(self, seconds):
        """Let each further registration take this CPU time."""
        changes_since = self.broker.topics.changes_since

        def slowly(since):
            self.cpu_seconds += seconds
            return changes_since(since)

        self.patch(self.broker.topics, "changes_since", slowly)

    def test_next_change_after_an_expensive_registration_waits_twenty_times_as_long(self):
        for seconds, pause in ((0.001, 0.0), (0.01, 0.2), (0.1, 2.0)):
            with self.subTest(seconds=seconds):
                self.setUp()
                self.start()
                self.take_cpu_time(seconds)
                self.change("One")
                self.assertEqual(self.names_sent(), {A: {"One"}, B: {"One"}})
                self.change("Two")
                if pause:
                    self.reactor.advance(pause - 0.01)
                    self.assertEqual(self.names_sent(), {})
                    self.reactor.advance(0.01)
                self.assertEqual(self.names_sent(), {A: {"Two"}, B: {"Two"}})

    def test_registrations_at_one_name_server_follow_each_other(self):
        self.start()
        slow = self.client.answers[A] = Deferred()
        self.change("One")
        self.change("Two")
        self.registration.when_told(lambda: told.append(len(told)))
        told = []
        self.reactor.pump((0, 0))
        self.assertEqual(self.sent()[2:], [(B, {"Two": TopicConfig("Two", 4, 4)}), (B, {})])
        self.change("Three")
        self.assertEqual(self.names_sent(), {B: {"Three"}})
        del self.client.answers[A]
        slow.callback(RemotingCommand.response())
        self.assertEqual((self.names_sent(), told), ({A: {"Two", "Three"}}, [0]))

    def test_stop_during_check_sends_no_unregistration(self):
        self.set(namesrv_addr=None)
        checked = Deferred()
        self.registration.before_first = lambda: checked
        self.start()
        self.set(namesrv_addr=A)
        caller = self.registration.register()
        self.successResultOf(self.registration.stop())
        checked.callback(None)
        self.successResultOf(caller)
        self.assertEqual(self.client.take(), [])

    def test_hold_ends_registrations_and_resume_registers_at_once(self):
        self.start()
        self.registration.hold()
        self.successResultOf(self.registration.register(force=True))
        self.assertEqual(self.client.take(), [])
        self.registration.resume()
        self.assertEqual(self.client.take(), [(A, "REGISTER_BROKER"), (B, "REGISTER_BROKER")])
        self.registration.hold()
        self.successResultOf(self.registration.stop())
        self.registration.resume()
        self.assertEqual(self.client.take(), [])

    def test_stop_unregisters_and_ends_rounds(self):
        self.start()
        self.client.away = {B}
        self.successResultOf(self.registration.stop())
        self.assertEqual(self.client.take(), [(A, "UNREGISTER_BROKER"), (B, "UNREGISTER_BROKER")])
        self.registration.changed("late")
        self.reactor.advance(0)
        self.reactor.advance(100)
        self.assertEqual((self.client.take(), self.reactor.getDelayedCalls()), ([], []))

    def test_stop_after_long_run_ends_rounds(self):
        self.start()
        self.reactor.advance(50)
        self.client.take()
        self.successResultOf(self.registration.stop())
        self.client.take()
        self.reactor.advance(100)
        self.assertEqual((self.client.take(), self.reactor.getDelayedCalls()), ([], []))
