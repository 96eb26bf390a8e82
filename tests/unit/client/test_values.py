"""The client's values: messages, shares of queues, tag expressions, queues of routes."""

import dataclasses
import inspect
import re
import zlib
from unittest.mock import Mock

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer import allocation
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely
from rocketd.client.consumer.options.subscription import Sql, subscription_of, wants
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.errors import (
    Attempt,
    IllegalGroupError,
    IllegalMessageError,
    IllegalTopicError,
    MessageTooLargeError,
    UsageError,
)
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES
from rocketd.client.messages.message import Message
from rocketd.client.messages.received import received_message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import encode_body, outgoing_message
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.selectors import (
    SelectMessageQueueByHash,
    SelectMessageQueueByMachineRoom,
    SelectMessageQueueByRandom,
)
from rocketd.client.settings.config import ClientConfig
from rocketd.client.settings.option_names import OF_MESSAGES
from rocketd.client.stats import ConsumerStats, ProducerStats
from rocketd.client.sync import Producer
from rocketd.protocol.queues import readable_queues, writable_queues
from rocketd.remoting.bodies.tables import BrokerData, MessageQueue, QueueData, TopicRouteData
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import decode_message, encode_record


def queues(count, broker="a"):
    return [MessageQueue("T", broker, queue_id) for queue_id in range(count)]


class MessageTests(SynchronousTestCase):
    limit = ProducerOptions().max_message_size

    def check(self, message):
        message.check()
        return encode_body(message, BYTES, self.limit)

    def test_illegal_message_is_refused(self):
        for message, error, cause in (
            (Message("T", b""), IllegalMessageError, "empty"),
            (Message(" ", b"x"), IllegalTopicError, "blank"),
            (Message("T!", b"x"), IllegalTopicError, "illegal"),
            (Message("T", bytes((4 << 20) + 1)), MessageTooLargeError, "4194304"),
            (Message("T", b"x", properties={"UNIQ_KEY": "1"}), IllegalMessageError, "UNIQ_KEY"),
            (
                Message("T", b"x", "a\x01b"),
                IllegalMessageError,
                r"tag 'a\x01b': \x01 and \x02 separate properties",
            ),
            (Message("T", b"x", keys=["k", "a\x02b"]), IllegalMessageError, r"key 'a\x02b': "),
            (Message("T", b"x", properties={"a\x02b": "c"}), IllegalMessageError, r"property 'a\x02b': "),
            (Message("T", b"x", properties={"a": "b\x01c"}), IllegalMessageError, r"property 'a' 'b\x01c': "),
            (Message("T", b"x", "\udcff"), IllegalMessageError, "UTF-8"),
        ):
            self.assertIn(cause, str(self.assertRaises(error, self.check, message)))
            self.assertTrue(issubclass(error, UsageError))
        self.assertEqual(self.check(Message("T", bytes(4 << 20))), bytes(4 << 20))

    def test_field_of_another_client_is_answered_with_the_right_one(self):
        for field, answer in (
            ("tag", ": use tags="),
            ("headers", ": use properties="),
            ("key", ': use keys=["A17"] to find the message by it, or send(message, key=) to choose the queue by it'),
            ("partition", ": use send(message, queue=)"),
            ("properteis", "; did you mean properties?"),
        ):
            error = self.assertRaises(TypeError, lambda field=field: Message("T", b"x", **{field: "A"}))
            self.assertEqual(str(error), f"Message has no field {field!r}{answer}")
        self.assertRaises(TypeError, Message, "T", b"x", *"123456789")
        self.assertRaises(TypeError, Message, "T")

    def test_every_answer_names_a_field_or_an_argument_of_send(self):
        known = {*Message.__struct_fields__, *inspect.signature(Producer.send).parameters}
        for field, answer in OF_MESSAGES.items():
            named = re.findall(r"(\w+)=", answer)
            self.assertTrue(named, field)
            self.assertLessEqual(set(named), known, field)

    def test_properties(self):
        message = Message("T", b"x", "A", ["k1", "k2"], {"color": "red"})
        self.assertEqual(
            message.wire_properties("ID"),
            {"color": "red", "TAGS": "A", "KEYS": "k1 k2", "UNIQ_KEY": "ID", "WAIT": "true"},
        )

    def test_long_bodies_are_compressed(self):
        options = ProducerOptions()

        def sent(body):
            message = Message("T", body)
            return outgoing_message(message, BYTES, "ID", limit=self.limit, compress_over=options.compress_over)

        short, long = sent(b"x" * 4095), sent(b"x" * 4096)
        self.assertEqual((short.body, short.sys_flag), (b"x" * 4095, 0))
        self.assertEqual((zlib.decompress(long.body), long.sys_flag), (b"x" * 4096, 0x301))


class DataclassTests(SynchronousTestCase):
    """Values of which applications make dictionaries, changed copies and subclasses."""

    def test_stats_and_attempts_become_dictionaries(self):
        numbers = {"sent": 1, "failed": 2, "retries": 3, "in_flight": 4}
        self.assertEqual(dataclasses.asdict(ProducerStats(**numbers)), numbers)
        numbers = {"handled": 1, "failed": 2, "handler_seconds": 3.0, "in_flight": 4, "queues": 5}
        self.assertEqual(dataclasses.asdict(ConsumerStats(**numbers)), numbers)
        attempt = {"broker": "a", "milliseconds": 1.5, "outcome": "refused", "may_be_stored": True}
        self.assertEqual(dataclasses.asdict(Attempt(**attempt)), attempt)

    def test_copy_of_sql_has_another_expression(self):
        self.assertEqual(dataclasses.replace(Sql("a"), expression="b"), Sql("b"))

    def test_selectors_and_strategies_have_subclasses_with_an_init(self):
        strategies = [kind for name, kind in vars(allocation).items() if name.startswith("Allocate")]
        self.assertEqual(len(strategies), 6)
        kinds = [SelectMessageQueueByHash, SelectMessageQueueByMachineRoom, SelectMessageQueueByRandom, *strategies]
        for kind in kinds:

            class Own(kind):
                def __init__(self, salt):
                    self.salt = salt

            self.assertEqual(Own(3).salt, 3)


class GroupTests(SynchronousTestCase):
    def test_illegal_group_names_are_refused(self):
        client = ClientInstance(Clock(), ClientConfig(namesrv="ns:9876", client_ip="10.0.0.9"))
        for group, cause in (
            ("", "blank"), (" ", "blank"), ("a b", "characters"), ("组", "characters"), ("x" * 256, "255"),
        ):  # fmt: skip
            for make in (
                lambda group: ProducerEngine(client, group),
                lambda group: PushConsumerEngine(client, group, print),
            ):
                error = self.assertRaises(IllegalGroupError, make, group)
                self.assertIn(f"group {group!r}: ", str(error))
                self.assertIn(cause, str(error))
        error = self.assertRaises(IllegalGroupError, PushConsumerEngine, client, "x" * 121, print)
        self.assertIn("its retry topic can only be stored if it has at most 120", str(error))
        self.assertEqual(ProducerEngine(client, "%a|B_1-c" + "x" * 247).group[:8], "%a|B_1-c")


class ReceivedMessageTests(SynchronousTestCase):
    def record(self, body=b"hello", sys_flag=0, properties="TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID\x02"):
        host = bytes([10, 0, 0, 1]) + (1234).to_bytes(4, "big")
        inner = MessageInner("T", 1, 2, sys_flag, 3, host, 4, 0, body, properties.encode(), 0)
        return decode_message(encode_record(inner, host, 5, 6, 7))

    def test_message_has_fields_of_its_record(self):
        queue = MessageQueue("T", "a", 1)
        got = received_message(self.record(), queue, BYTES)
        self.assertEqual(
            (got.topic, got.body, got.tags, got.keys, got.msg_id), ("T", b"hello", "A", ["k1", "k2"], "ID")
        )
        self.assertEqual(got.offset_msg_id, "0A000001000004D20000000000000006")
        self.assertEqual((got.queue, got.queue_offset, got.reconsume_times), (queue, 5, 4))
        self.assertEqual(got.born_host, "10.0.0.1:1234")

    def test_retried_message_has_its_original_topic(self):
        got = received_message(self.record(properties="RETRY_TOPIC\x01Mine"), MessageQueue("%RETRY%g", "a", 0), BYTES)
        self.assertEqual(got.topic, "Mine")
        self.assertEqual(got.msg_id, got.offset_msg_id)

    def test_compressed_bodies(self):
        packed = zlib.compress(b"hello")
        for sys_flag in (0x1, 0x301):
            got = received_message(self.record(packed, sys_flag), MessageQueue("T", "a", 0), BYTES)
            self.assertEqual(got.body, b"hello")
        for body, sys_flag in ((packed, 0x201), (b"junk", 0x1)):
            record = self.record(body, sys_flag)
            self.assertRaises(IllegalMessageError, received_message, record, MessageQueue("T", "a", 0), BYTES)

    def test_error_of_faulty_codec_makes_message_illegal(self):
        for fault in (KeyError("price"), RecursionError("too deep")):
            codec = Mock(spec=["decode"])
            codec.decode.side_effect = fault
            queue = MessageQueue("T", "a", 0)
            error = self.assertRaises(IllegalMessageError, received_message, self.record(), queue, codec)
            self.assertIn(f"the codec raised {type(fault).__name__}: {fault}", str(error))
            self.assertIs(error.__cause__, fault)


class AllocateTests(SynchronousTestCase):
    def test_every_queue_has_one_owner_and_shares_differ_by_one(self):
        for count in range(1, 10):
            for members in range(1, 6):
                clients = [f"c{n}" for n in range(members)]
                shares = [AllocateMessageQueueAveragely()("g", client, queues(count), clients) for client in clients]
                self.assertEqual([queue for share in shares for queue in share], queues(count))
                sizes = [len(share) for share in shares]
                self.assertLessEqual(max(sizes) - min(sizes), 1)
                self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_stranger_gets_nothing(self):
        self.assertEqual(AllocateMessageQueueAveragely()("g", "x", queues(4), ["a", "b"]), [])


class SubscriptionTests(SynchronousTestCase):
    def test_all(self):
        for expression in (None, "", " ", "*"):
            subscription = subscription_of("T", expression, 9)
            self.assertEqual((subscription.sub_string, subscription.tags_set), ("*", set()))
            self.assertTrue(wants(subscription, None))

    def test_tags(self):
        subscription = subscription_of("T", "TagA || TagB|| ", 9)
        self.assertEqual(subscription.tags_set, {"TagA", "TagB"})
        self.assertEqual(subscription.code_set, {2598919, 2598920})
        self.assertEqual(subscription.sub_version, 9)
        self.assertEqual([wants(subscription, tag) for tag in ("TagA", "TagC", None)], [True, False, False])


class RouteQueuesTests(SynchronousTestCase):
    def route(self, **arguments):
        return TopicRouteData(
            [QueueData("b", 2, 3, 6), QueueData("a", 1, 1, 2), QueueData("c", 4, 4, 4), QueueData("slave", 1, 1, 6)],
            [BrokerData("x", name, {0: "h:1"}) for name in "abc"] + [BrokerData("x", "slave", {1: "h:2"})],
            **arguments,
        )

    def test_writable_queues_need_permission_and_a_master(self):
        found = [(queue.broker_name, queue.queue_id) for queue in writable_queues("T", self.route())]
        self.assertEqual(found, [("a", 0), ("b", 0), ("b", 1), ("b", 2)])

    def test_readable_queues_need_permission(self):
        found = [queue.broker_name for queue in readable_queues("T", self.route())]
        self.assertEqual(found, ["b", "b", "c", "c", "c", "c", "slave"])

    def test_ordered_topic(self):
        found = writable_queues("T", self.route(order_topic_conf="b:2;c:1"))
        self.assertEqual([(queue.broker_name, queue.queue_id) for queue in found], [("b", 0), ("b", 1), ("c", 0)])
