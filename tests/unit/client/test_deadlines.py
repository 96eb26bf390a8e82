"""A producer's calls end in their time, whoever does not answer; on a fake clock."""

from twisted.internet.defer import Deferred

from rocketd.client.errors import (
    BrokerError,
    IllegalMessageError,
    RequestTimeoutError,
    RocketMQError,
    UnreachableError,
)
from rocketd.client.messages.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.transaction import TransactionState
from rocketd.common.message_properties import decode_properties, encode_properties
from rocketd.remoting.bodies.tables import QueueData, TopicRouteData
from rocketd.remoting.headers.client import ReplyMessageRequestHeader
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_faults import FaultTestCase, FaultyCluster


class RequestTests(FaultTestCase):
    def request(self, timeout):
        return Deferred.fromCoroutine(self.producer.request(Message("T", b"hello"), timeout=timeout))

    def reply(self, body=b"fine"):
        """Have a broker pass on the reply to the last request."""
        sent = decode_properties(self.cluster.of(310)[-1][1]["i"])
        header = ReplyMessageRequestHeader(
            producer_group="rg",
            topic="c_REPLY_TOPIC",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=encode_properties({"CORRELATION_ID": sent["CORRELATION_ID"]}),
            reconsume_times=0,
            unit_mode=False,
            born_host="h:1",
            store_host="h:2",
            store_timestamp=2,
        )
        self.client.replies.arrived(header, body)

    def test_silent_name_server(self):
        self.cluster.silent.add(None)
        asking = self.request(0.5)
        self.clock.advance(0.4)
        self.assertNoResult(asking)
        self.clock.advance(0.1)
        self.failureResultOf(asking, RequestTimeoutError)
        self.clock.advance(3)

    def test_heartbeat_before_request_has_a_third_of_the_time(self):
        self.successResultOf(self.send())
        self.cluster.silent.add((34, "a:10911"))
        asking = self.request(0.6)
        self.clock.advance(0.15)
        self.assertEqual(len(self.cluster.of(310)), 1)
        self.clock.advance(0.05)
        self.assertEqual(len(self.cluster.of(310)), 2)
        self.reply()
        self.assertEqual(self.successResultOf(asking).body, b"fine")
        self.clock.advance(3)
        # The time of that heartbeat was its own, so that a slow broker keeps its connection.
        ((_, fields),) = [asked for asked in self.cluster.of(34) if asked[0] == "a:10911"]
        self.assertEqual(fields["timeout"], 3000)

    def test_silent_name_server_delays_one_request_by_a_third_of_its_time(self):
        """It is asked for the brokers that pass replies on, which the request can do without."""
        self.successResultOf(self.send())
        self.cluster.silent.add(None)
        for waits in (0.2, 0.0):
            sent = len(self.cluster.of(310))
            asking = self.request(0.6)
            self.clock.advance(waits)
            self.assertEqual(len(self.cluster.of(310)), sent + 1)
            self.reply()
            self.assertEqual(self.successResultOf(asking).body, b"fine")
        self.clock.advance(3)

    def test_black_holes_everywhere(self):
        self.successResultOf(self.send())
        self.cluster.silent |= {None, "a:10911", "b:10911"}
        asking = self.request(0.6)
        self.clock.pump([0.1] * 5)
        self.assertNoResult(asking)
        self.clock.advance(0.1)
        self.failureResultOf(asking, RequestTimeoutError)
        self.clock.advance(3)

    def test_undecodable_reply_raises(self):
        class Numbers:
            def encode(self, value):
                return b"%d" % value

            def decode(self, body):
                return int(body)

        producer = ProducerEngine(self.client, "numbers", codec=Numbers())
        self.result_of(producer.start())
        asking = Deferred.fromCoroutine(producer.request(Message("T", 5), timeout=1))
        self.reply(b"five")
        error = self.failureResultOf(asking, IllegalMessageError).value
        self.assertIn("the reply with correlation id", str(error))
        self.assertIn("invalid literal", str(error))


class TransactionTests(FaultTestCase):
    def test_silent_broker_does_not_keep_a_local_transaction_waiting(self):
        begun = []

        class Listener:
            async def execute(self, message, arg, transaction_id):
                begun.append(arg)
                return TransactionState.COMMIT

            async def check(self, message):
                return TransactionState.COMMIT

        answer = self.cluster.answer_310

        def stored(address, request, fields):
            response = answer(address, request, fields)
            response.ext_fields["msgId"] = "0" * 32
            return response

        self.cluster.answer_310 = stored
        self.cluster.answer_37 = self.cluster.answer_35
        producer = ProducerEngine(self.client, "tx", options=ProducerOptions(send_timeout=1.5), transactions=Listener())
        self.successResultOf(self.send())
        self.result_of(producer.start())
        self.client.connection_lost("a:10911")
        self.cluster.silent.add((34, "a:10911"))
        sending = Deferred.fromCoroutine(producer.send_in_transaction(Message("T", b"x"), "arg"))
        self.clock.advance(0.4)
        self.assertEqual(begun, [])
        self.clock.advance(0.1)
        self.assertEqual(begun, ["arg"])
        self.assertIs(self.successResultOf(sending).state, TransactionState.COMMIT)
        self.clock.advance(3)


class BatchTests(FaultTestCase):
    def setUp(self):
        super().setUp()
        self.batches = []
        self.waiting = []
        self.cluster.answer_320 = self.answer
        self.batching = ProducerEngine(
            self.client, "batches", options=ProducerOptions(max_message_size=1000, retries=0)
        )
        self.result_of(self.batching.start())

    def answer(self, address, request, fields):
        self.batches.append((self.clock.seconds(), address))
        answer = Deferred()
        self.waiting.append((answer, fields))
        return answer

    def answer_next(self, response=None):
        answer, fields = self.waiting.pop(0)
        where = {"msgId": "ID", "queueId": fields["e"], "queueOffset": "0"}
        answer.callback(response or RemotingCommand.response(0, ext_fields=where))

    def send_three(self, timeout):
        messages = [Message("T", b"%d" % number * 600) for number in range(3)]
        return Deferred.fromCoroutine(self.batching.send_batch(messages, timeout=timeout))

    def test_time_is_for_all_requests_together(self):
        sending = self.send_three(1.0)
        for _ in range(2):
            self.clock.advance(0.5)
            self.answer_next()
        error = self.failureResultOf(sending, RequestTimeoutError).value
        self.assertEqual(len(self.batches), 2)
        self.assertEqual(str(error), "2 of 3 messages to T took all of 1000 ms")
        self.assertEqual(len(error.results), 2)

    def test_later_request_gets_remaining_time(self):
        sending = self.send_three(1.0)
        self.clock.advance(0.7)
        self.cluster.silent |= {"a:10911", "b:10911"}
        self.answer_next()
        self.assertEqual([round(fields["timeout"]) for _, fields in self.cluster.of(320)[1:]], [300])
        self.clock.advance(0.3)
        error = self.failureResultOf(sending, RequestTimeoutError).value
        self.assertEqual([result.status for result in error.results], [0])

    def test_error_has_results_of_stored_parts(self):
        for response, kind in ((RemotingCommand.response(13, "because"), BrokerError), (None, UnreachableError)):
            sending = self.send_three(1.0)
            self.answer_next()
            if response is None:
                self.cluster.down |= {"a:10911", "b:10911"}
                self.answer_next()
            else:
                self.answer_next(response)
            error = self.failureResultOf(sending, kind).value
            keys = [result.msg_id for result in error.results]
            self.assertEqual([len(key) for key in keys], [32] * (1 if response else 2))

    def test_results_of_successful_batch_are_in_order(self):
        sending = self.send_three(1.0)
        for _ in range(3):
            self.answer_next()
        self.assertEqual(len({result.msg_id for result in self.successResultOf(sending)}), 3)

    def test_other_errors_have_no_results(self):
        self.assertEqual(RocketMQError("x").results, ())


class EightQueuesEach(FaultyCluster):
    def answer_105(self, address, request, fields):
        route = TopicRouteData([QueueData(name, 8, 8, 6) for name in self.brokers], self.broker_data())
        return RemotingCommand.response(0, body=route.encode(standard=True))


class LatencyFaultToleranceTests(FaultTestCase):
    cluster_type = EightQueuesEach

    def test_refusing_broker_is_skipped(self):
        """As in Apache's client, which isolates a broker for a refusal, too; its queues stand one behind the other."""
        for tolerance in (False, True):
            options = ProducerOptions(latency_fault_tolerance=tolerance)
            producer = ProducerEngine(self.client, f"tolerance{tolerance}", options=options)
            self.result_of(producer.start())
            self.cluster.refusals = {(310, "a:10911"): 1}
            self.cluster.asked.clear()
            brokers = [self.result_of(producer.send(Message("T", b"x"))).queue.broker_name for _ in range(40)]
            self.assertEqual(set(brokers), {"b"})
        refused = [address for address, _ in self.cluster.of(310) if address == "a:10911"]
        self.assertLessEqual(len(refused), 1)
