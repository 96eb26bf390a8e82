"""Producer and consumer against scripted name servers and brokers, on a fake clock."""

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.push_consumer import PushConsumer
from rocketd.client.errors import BrokerError, NoRouteError, StopConsuming
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.message import Message
from rocketd.client.producer.producer import Producer
from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.remoting.bodies import (
    BrokerData,
    ConsumeFromWhere,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    QueueData,
    TopicRouteData,
)
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingConnectError
from rocketd.store.message import MessageInner
from rocketd.store.record import encode_record

HOST = bytes([10, 0, 0, 1]) + (1).to_bytes(4, "big")


class Cluster:
    """Name servers and two brokers, a and b, each with one queue of each topic; stands in for a RemotingClient."""

    def __init__(self, topics=("T",)):
        self.topics = set(topics)
        self.down = set()
        self.asked = []
        self.refusals = {}
        self.heartbeats = []
        self.offsets = {}
        self.log = []
        self.held = []
        self.name_servers = self
        self.addresses = ("ns:9876",)
        self.chosen = "ns:9876"

    def update_name_server_addresses(self, addresses):
        pass

    def register_processor(self, code, processor):
        self.notified = processor

    def startService(self):
        pass

    def stopService(self):
        return succeed(None)

    def invoke_sync(self, address, request, timeout_ms):
        self.asked.append((request.code, address, dict(request.ext_fields or {}), request))
        if address in self.down:
            return fail(RemotingConnectError(address))
        refusal = self.refusals.get((request.code, address))
        if refusal is not None:
            return succeed(RemotingCommand.response(refusal, "because"))
        answer = getattr(self, f"answer_{request.code}")(address, request, request.ext_fields or {})
        return answer if isinstance(answer, Deferred) else succeed(answer)

    def codes(self):
        return [code for code, *_ in self.asked]

    def of(self, code):
        return [(address, fields) for asked, address, fields, _ in self.asked if asked == code]

    def answer_105(self, address, request, fields):
        if fields["topic"] not in self.topics:
            return RemotingCommand.response(17, "no route")
        route = TopicRouteData(
            [QueueData(name, 8 if fields["topic"] == AUTO_CREATE_TOPIC else 1, 1, 6) for name in "ab"],
            [BrokerData("c", name, {0: f"{name}:10911"}) for name in "ab"],
        )
        return RemotingCommand.response(0, body=route.encode(standard=True))

    def answer_310(self, address, request, fields):
        header = {"msgId": "OFFSETID", "queueId": fields["e"], "queueOffset": str(len(self.log))}
        self.log.append(fields)
        return RemotingCommand.response(0, ext_fields=header)

    def answer_34(self, address, request, fields):
        self.heartbeats.append(HeartbeatData.decode(request.body))
        return RemotingCommand.response(0)

    others = ()

    def answer_38(self, address, request, fields):
        members = [*self.others, *self.present]
        return RemotingCommand.response(0, body=GetConsumerListByGroupResponseBody(members).encode())

    present = ()

    def answer_14(self, address, request, fields):
        stored = self.offsets.get((address, fields["topic"]))
        if stored is None:
            return RemotingCommand.response(22)
        return RemotingCommand.response(0, ext_fields={"offset": str(stored)})

    def answer_30(self, address, request, fields):
        return RemotingCommand.response(0, ext_fields={"offset": "7"})

    def answer_15(self, address, request, fields):
        self.offsets[address, fields["topic"]] = int(fields["commitOffset"])
        return RemotingCommand.response(0)

    answer_35 = answer_36 = lambda self, address, request, fields: RemotingCommand.response(0)

    def answer_11(self, address, request, fields):
        held = Deferred()
        self.held.append((address, fields, held))
        return held

    def deliver(self, address, records, begin):
        """Answer the pull that waits at a broker, with records from an offset on."""
        (entry,) = [entry for entry in self.held if entry[0] == address and not entry[2].called]
        self.held.remove(entry)
        body = b"".join(
            encode_record(
                MessageInner("T", 0, 0, 0, 0, HOST, 0, 0, text, properties.encode(), 0), HOST, begin + n, 100 + n, 0
            )
            for n, (text, properties) in enumerate(records)
        )
        header = dict.fromkeys(("suggestWhichBrokerId", "minOffset", "maxOffset"), "0")
        header["nextBeginOffset"] = str(begin + len(records))
        entry[2].callback(RemotingCommand.response(0, ext_fields=header, body=body))


class ClientTestCase(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.cluster = Cluster()
        self.client = ClientInstance(
            self.clock,
            ["ns:9876"],
            remoting=self.cluster,
            address="10.0.0.9",
            instance_name="me",
            now_ms=lambda: 1_700_000_000_000 + self.clock.seconds() * 1000,
        )
        self.cluster.present = (self.client.client_id,)
        self.client.startService()


class ProducerTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.producer = Producer(self.client, "pg")
        self.producer.start()

    def send(self, topic="T", **arguments):
        return self.producer.send(Message(topic, b"hello", "A"), **arguments)

    def test_sends_to_the_queues_in_turn(self):
        results = [self.successResultOf(self.send()) for _ in range(4)]
        self.assertEqual(sorted(result.queue.broker_name for result in results), ["a", "a", "b", "b"])
        self.assertEqual(self.cluster.codes().count(105), 1)
        (fields, *_) = self.cluster.log
        self.assertEqual((fields["a"], fields["b"], fields["c"], fields["d"]), ("pg", "T", "TBW102", "4"))
        self.assertIn(f"UNIQ_KEY\x01{results[0].msg_id}", fields["i"])
        self.assertEqual(results[0].offset_msg_id, "OFFSETID")

    def test_new_topic_uses_the_default_route(self):
        self.cluster.topics.add(AUTO_CREATE_TOPIC)
        queues = {self.successResultOf(self.send("New")).queue for _ in range(8)}
        self.assertEqual({queue.topic for queue in queues}, {"New"})
        self.assertEqual({queue.queue_id for queue in queues}, {0, 1, 2, 3})

    def test_no_route_names_the_cause(self):
        text = str(self.failureResultOf(self.send("New"), NoRouteError).value)
        self.assertIn("New", text)
        self.assertIn("ns:9876", text)

    def test_another_broker_takes_over(self):
        self.cluster.down.add("a:10911")
        for _ in range(4):
            self.assertEqual(self.successResultOf(self.send()).queue.broker_name, "b")
        self.cluster.down.clear()
        self.cluster.refusals[310, "b:10911"] = 14
        self.assertEqual(self.successResultOf(self.send()).queue.broker_name, "a")

    def test_gives_up_after_three_tries(self):
        self.cluster.down |= {"a:10911", "b:10911"}
        self.failureResultOf(self.send(), RemotingConnectError)
        self.assertEqual(self.cluster.codes().count(310), 3)

    def test_other_refusals_are_final(self):
        self.cluster.refusals = {(310, "a:10911"): 13, (310, "b:10911"): 13}
        error = self.failureResultOf(self.send(), BrokerError).value
        self.assertEqual((error.code, error.remark), (13, "because"))
        self.assertEqual(self.cluster.codes().count(310), 1)

    def test_message_keeps_its_unique_key_when_retried(self):
        self.cluster.refusals = {(310, "a:10911"): 1, (310, "b:10911"): 1}
        self.failureResultOf(self.send(), BrokerError)
        self.assertEqual(len({fields["i"] for _, fields in self.cluster.of(310)}), 1)

    def test_heartbeats_and_unregistration(self):
        self.successResultOf(self.send())
        self.clock.advance(30)
        self.assertEqual(sorted(address for address, _ in self.cluster.of(34)), ["a:10911", "b:10911"])
        self.successResultOf(self.producer.stop())
        self.assertEqual({fields["producerGroup"] for _, fields in self.cluster.of(35)}, {"pg"})


class ConsumerTestCase(ClientTestCase):
    from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

    def setUp(self):
        super().setUp()
        self.got = []
        self.consumer = self.make(lambda message: self.got.append((message.queue.broker_name, message.body)))

    def make(self, listener):
        return PushConsumer(self.client, "cg", listener, self.from_where)

    def start(self, expression=None, consumer=None):
        consumer = consumer or self.consumer
        consumer.subscribe("T", expression)
        self.successResultOf(consumer.start())

    def pulls(self):
        return {address: int(fields["queueOffset"]) for address, fields, held in self.cluster.held if not held.called}


class ConsumerTests(ConsumerTestCase):
    def test_heartbeat_comes_before_the_first_pull(self):
        self.start()
        codes = self.cluster.codes()
        self.assertLess(codes.index(34), codes.index(11))
        (consumer,) = self.cluster.heartbeats[0].consumer_data_set
        topics = {subscription.topic for subscription in consumer.subscription_data_set}
        self.assertEqual((consumer.group_name, topics), ("cg", {"T", "%RETRY%cg"}))
        self.assertEqual(self.pulls(), {"a:10911": 0, "b:10911": 0})

    def test_messages_are_consumed_and_offsets_stored(self):
        self.start()
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.assertEqual(self.got, [("a", b"one"), ("a", b"two")])
        self.assertEqual(self.pulls(), {"a:10911": 2, "b:10911": 0})
        self.clock.advance(5)
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 2})
        self.clock.advance(5)
        self.assertEqual(self.cluster.codes().count(15), 1)

    def test_begins_where_the_group_has_got_to(self):
        self.cluster.offsets["a:10911", "T"] = 40
        self.start()
        self.assertEqual(self.pulls(), {"a:10911": 40, "b:10911": 0})

    def test_other_tags_with_the_same_hash_are_skipped(self):
        self.start("Aa")
        self.cluster.deliver("a:10911", [(b"no", "TAGS\x01BB"), (b"yes", "TAGS\x01Aa")], 0)
        self.assertEqual(self.got, [("a", b"yes")])
        self.assertEqual(self.pulls()["a:10911"], 2)

    def test_failed_message_is_sent_back(self):
        self.start(consumer=self.make(lambda message: 1 / 0))
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        ((address, fields),) = self.cluster.of(36)
        self.assertEqual((address, fields["offset"], fields["group"]), ("a:10911", "100", "cg"))
        self.assertEqual(self.pulls()["a:10911"], 1)

    def test_message_that_cannot_be_sent_back_is_consumed_again_here(self):
        fails = [True]

        def listener(message):
            if fails.pop() if fails else False:
                raise RuntimeError("not now")
            self.got.append(message.body)

        self.start(consumer=self.make(listener))
        self.cluster.refusals[36, "a:10911"] = 1
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.assertEqual(self.got, [])
        self.clock.advance(5)
        self.assertEqual(self.got, [b"one"])
        self.assertEqual(self.pulls()["a:10911"], 1)

    def test_listener_that_takes_no_more_leaves_the_message_where_it_was(self):
        def listener(message):
            if message.body == b"two":
                raise StopConsuming()

        consumer = self.make(listener)
        self.start(consumer=consumer)
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", ""), (b"three", "")], 0)
        self.assertNotIn("a:10911", self.pulls())
        self.successResultOf(consumer.stop())
        self.assertEqual(self.cluster.of(36), [])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)

    def test_slow_listener_holds_its_queue_only(self):
        slow = Deferred()
        seen = []

        def listener(message):
            seen.append(message.body)
            return slow if message.body == b"one" else None

        self.start(consumer=self.make(listener))
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.cluster.deliver("b:10911", [(b"three", "")], 0)
        self.assertEqual(seen, [b"one", b"three"])
        slow.callback(None)
        self.assertEqual(seen, [b"one", b"three", b"two"])

    def test_share_follows_the_group(self):
        self.start()
        self.cluster.others = ("zzz",)
        self.cluster.notified(None, RemotingCommand(40, {"consumerGroup": "cg"}))
        self.assertEqual([queue.broker_name for queue in self.consumer.queues], ["a"])
        self.cluster.others = ()
        self.clock.advance(20)
        self.assertEqual(sorted(queue.broker_name for queue in self.consumer.queues), ["a", "b"])

    def test_refused_pull_is_tried_again_later(self):
        self.cluster.refusals[11, "a:10911"] = 24
        self.start()
        self.assertEqual(self.pulls(), {"b:10911": 0})
        self.cluster.refusals.clear()
        self.clock.advance(3)
        self.assertEqual(self.pulls(), {"a:10911": 0, "b:10911": 0})

    def test_stop_stores_offsets_and_leaves(self):
        self.start()
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.successResultOf(self.consumer.stop())
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 1})
        self.assertEqual({fields["consumerGroup"] for _, fields in self.cluster.of(35)}, {"cg"})
        self.assertEqual(self.consumer.queues, {})

    def test_stop_from_the_listener_ends_with_that_message(self):
        def listener(message):
            self.got.append(message.body)
            self.stopped = consumer.stop()

        consumer = self.make(listener)
        self.start(consumer=consumer)
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.successResultOf(self.stopped)
        self.assertEqual(self.got, [b"one"])
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 1})

    def test_stop_waits_for_the_listener(self):
        slow = Deferred()
        self.start(consumer=(consumer := self.make(lambda message: slow)))
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        stopped = consumer.stop()
        self.assertNoResult(stopped)
        slow.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 1})

    def test_stop_while_it_asks_where_to_begin_starts_no_pull(self):
        asked = []
        self.cluster.answer_14 = lambda *_: asked.append(Deferred()) or asked[-1]
        self.start()
        stopped = self.consumer.stop()
        self.assertNoResult(stopped)
        for held in asked:
            held.callback(RemotingCommand.response(0, ext_fields={"offset": "3"}))
        self.successResultOf(stopped)
        self.assertEqual(self.cluster.of(11), [])

    def test_unknown_topic_fails_the_start(self):
        self.consumer.subscribe("Nope")
        self.failureResultOf(self.consumer.start(), NoRouteError)


class LatestTests(ConsumerTestCase):
    from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def test_new_group_begins_at_the_end(self):
        self.start()
        self.assertEqual(self.pulls(), {"a:10911": 7, "b:10911": 7})
