"""The client's values: unique keys, messages, shares of queues, tag expressions, queues of routes."""

import zlib
from datetime import datetime

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.codec import BYTES
from rocketd.client.config import ClientConfig
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely
from rocketd.client.consumer.push_consumer import PushConsumer
from rocketd.client.consumer.subscription import subscription_of, wants
from rocketd.client.errors import (
    IllegalGroupError,
    IllegalMessageError,
    IllegalTopicError,
    MessageTooLargeError,
    UsageError,
)
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.identity import UniqueKeys
from rocketd.client.instance.routes import readable_queues, writable_queues
from rocketd.client.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import encode_body, outgoing_message
from rocketd.client.producer.producer import Producer
from rocketd.client.wire_message import received_message
from rocketd.remoting.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData
from rocketd.store.message import MessageInner
from rocketd.store.record import decode_message, encode_record


def queues(count, broker="a"):
    return [MessageQueue("T", broker, queue_id) for queue_id in range(count)]


class UniqueKeysTests(SynchronousTestCase):
    def setUp(self):
        self.now = datetime(2026, 1, 2, 0, 0, 1).timestamp() * 1000
        self.keys = UniqueKeys("10.1.2.3", 0x1234, b"\xaa\xbb\xcc\xdd", lambda: self.now)

    def test_layout(self):
        day = 24 * 3600 * 1000
        self.assertEqual(self.keys.next_key(), f"0A0102031234AABBCCDD{day + 1000:08X}0000")
        self.assertEqual(self.keys.next_key()[-4:], "0001")

    def test_address_of_version6(self):
        keys = UniqueKeys("fd00::1", 1, bytes(4), lambda: self.now)
        self.assertEqual(len(keys.next_key()), 56)

    def test_new_month_begins_at_zero(self):
        self.keys.next_key()
        self.now = datetime(2026, 2, 1, 0, 0, 0, 5000).timestamp() * 1000
        self.assertEqual(self.keys.next_key()[20:28], "00000005")
        self.now = datetime(2026, 12, 31, 23, 59, 59).timestamp() * 1000
        self.keys.next_key()
        self.now = datetime(2027, 1, 1).timestamp() * 1000
        self.assertEqual(self.keys.next_key()[20:28], "00000000")

    def test_small_step_back_is_clamped(self):
        self.now = datetime(2026, 2, 1).timestamp() * 1000
        self.keys.next_key()
        self.now -= 5000
        self.assertEqual(self.keys.next_key()[20:28], "00000000")

    def test_counter_wraps(self):
        seen = {self.keys.next_key()[-4:] for _ in range(0x10000)}
        self.assertEqual(len(seen), 0x10000)
        self.assertEqual(self.keys.next_key()[-4:], "0000")


class MessageTests(SynchronousTestCase):
    limit = ProducerOptions().max_message_size

    def check(self, message):
        message.check()
        return encode_body(message, BYTES, self.limit)

    def test_what_no_broker_takes_is_refused(self):
        for message, error, cause in (
            (Message("T", b""), IllegalMessageError, "empty"),
            (Message(" ", b"x"), IllegalTopicError, "blank"),
            (Message("T!", b"x"), IllegalTopicError, "illegal"),
            (Message("T", bytes((4 << 20) + 1)), MessageTooLargeError, "4194304"),
            (Message("T", b"x", properties={"UNIQ_KEY": "1"}), IllegalMessageError, "UNIQ_KEY"),
            (
                Message("T", b"x", "a\x01b"),
                IllegalMessageError,
                r"tag 'a\x01b': \x01 and \x02 are what separates properties",
            ),
            (Message("T", b"x", keys=["k", "a\x02b"]), IllegalMessageError, r"key 'a\x02b': "),
            (Message("T", b"x", properties={"a\x02b": "c"}), IllegalMessageError, r"property 'a\x02b': "),
            (Message("T", b"x", properties={"a": "b\x01c"}), IllegalMessageError, r"property 'a' 'b\x01c': "),
            (Message("T", b"x", "\udcff"), IllegalMessageError, "UTF-8"),
        ):
            self.assertIn(cause, str(self.assertRaises(error, self.check, message)))
            self.assertTrue(issubclass(error, UsageError))
        self.assertEqual(self.check(Message("T", bytes(4 << 20))), bytes(4 << 20))

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


class GroupTests(SynchronousTestCase):
    def test_names_that_no_group_has_are_refused(self):
        client = ClientInstance(Clock(), ClientConfig(namesrv="ns:9876", client_ip="10.0.0.9"))
        for group, cause in (
            ("", "blank"), (" ", "blank"), ("a b", "characters"), ("组", "characters"), ("x" * 256, "255"),
        ):  # fmt: skip
            for make in (lambda group: Producer(client, group), lambda group: PushConsumer(client, group, print)):
                error = self.assertRaises(IllegalGroupError, make, group)
                self.assertIn(f"group {group!r}: ", str(error))
                self.assertIn(cause, str(error))
        self.assertEqual(Producer(client, "%a|B_1-c" + "x" * 247).group[:8], "%a|B_1-c")


class ReceivedMessageTests(SynchronousTestCase):
    def record(self, body=b"hello", sys_flag=0, properties="TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID\x02"):
        host = bytes([10, 0, 0, 1]) + (1234).to_bytes(4, "big")
        inner = MessageInner("T", 1, 2, sys_flag, 3, host, 4, 0, body, properties.encode(), 0)
        return decode_message(encode_record(inner, host, 5, 6, 7))

    def test_of_a_record(self):
        queue = MessageQueue("T", "a", 1)
        got = received_message(self.record(), queue, BYTES)
        self.assertEqual(
            (got.topic, got.body, got.tags, got.keys, got.msg_id), ("T", b"hello", "A", ["k1", "k2"], "ID")
        )
        self.assertEqual(got.offset_msg_id, "0A000001000004D20000000000000006")
        self.assertEqual((got.queue, got.queue_offset, got.reconsume_times), (queue, 5, 4))
        self.assertEqual(got.born_host, "10.0.0.1:1234")

    def test_retried_message_has_its_own_topic(self):
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
