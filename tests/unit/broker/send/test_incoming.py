"""From requests to messages, without a store: properties, tags, keys, batches."""

from random import Random
from struct import pack

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.send.message_builder import BatchFormatError, MessageBuilder, delay_level
from rocketd.broker.send.message_check import Destination
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.store.format.properties import dispatch_properties, index_keys

HOST = b"\x7f\0\0\1\0\0\0\1"
THERE = Destination("T", 1, 2)


def header(properties=None, **more):
    fields = {
        "producer_group": "P", "topic": "T", "default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": 1,
        "sys_flag": 1, "born_timestamp": 17, "flag": 5, "properties": properties, **more,
    }  # fmt: skip
    return SendMessageRequestHeader(**fields)


def entry(body, properties=b"", flag=0):
    size = 4 * 5 + len(body) + 2 + len(properties)
    return pack(">iiiii", size, 0, 0, flag, len(body)) + body + pack(">h", len(properties)) + properties


class BuilderTests(SynchronousTestCase):
    def setUp(self):
        self.builder = MessageBuilder("C", [1_000, 5_000])

    def single(self, properties=None, body=b"x", **more):
        return self.builder.single(header(properties, **more), THERE, HOST, body, 100)

    def batch(self, body, properties=None):
        return self.builder.batch(header(properties), THERE, HOST, body, 100)

    def test_single_message_is_built(self):
        message = self.single("TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02", reconsume_times=3)
        self.assertEqual(
            (message.topic, message.queue_id, message.flag, message.sys_flag, message.born_timestamp, message.wait),
            ("T", 1, 5, 3, 17, True),
        )
        self.assertEqual(message.properties, b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02CLUSTER\x01C")
        self.assertEqual((message.tags_code, message.reconsume_times), (java_string_hash("A"), 3))
        self.assertEqual(message.index_keys, ("u", "k1", "k2"))

    def test_without_properties(self):
        message = self.single()
        self.assertEqual((message.properties, message.tags_code, message.index_keys), (b"CLUSTER\x01C", 0, ()))

    def test_wait_property_is_read_and_dropped(self):
        for text, waits in (("true", True), ("TRUE", True), ("false", False), ("False", False)):
            message = self.single(f"WAIT\x01{text}")
            self.assertEqual((message.wait, message.properties), (waits, b"CLUSTER\x01C"))

    def test_damaged_wait_property_waits(self):
        self.assertTrue(self.single("WAIT\x01falsePinpoint-Flags\x010").wait)
        self.assertTrue(self.batch(entry(b"x"), "WAIT\x01x")[0].wait)

    def test_cluster_property_is_that_of_broker(self):
        self.assertEqual(self.single("CLUSTER\x01other").properties, b"CLUSTER\x01C")

    def test_delayed_message_goes_to_schedule_topic(self):
        message = self.single("DELAY\x012\x02TAGS\x01A")
        self.assertEqual((message.topic, message.queue_id, message.tags_code), ("SCHEDULE_TOPIC_XXXX", 1, 5_100))
        self.assertEqual(
            message.properties, b"DELAY\x012\x02TAGS\x01A\x02CLUSTER\x01C\x02REAL_TOPIC\x01T\x02REAL_QID\x011"
        )
        self.assertEqual(self.single("DELAY\x017").properties.split(b"\x02")[0], b"DELAY\x012")
        self.assertEqual(self.single("DELAY\x011", sys_flag=4).topic, "T")
        self.assertEqual(self.single("WAIT\x01true\x02DELAY\x010").properties, b"DELAY\x010\x02CLUSTER\x01C")
        self.assertIn(b"WAIT\x01true", self.single("WAIT\x01true\x02DELAY\x011").properties)
        self.assertEqual([delay_level({"DELAY": text}) for text in ("3", "-1", "+2", "007")], [3, -1, 2, 7])
        self.assertEqual(delay_level({}), 0)

    def test_delay_that_is_not_a_number_is_refused(self):
        for text in ("x", "4Pinpoint-Flags\x010", " 4", "1_0", "2147483648", "9" * 5_000):
            error = self.assertRaises(RequestError, self.single, f"TAGS\x01A\x02DELAY\x01{text}")
            self.assertEqual(error.code, 13)
            self.assertTrue(error.remark.startswith("the message is illegal, its property DELAY is not "), error.remark)
            self.assertRaises(RequestError, self.batch, entry(b"a") + entry(b"b", f"DELAY\x01{text}".encode()))

    def test_batch_with_delayed_message_is_refused(self):
        for level in (b"0", b"-1"):
            self.assertEqual(len(self.batch(entry(b"a") + entry(b"b", b"TAGS\x01A\x02DELAY\x01" + level))), 2)
        error = self.assertRaises(BatchFormatError, self.batch, entry(b"a") + entry(b"b", b"DELAY\x011"))
        self.assertEqual(str(error), "message 1 of the batch is delayed")

    def test_tags_cache_is_bounded(self):
        for number in range(10_001):
            self.assertEqual(self.builder.tags_code(f"tag{number}"), java_string_hash(f"tag{number}"))
        self.assertLess(len(self.builder._tags_codes), 10)
        self.assertEqual((self.builder.tags_code(""), self.builder.tags_code(None)), (0, 0))

    def test_index_keys(self):
        self.assertEqual(index_keys(None, None), ())
        self.assertEqual(index_keys("u", None), ("u",))
        self.assertEqual(index_keys("", " a  b "), ("a", "b"))

    def test_batch_is_split_into_messages(self):
        messages = self.batch(
            entry("ä".encode(), b"TAGS\x01A", 7) + entry(b"", b"KEYS\x01k\x02") + entry(b"z"), "WAIT\x01false\x02"
        )
        self.assertEqual([m.body for m in messages], ["ä".encode(), b"", b"z"])
        self.assertEqual([m.flag for m in messages], [7, 0, 0])
        self.assertEqual({(m.topic, m.queue_id, m.sys_flag, m.wait) for m in messages}, {("T", 1, 3, False)})
        self.assertEqual(
            [m.properties for m in messages],
            [b"TAGS\x01A\x02WAIT\x01false\x02CLUSTER\x01C", b"KEYS\x01k\x02WAIT\x01false\x02CLUSTER\x01C",
             b"WAIT\x01false\x02CLUSTER\x01C"],
        )  # fmt: skip
        self.assertEqual([m.tags_code for m in messages], [java_string_hash("A"), 0, 0])

    def test_batch_keys_and_tag_equal_stored_properties(self):
        messages = self.batch(
            entry(b"a", b"UNIQ_KEY\x01own\x02TAGS\x01A") + entry(b"b"), "UNIQ_KEY\x01batch\x02TAGS\x01B\x02KEYS\x01k"
        )
        self.assertEqual([m.index_keys for m in messages], [("own", "batch", "k"), ("batch", "k")])
        for message in messages:
            self.assertEqual(dispatch_properties(message.properties), (message.tags_code, message.index_keys))

    def test_truncated_batch_is_refused(self):
        whole = entry(b"first", b"TAGS\x01A") + entry(b"second")
        first = len(entry(b"first", b"TAGS\x01A"))
        for end in range(1, len(whole)):
            if end != first:
                self.assertRaises(BatchFormatError, self.batch, whole[:end])

    def test_random_batch_is_refused_or_read(self):
        random = Random(7)
        whole = entry(b"first", b"TAGS\x01A") + entry(b"second")
        for _ in range(2_000):
            data = bytearray(whole)
            for _ in range(random.randrange(1, 4)):
                data[random.randrange(len(data))] = random.randrange(256)
            try:
                messages = self.batch(bytes(data))
            except BatchFormatError:
                continue
            self.assertLessEqual(sum(len(message.body) for message in messages), len(whole))
