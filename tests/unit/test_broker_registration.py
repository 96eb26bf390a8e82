"""When and how name servers are told of the broker."""

import os

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.registration import TOLD_SECONDS, Registration
from rocketd.broker.testing import SmallBroker
from rocketd.remoting.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfig
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingConnectError, RemotingTimeoutError
from rocketd.remoting.headers import RegisterBrokerRequestHeader, RegisterBrokerResponseHeader, read_header
from rocketd.remoting.name_servers import NameServers
from rocketd.store.record import body_crc

A, B = "10.0.0.1:9876", "10.0.0.2:9876"


class InOrder:
    """A source of chance without any."""

    def shuffle(self, items):
        """Leave them so."""

    def randrange(self, stop):
        return 0


class FakeClient:
    """Answers as name servers do. ``away`` cannot be reached; ``answers`` holds responses by address or code."""

    def __init__(self):
        self.name_servers = NameServers(InOrder())
        self.asked = []
        self.away = set()
        self.answers = {}

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
        self.registration = Registration(self.broker, self.client, self.reactor)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

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

    def test_what_is_told(self):
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

    def test_compressed(self):
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

    def test_a_limited_broker_says_so_of_every_topic(self):
        self.set(broker_permission=4)
        self.successResultOf(self.registration.start())
        table = RegisterBrokerBody.decode(
            self.client.asked[0][1].body
        ).topic_config_serialize_wrapper.topic_config_table
        self.assertEqual({config.perm for config in table.values()}, {4})

    def test_at_start_early_again_and_every_period(self):
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

    def test_the_period_has_limits(self):
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
            self.registration = Registration(self.broker, self.client, self.reactor)
            self.client.take()

    def test_what_a_name_server_says_of_the_master_is_passed_on(self):
        heard = []
        self.registration.on_answer = lambda address, answer: heard.append((address, answer))
        fields = {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}
        self.client.answers[A] = RemotingCommand.response(ext_fields=fields)
        self.client.away = {B}
        self.start()
        self.assertEqual(heard, [(A, RegisterBrokerResponseHeader("10.0.0.1:10912", "10.0.0.1:10911"))])

    def test_who_waits_hears_when_all_name_servers_have_answered(self):
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

    def test_who_waits_does_not_wait_for_ever(self):
        self.start()
        self.client.answers[B] = Deferred()
        heard = []
        self.registration.when_told(lambda: heard.append(1))
        self.reactor.pump((0, 0, TOLD_SECONDS))
        self.assertEqual(heard, [1])
        self.client.answers[B].callback(RemotingCommand.response())
        self.assertEqual(heard, [1])

    def test_who_waits_hears_at_once_while_the_broker_stops(self):
        self.start()
        self.registration.stop()
        heard = []
        self.registration.when_told(lambda: heard.append(1))
        self.reactor.pump((0, 0))
        self.assertEqual(heard, [1])

    def test_changes_that_come_together_are_told_together(self):
        self.start()
        self.registration.changed("one")
        self.registration.changed("two")
        self.reactor.advance(0)
        self.reactor.advance(0)
        self.assertEqual(len(self.client.take()), 2)
        self.reactor.advance(5)
        self.assertEqual(self.client.take(), [])

    def test_unforced_registrations_ask_first(self):
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

    def test_an_unreachable_name_server_is_told_once_and_again_when_it_is_back(self):
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

    def test_an_answer_that_is_none_does_not_end_the_rounds(self):
        self.client.answers[A] = RemotingCommand.response(body=b"{")
        self.start()
        self.assertEqual(self.told(), [(LogLevel.warn, A)])
        self.reactor.advance(10)
        self.assertEqual(len(self.client.take()), 2)

    def test_an_error_of_ours_does_not_end_the_rounds(self):
        self.client.answers[A] = 5
        self.start()
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        self.reactor.advance(10)
        self.assertEqual(len(self.client.take()), 2)
        self.flushLoggedErrors(AttributeError)

    def test_a_registration_that_cannot_be_written_does_not_end_the_rounds(self):
        self.start()
        snapshot = self.broker.topics.snapshot

        def failing():
            raise KeyError("oops")

        self.broker.topics.snapshot = failing
        self.reactor.advance(10)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.broker.topics.snapshot = snapshot
        self.reactor.advance(30)
        self.assertEqual(len(self.client.take()), 2)

    def test_a_slow_name_server_delays_no_other(self):
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

    def test_a_name_server_without_a_table_says_nothing_of_order(self):
        self.broker.topics.update(TopicConfig("T", 4, 4, order=True))
        self.client.answers[A] = RemotingCommand.response()
        self.client.answers[B] = self.client.answers[A]
        self.start()
        self.assertTrue(self.broker.topics.is_order_topic("T"))

    def test_other_name_servers_count_from_the_next_round(self):
        self.start()
        self.set(namesrv_addr=f" {B} ; 10.0.0.3:9876;")
        self.reactor.advance(10)
        self.assertEqual([address for address, _ in self.client.take()], [B, "10.0.0.3:9876"])
        self.set(namesrv_addr="")
        self.reactor.advance(30)
        self.assertEqual(len(self.client.take()), 2)

    def test_without_name_servers_nothing_is_told(self):
        self.set(namesrv_addr=None)
        self.assertEqual(self.start(), [])
        self.set(namesrv_addr=A)
        self.reactor.advance(10)
        self.assertEqual(self.client.take(), [(A, "REGISTER_BROKER")])

    def test_the_end(self):
        self.start()
        self.client.away = {B}
        self.successResultOf(self.registration.stop())
        self.assertEqual(self.client.take(), [(A, "UNREGISTER_BROKER"), (B, "UNREGISTER_BROKER")])
        self.registration.changed("late")
        self.reactor.advance(0)
        self.reactor.advance(100)
        self.assertEqual((self.client.take(), self.reactor.getDelayedCalls()), ([], []))

    def test_the_end_of_a_broker_that_runs_for_long(self):
        self.start()
        self.reactor.advance(50)
        self.client.take()
        self.successResultOf(self.registration.stop())
        self.client.take()
        self.reactor.advance(100)
        self.assertEqual((self.client.take(), self.reactor.getDelayedCalls()), ([], []))
