"""The producer against scripted name servers and brokers, on a fake clock."""

import json

from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.errors import (
    BrokerError,
    NoBrokerError,
    NoNameServerError,
    NoRouteError,
    RequestTimeoutError,
    TopicNotFoundError,
    UnreachableError,
    UsageError,
)
from rocketd.client.messages.message import Message, ReceivedMessage
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.selectors import SelectMessageQueueByHash
from rocketd.common.message_properties import decode_properties
from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.client_cluster import ClientTestCase
from tests.support.places import FRAMES

STORED = (10, 11, 12)
RECORDED = FRAMES / "java4.jsonl"


def java_commands():
    """Commands recorded between Apache's client and servers."""
    for line in RECORDED.read_text().splitlines():
        (frame,) = FrameDecoder().feed(bytes.fromhex(json.loads(line)["hex"]))
        yield RemotingCommand.decode(frame)


class ProducerTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.producer = ProducerEngine(self.client, "pg")
        self.result_of(self.producer.start())

    def send(self, topic="T", **arguments):
        return self.producer.send(Message(topic, b"hello", "A"), **arguments)

    def test_sends_to_the_queues_in_turn(self):
        results = [self.result_of(self.send()) for _ in range(4)]
        self.assertEqual(sorted(result.queue.broker_name for result in results), ["a", "a", "b", "b"])
        self.assertEqual(self.cluster.codes().count(105), 1)
        (fields, *_) = self.cluster.log
        self.assertEqual((fields["a"], fields["b"], fields["c"], fields["d"]), ("pg", "T", "TBW102", "4"))
        self.assertIn(f"UNIQ_KEY\x01{results[0].msg_id}", fields["i"])
        self.assertEqual(results[0].offset_msg_id, "OFFSETID")

    def test_a_key_chooses_the_queue_by_its_hash(self):
        self.cluster.brokers = ["a", "b", "c"]
        queues = self.result_of(self.producer.publish_queues("T"))
        for key in ("A17", "A18", "A19", 0, False):
            expected = SelectMessageQueueByHash()(queues, None, key)
            self.assertEqual([self.result_of(self.send(key=key)).queue for _ in range(2)], [expected] * 2)
            self.result_of(self.producer.send_oneway(Message("T", b"hello"), key=key))
            self.assertEqual(self.cluster.of(310)[-1][0], f"{expected.broker_name}:10911")

    def test_a_hash_without_a_key_names_the_option(self):
        for key, text in ((None, "give key=..."), (object(), "give a text or a number")):
            error = self.failureResultOf(
                Deferred.fromCoroutine(self.send(selector=SelectMessageQueueByHash(), key=key)), UsageError
            )
            self.assertIn(text, str(error.value))

    def test_a_queue_and_a_key_contradict_each_other(self):
        for more in ({"key": "A17"}, {"selector": SelectMessageQueueByHash(), "key": "A17"}):
            error = self.failureResultOf(
                Deferred.fromCoroutine(self.send(queue=MessageQueue("T", "b", 0), **more)), UsageError
            )
            self.assertIn("queue=", str(error.value))

    def test_send_to_given_queue_finds_its_route(self):
        for send in (self.producer.send, self.producer.send_oneway):
            self.client.routes.forget("T")
            self.client.routes.forget_offline_brokers()
            self.result_of(send(Message("T", b"hello"), queue=MessageQueue("T", "b", 0)))
        self.assertEqual([(address, fields["e"]) for address, fields in self.cluster.of(310)], [("b:10911", "0")] * 2)

    def test_new_topic_uses_the_default_route(self):
        self.cluster.topics.add(AUTO_CREATE_TOPIC)
        queues = {self.result_of(self.send("New")).queue for _ in range(8)}
        self.assertEqual({queue.topic for queue in queues}, {"New"})
        self.assertEqual({queue.queue_id for queue in queues}, {0, 1, 2, 3})

    def test_no_route_names_the_cause(self):
        text = str(self.failure_of(self.send("New"), TopicNotFoundError))
        self.assertIn("New", text)
        self.assertIn("autoCreateTopicEnable", text)
        self.cluster.brokers.clear()
        text = str(self.failure_of(self.send("New", timeout=0.05), NoBrokerError))
        self.assertIn("New", text)
        self.assertIn("ns:9876", text)
        self.cluster.down.add(None)
        self.assertIsInstance(self.failure_of(self.send("New", timeout=0.05), NoNameServerError), NoRouteError)

    def test_broker_given_as_name_server_is_named_in_error(self):
        self.cluster.answer_105 = lambda *_: RemotingCommand.response(3, " request type 105 not supported")
        error = self.failure_of(self.send("New"), NoNameServerError)
        self.assertRegex(str(error), "^ns:9876 is not a name server.*may be a broker.*9876")

    def test_failed_route_refresh_is_logged_once(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.result_of(self.send())
        self.cluster.down.update(("a:10911", "b:10911", None))
        for _ in range(20):
            self.failure_of(self.send(timeout=0.05), UnreachableError)
        self.assertEqual(sum("stays as it was" in formatEvent(event) for event in events), 1)

    def test_another_broker_takes_over(self):
        self.cluster.down.add("a:10911")
        for _ in range(4):
            self.assertEqual(self.result_of(self.send()).queue.broker_name, "b")
        self.cluster.down.clear()
        self.cluster.refusals[310, "b:10911"] = 14
        self.assertEqual(self.result_of(self.send()).queue.broker_name, "a")

    def test_other_refusals_are_final(self):
        self.cluster.refusals = {(310, "a:10911"): 13, (310, "b:10911"): 13}
        error = self.failure_of(self.send(), BrokerError)
        self.assertEqual((error.code, error.remark), (13, "because"))
        self.assertEqual(self.cluster.codes().count(310), 1)

    def test_retriable_refusals_are_those_of_apaches_client(self):
        """The codes after which Apache's client tries on, and no others."""
        for code in range(1, 220):
            if code in STORED:
                continue
            self.cluster.refusals = {(310, "a:10911"): code, (310, "b:10911"): code}
            self.cluster.asked.clear()
            self.assertEqual(self.failure_of(self.send(), BrokerError).code, code)
            self.assertEqual(self.cluster.codes().count(310), 3 if code in (1, 14, 16, 17, 204, 205) else 1, code)

    def answering(self, code):
        """Have broker a answer so, and b as ever."""
        of_both = self.cluster.answer_310

        def answer(address, request, fields):
            response = of_both(address, request, fields)
            response.code = code if address == "a:10911" else 0
            response.ext_fields |= {"transactionId": "TX", "MSG_REGION": "north", "TRACE_ON": "false"}
            return response

        self.cluster.answer_310 = answer

    def test_stored_message_with_failed_flush_or_replica_is_a_result(self):
        for code in STORED:
            self.answering(code)
            results = [self.result_of(self.send()) for _ in range(4)]
            self.assertEqual({(result.queue.broker_name, result.status) for result in results}, {("a", code), ("b", 0)})
        self.assertEqual(self.cluster.codes().count(310), 4 * len(STORED))

    def test_retry_another_broker_option_retries_such_results(self):
        producer = ProducerEngine(self.client, "careful", options=ProducerOptions(retry_another_broker=True, retries=1))
        self.result_of(producer.start())
        self.answering(11)
        results = [self.result_of(producer.send(Message("T", b"x"))) for _ in range(4)]
        self.assertEqual({(result.queue.broker_name, result.status) for result in results}, {("b", 0)})
        self.cluster.down.add("b:10911")
        self.assertEqual(self.result_of(producer.send(Message("T", b"x"))).status, 11)

    def test_result_has_all_fields_of_the_answer(self):
        self.answering(0)
        result = self.result_of(self.send(queue=MessageQueue("T", "b", 0)))
        self.assertEqual((result.offset_msg_id, result.queue_offset, result.transaction_id), ("OFFSETID", 0, "TX"))
        self.assertEqual((result.region_id, result.trace_on, result.queue), ("north", False, MessageQueue("T", "b", 0)))
        self.assertEqual(len(result.msg_id), 32)

    def test_send_request_equals_apaches(self):
        self.result_of(self.producer.send(Message("T", b"hello", flag=7, wait_stored=False)))
        ((code, _, fields, request),) = [asked for asked in self.cluster.asked if asked[0] == 310]
        theirs = next(command.ext_fields for command in java_commands() if command.code == 310)
        self.assertEqual((code, bytes(request.body)), (310, b"hello"))
        self.assertEqual(set(fields), set(theirs))
        told = {"a": "pg", "b": "T", "e": "0", "h": "7"}
        made = {"g": "1700000000000", "i": fields["i"], "n": fields["n"]}
        self.assertEqual(fields, {**theirs, **told, **made})
        self.assertEqual(decode_properties(fields["i"])["WAIT"], "false")

    def test_message_keeps_its_unique_key_when_retried(self):
        self.cluster.refusals = {(310, "a:10911"): 1, (310, "b:10911"): 1}
        self.failure_of(self.send(), BrokerError)
        self.assertEqual(len({fields["i"] for _, fields in self.cluster.of(310)}), 1)

    def test_heartbeats_and_unregistration(self):
        self.result_of(self.send())
        self.clock.advance(30)
        self.assertEqual(sorted(address for address, _ in self.cluster.of(34)), ["a:10911", "b:10911"])
        self.result_of(self.producer.stop())
        self.assertEqual({fields["producerGroup"] for _, fields in self.cluster.of(35)}, {"pg"})

    def test_heartbeat_precedes_first_request(self):
        """They find the way of a reply by the heartbeat, which the first sends do not need."""
        self.result_of(self.send())
        self.assertEqual(self.cluster.of(34), [])
        asking = Deferred.fromCoroutine(self.producer.request(Message("T", b"hello"), timeout=1))
        self.assertEqual(self.cluster.codes()[-3:], [34, 34, 310])
        again = Deferred.fromCoroutine(self.producer.request(Message("T", b"hello"), timeout=1))
        self.assertEqual(len(self.cluster.of(34)), 2)
        self.clock.advance(1)
        for asked in (asking, again):
            self.failureResultOf(asked, RequestTimeoutError)

    def test_heartbeat_before_request_goes_to_all_brokers_with_the_reply_topic(self):
        """Apache's clients reply by any of them, and each must know the requester."""
        everywhere = self.cluster.answer_105

        def answer(address, request, fields):
            self.cluster.brokers = ["a", "b", "d"] if fields["topic"] == "c_REPLY_TOPIC" else ["a"]
            return everywhere(address, request, fields)

        self.cluster.topics.add("c_REPLY_TOPIC")
        self.cluster.answer_105 = answer
        for _ in range(2):
            asking = Deferred.fromCoroutine(self.producer.request(Message("T", b"hello"), timeout=1))
            self.assertEqual([address for address, _ in self.cluster.of(310)][-1:], ["a:10911"])
            self.clock.advance(1)
            self.failureResultOf(asking, RequestTimeoutError)
        self.assertEqual(sorted(address for address, _ in self.cluster.of(34)), ["a:10911", "b:10911", "d:10911"])
        self.assertEqual([fields["topic"] for _, fields in self.cluster.of(105)], ["T", "c_REPLY_TOPIC"])

    def request_from(self, broker):
        return ReceivedMessage(
            topic="T", body=b"?", properties={"CLUSTER": "c", "CORRELATION_ID": "1"}, msg_id="U", offset_msg_id="O",
            queue=MessageQueue("T", broker, 0), queue_offset=0, physical_offset=0, flag=0, sys_flag=0, born_timestamp=0,
            store_timestamp=0, born_host="h:1", store_host="h:2", store_size=9, reconsume_times=0,
        )  # fmt: skip

    def test_reply_goes_to_the_broker_of_its_request(self):
        self.cluster.brokers = ["a", "b", "d", "e"]
        self.cluster.topics.add("c_REPLY_TOPIC")
        self.cluster.answer_325 = self.cluster.answer_310
        for _ in range(9):
            self.result_of(self.producer.reply(self.request_from("d"), b"!"))
        self.assertEqual({address for address, _ in self.cluster.of(325)}, {"d:10911"})

    def test_reply_goes_to_another_broker_if_that_of_its_request_refuses_or_has_no_reply_topic(self):
        self.cluster.topics.add("c_REPLY_TOPIC")
        self.cluster.answer_325 = self.cluster.answer_310
        self.cluster.refusals[325, "b:10911"] = 1
        self.result_of(self.producer.reply(self.request_from("b"), b"!"))
        self.assertEqual([address for address, _ in self.cluster.of(325)], ["b:10911", "a:10911"])
        self.result_of(self.producer.reply(self.request_from("gone"), b"!"))

    def test_heartbeat_names_new_producer_group(self):
        self.result_of(self.send())
        self.result_of(self.client.greet())
        other = ProducerEngine(self.client, "other")
        self.result_of(other.start())
        self.result_of(self.client.greet())
        self.result_of(self.client.greet())
        groups = [{data.group_name for data in heartbeat.producer_data_set} for heartbeat in self.cluster.heartbeats]
        self.assertEqual(groups, [{"pg"}] * 2 + [{"pg", "other"}] * 2)
