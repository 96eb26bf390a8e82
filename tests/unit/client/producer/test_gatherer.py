"""Single sends gathered into batches, against scripted brokers on a fake clock."""

from datetime import timedelta

from twisted.internet.defer import CancelledError, Deferred

from rocketd.client.errors import BrokerError, ClientClosedError, IllegalOptionError, MessageTooLargeError
from rocketd.client.messages.message import Message
from rocketd.client.producer.gatherer import MAX_GATHERED_BYTES
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_cluster import ClientTestCase, Cluster

LINGER = 0.01


class BatchCluster(Cluster):
    """Answers batches as brokers do: with the ids of all messages, and the offset of the first one."""

    def answer_320(self, address, request, fields):
        count = request.body.count(b"UNIQ_KEY")
        where = {"msgId": ",".join(f"ID{n}" for n in range(count)), "queueId": fields["e"], "queueOffset": "40"}
        return RemotingCommand.response(0, ext_fields=where)


class GathererTests(ClientTestCase):
    cluster_type = BatchCluster

    def setUp(self):
        super().setUp()
        self.producer = self.started()

    def tearDown(self):
        self.assertEqual(self.producer._gatherer.pending, 0)
        super().tearDown()

    def started(self, **options):
        options = ProducerOptions(**{"linger": LINGER, **options})
        producer = ProducerEngine(self.client, f"pg{len(self.client.producers)}", options=options)
        self.result_of(producer.start())
        return producer

    def sending(self, message, producer=None, **arguments):
        return Deferred.fromCoroutine((producer or self.producer).send(message, **arguments))

    def several(self, count, producer=None, topic="T"):
        return [self.sending(Message(topic, b"%d" % n), producer) for n in range(count)]

    def codes(self):
        return [code for code in self.cluster.codes() if code in (310, 320)]

    def test_sends_within_the_linger_time_are_one_request_with_a_result_each(self):
        sends = self.several(3)
        self.clock.advance(LINGER * 0.9)
        self.assertEqual(self.codes(), [])
        sends.append(self.sending(Message("T", b"3", "tag", ["key"])))
        self.clock.advance(LINGER * 0.2)
        self.assertEqual(self.codes(), [320])
        results = [self.successResultOf(one) for one in sends]
        self.assertEqual([result.queue_offset for result in results], [40, 41, 42, 43])
        self.assertEqual([result.offset_msg_id for result in results], ["ID0", "ID1", "ID2", "ID3"])
        self.assertEqual(len({result.msg_id for result in results}), 4)
        self.assertEqual(len({result.queue for result in results}), 1)
        ((_, _, fields, request),) = [asked for asked in self.cluster.asked if asked[0] == 320]
        self.assertEqual(fields["m"], "true")
        for result in results:
            self.assertIn(result.msg_id.encode(), request.body)
        self.clock.advance(1)
        self.assertEqual(self.codes(), [320])

    def test_topics_and_wait_stored_are_kept_apart(self):
        self.cluster.topics.add("U")
        sends = [*self.several(2), *self.several(2, topic="U"), self.sending(Message("T", b"x", wait_stored=False))]
        self.clock.advance(LINGER)
        self.assertEqual(self.codes(), [320] * 3)
        topics = [self.successResultOf(one).queue.topic for one in sends]
        self.assertEqual(topics, ["T", "T", "U", "U", "T"])

    def test_full_batches_are_sent_at_once(self):
        producer = self.started(linger_messages=3)
        sends = self.several(7, producer)
        self.assertEqual([one.called for one in sends], [True] * 6 + [False])
        self.assertEqual(self.codes(), [320, 320])
        large = self.started(compress_over=1 << 20)
        sends = [self.sending(Message("T", bytes(MAX_GATHERED_BYTES // 2)), large) for _ in range(2)]
        self.assertEqual([one.called for one in sends], [True, False])

    def test_large_messages_go_alone_or_in_another_batch(self):
        """The sum of a batch must not exceed the limit of the broker."""
        large = self.started(compress_over=8 << 20)
        self.assertIsNone(large.gather(Message("T", bytes(MAX_GATHERED_BYTES)), None))
        sends = [self.sending(Message("T", bytes(size)), large) for size in (1000, MAX_GATHERED_BYTES - 1000)]
        self.assertEqual([one.called for one in sends], [True, False])
        self.clock.advance(LINGER)
        self.assertEqual(self.codes(), [320, 320])

    def test_messages_with_a_place_or_time_of_their_own_are_sent_alone(self):
        for message, arguments in (
            (Message("T", b"x"), {"queue": MessageQueue("T", "b", 0)}),
            (Message("T", b"x"), {"key": "A17"}),
            (Message("T", b"x"), {"selector": lambda queues, *_: queues[0]}),
            (Message("T", b"x", delay_level=3), {}),
            (Message("T", b"x", deliver_after=3), {}),
            (Message("T", bytes(4096)), {}),
        ):
            self.successResultOf(self.sending(message, **arguments))
        self.assertEqual(self.codes(), [310] * 6)
        self.assertNotEqual(self.cluster.log[-1]["f"], "0")  # it is compressed

    def test_each_message_gets_the_error_of_its_batch(self):
        self.cluster.refusals = {(320, "a:10911"): 13, (320, "b:10911"): 13}
        sends = self.several(3)
        self.clock.advance(LINGER)
        for one in sends:
            self.assertEqual(self.failureResultOf(one, BrokerError).value.code, 13)
        self.assertEqual(self.codes(), [320])

    def test_message_with_an_error_leaves_the_others_alone(self):
        sends = self.several(2)
        self.failureResultOf(self.sending(Message("T", bytes(5 << 20))), MessageTooLargeError)
        self.clock.advance(LINGER)
        for one in sends:
            self.successResultOf(one)

    def test_failed_batch_is_tried_again_elsewhere(self):
        self.cluster.refusals = {(320, "a:10911"): 1}
        for _ in range(2):
            sends = self.several(2)
            self.clock.advance(LINGER)
            self.assertEqual([self.successResultOf(one).queue.broker_name for one in sends], ["b", "b"])

    def test_cancelled_message_leaves_its_batch(self):
        first, cancelled = self.several(2)
        cancelled.cancel()
        self.failureResultOf(cancelled, CancelledError)
        self.clock.advance(LINGER)
        self.assertEqual(self.successResultOf(first).offset_msg_id, "ID0")
        (alone,) = self.several(1)
        alone.cancel()
        self.failureResultOf(alone, CancelledError)
        self.clock.advance(LINGER)
        self.assertEqual(self.codes(), [320])

    def test_stop_sends_the_waiting_messages(self):
        sends = self.several(2)
        self.end_of(self.producer.stop())
        for one in sends:
            self.successResultOf(one)
        self.failureResultOf(self.sending(Message("T", b"x")), ClientClosedError)
        self.assertEqual(self.codes(), [320])

    def test_waiting_messages_count_as_pending(self):
        producer = self.started(max_pending=2)
        self.several(2, producer)
        failed = self.sending(Message("T", b"x"), producer)
        self.assertIn("max_pending", str(self.failureResultOf(failed).value))
        self.clock.advance(LINGER)
        self.several(2, producer)

    def test_linger_is_a_duration(self):
        self.assertRaises(IllegalOptionError, ProducerOptions, linger=-1)
        self.assertRaises(IllegalOptionError, ProducerOptions, linger_messages=0)
        producer = self.started(linger=timedelta(milliseconds=20))
        (one,) = self.several(1, producer)
        self.clock.advance(0.019)
        self.assertNoResult(one)
        self.clock.advance(0.002)
        self.successResultOf(one)
