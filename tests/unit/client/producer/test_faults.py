"""The client when brokers and name servers do not answer, on a fake clock."""

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, globalLogPublisher

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.errors import NoNameServerError, RequestTimeoutError, TopicNotFoundError, UnreachableError
from rocketd.client.messages.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.common.names import AUTO_CREATE_TOPIC
from tests.support.client_faults import FaultTestCase


class NameServerTests(FaultTestCase):
    def test_route_outlives_brokers_and_name_servers(self):
        self.successResultOf(self.send())
        self.cluster.down |= {None, "a:10911", "b:10911"}
        for _ in range(2):
            self.failureResultOf(self.send(timeout=0.05), UnreachableError)
        self.cluster.down -= {"a:10911", "b:10911"}
        self.successResultOf(self.send())

    def test_missing_brokers_do_not_cause_default_route_lookup(self):
        self.cluster.topics.add(AUTO_CREATE_TOPIC)
        self.successResultOf(self.send())
        self.cluster.topics.discard("T")
        self.cluster.down |= {"a:10911", "b:10911"}
        self.failureResultOf(self.send(timeout=0.05), UnreachableError)
        self.failureResultOf(self.send(timeout=0.05), UnreachableError)
        self.assertNotIn(AUTO_CREATE_TOPIC, [fields["topic"] for _, fields in self.cluster.of(105)])

    def test_failed_send_asks_for_the_route_anew(self):
        self.successResultOf(self.send())
        self.cluster.brokers = ["b"]
        self.cluster.down |= {"a:10911", "b:10911"}
        self.failureResultOf(self.send(timeout=0.05), UnreachableError)
        self.assertEqual(len(self.cluster.of(105)), 2)
        self.assertEqual({queue.broker_name for queue in self.result_of(self.producer.publish_queues("T"))}, {"b"})

    def test_send_outlasts_name_servers_and_brokers_that_are_away(self):
        for away in ("name server", "brokers"):
            with self.subTest(away=away):
                self.setUp()
                brokers = self.cluster.brokers
                if away == "brokers":
                    self.cluster.brokers = []
                    self.cluster.topics.clear()
                else:
                    self.cluster.down.add(None)
                sending = self.send()
                self.clock.pump([0.1] * 10)
                self.assertNoResult(sending)
                self.assertLess(len(self.cluster.of(105)), 15)
                self.cluster.down.clear()
                self.cluster.brokers = brokers
                self.cluster.topics.add("T")
                self.clock.pump([0.1] * 19)
                self.successResultOf(sending)

    def test_send_to_nobody_fails_at_its_timeout_or_at_once_without_retries(self):
        self.cluster.down.add(None)
        sending = self.send(timeout=1)
        self.clock.pump([0.1] * 8)
        self.assertNoResult(sending)
        self.clock.pump([0.1] * 2)
        self.failureResultOf(sending, NoNameServerError)
        once = ProducerEngine(self.client, "once", options=ProducerOptions(retries=0))
        self.result_of(once.start())
        self.failureResultOf(Deferred.fromCoroutine(once.send(Message("T", b"x"))), NoNameServerError)

    def test_send_without_an_address_of_a_name_server_fails_at_once(self):
        self.cluster.down.add(None)
        self.cluster.addresses = ()
        self.failureResultOf(self.send(), NoNameServerError)

    def test_stop_does_not_wait_for_route_refresh(self):
        self.successResultOf(self.send())
        self.cluster.down |= {"a:10911", "b:10911"}
        self.cluster.silent.add(None)
        said = []
        observe = said.append
        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.failureResultOf(self.send(timeout=0.05), UnreachableError)
        self.assertEqual(len(self.cluster.of(105)), 2)
        self.successResultOf(self.client.stopService())
        self.assertEqual([event for event in said if event["log_level"] >= LogLevel.warn], [])

    def test_topic_unknown_to_broker_is_looked_up_again(self):
        self.successResultOf(self.send())
        self.cluster.topics.clear()
        self.cluster.refusals = {(310, "a:10911"): 17, (310, "b:10911"): 17}
        self.failureResultOf(self.send())
        self.failureResultOf(self.send(), TopicNotFoundError)

    def test_silent_name_servers_have_the_timeout_together(self):
        self.client.remoting.update_name_server_addresses(["ns1:9876", "ns2:9876"])
        self.cluster.silent.add(None)
        sending = self.send()
        self.clock.advance(1.5)
        self.assertNoResult(sending)
        self.clock.advance(1.5)
        self.assertIn("no name server answers", str(self.failureResultOf(sending, NoNameServerError).value))
        self.assertEqual([fields["timeout"] for _, fields in self.cluster.of(105)], [1500, 1500])

    def test_next_name_server_answers(self):
        self.client.remoting.update_name_server_addresses(["ns1:9876", "ns2:9876"])
        self.cluster.silent.add(None)
        sending = self.send()
        self.cluster.silent.clear()
        self.clock.advance(1.5)
        self.successResultOf(sending)

    def test_lost_connection_to_only_name_server_is_reopened(self):
        self.cluster.losing.append(None)
        self.successResultOf(self.send())
        self.cluster.losing += [None, None]
        self.failureResultOf(self.send("Other", timeout=0.05), NoNameServerError)

    def test_shorter_timeout_of_send_wins(self):
        self.cluster.silent.add(None)
        sending = self.send(timeout=0.5)
        self.clock.advance(0.5)
        self.failureResultOf(sending, RequestTimeoutError)
        self.clock.advance(3)

    def test_error_of_a_later_try_has_the_tries_before(self):
        self.successResultOf(self.send())
        self.cluster.silent |= {"a:10911", "b:10911"}
        sending = self.send()
        self.client.routes.forget("T")
        self.cluster.down.add(None)
        self.clock.advance(1)
        self.assertNoResult(sending)
        self.clock.pump([0.01] * 200)
        error = self.failureResultOf(sending, NoNameServerError).value
        self.assertEqual([attempt.milliseconds for attempt in error.attempts], [1000])


class ConsumerTests(FaultTestCase):
    def setUp(self):
        super().setUp()
        self.got = []
        self.consumer = PushConsumerEngine(self.client, "cg", self.take, options=ConsumerOptions(begin="earliest"))
        self.consumer.subscribe("T")

    async def take(self, message):
        self.got.append((message.queue.broker_name, message.body))

    def test_queues_of_a_silent_broker_do_not_keep_others_waiting(self):
        self.cluster.silent.add("a:10911")
        starting = Deferred.fromCoroutine(self.consumer.start())
        self.clock.advance(3)  # the heartbeat
        self.clock.advance(3)  # the members of the group
        self.assertEqual(self.cluster.pulls(), {"b:10911": 0})
        self.clock.advance(3)  # where to begin
        self.cluster.silent.clear()
        self.successResultOf(starting)
        self.clock.advance(20)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 0, "b:10911": 0})

    def test_silent_broker_is_asked_for_one_queue_per_round(self):
        self.cluster.topics.add(AUTO_CREATE_TOPIC)  # of which each broker has eight queues
        self.consumer.subscribe(AUTO_CREATE_TOPIC)
        self.cluster.silent.add("a:10911")
        starting = Deferred.fromCoroutine(self.consumer.start())
        self.clock.pump([3] * 5)  # the heartbeat, and members and first offsets for two topics
        self.successResultOf(starting)
        asked = [address for address, fields in self.cluster.of(14)]
        self.assertEqual((asked.count("a:10911"), asked.count("b:10911")), (2, 9))

    def test_broker_without_group_gets_heartbeat_at_once(self):
        self.cluster.refusals[11, "a:10911"] = 24
        self.result_of(self.consumer.start())
        self.clock.advance(1)
        self.assertEqual(len(self.cluster.of(34)), 2)  # it was told, and refuses for another reason
        self.client.connection_lost("a:10911")
        self.clock.pump([0.5] * 4)
        self.assertEqual([address for address, _ in self.cluster.of(34)[2:]], ["a:10911"])
        self.cluster.refusals.clear()
        self.clock.advance(3)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 0, "b:10911": 0})

    def test_member_listed_twice_is_one(self):
        self.cluster.present *= 2
        self.result_of(self.consumer.start())
        self.assertEqual(self.cluster.pulls(), {"a:10911": 0, "b:10911": 0})

    def test_stop_does_not_wait_for_member_list_request(self):
        self.result_of(self.consumer.start())
        self.cluster.silent |= {(38, "a:10911"), (38, "b:10911")}
        self.clock.advance(20)
        self.assertEqual(self.cluster.codes()[-1], 38)
        self.end_of(self.consumer.stop())
        self.assertEqual(self.cluster.codes()[-1], 35)

    def test_leaving_waits_a_second_for_silent_brokers(self):
        self.successResultOf(self.send())
        self.cluster.silent |= {"a:10911", "b:10911"}
        stopping = Deferred.fromCoroutine(self.producer.stop())
        self.clock.advance(0.9)
        self.assertNoResult(stopping)
        self.clock.advance(0.1)
        self.successResultOf(stopping)
