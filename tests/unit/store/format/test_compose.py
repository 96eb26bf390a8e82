"""The composer of the append: bytes of records, and messages at which it stops."""

import struct
from random import Random

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.compose import Composer, TopicQueue
from rocketd.store.format.message import MessageInner, PutStatus
from rocketd.store.format.record import MAX_PROPERTIES_LENGTH, encode_record
from rocketd.store.testing import STORE_HOST, make_message

FILE_FROM = 1 << 40
STORE_V6 = bytes(range(20))


class ComposerTestCase(SynchronousTestCase):
    store_host = STORE_HOST

    def setUp(self):
        self.composer = Composer(self.store_host, 1000, lambda level, timestamp: timestamp + level)
        self.composer.begin_group(1_700_000_000_000)
        self.composer.begin_file(FILE_FROM, 100, 1 << 20)

    def know(self, *keys, next_offset=0):
        for topic, queue_id in keys:
            self.composer.topic_queues[topic, queue_id] = TopicQueue(topic, next_offset)

    def compose(self, *messages):
        """Compose all of them; returns the number of the first that was not."""
        return self.composer.compose(messages, 0)

    def composed(self):
        return b"".join(self.composer.parts)


class RecordTests(ComposerTestCase):
    def messages(self, random: Random, count: int) -> list[MessageInner]:
        return [
            make_message(
                random.randbytes(random.randrange(900)),
                topic=random.choice(["T", "Thème", "%RETRY%g"]),
                queue_id=random.randrange(3),
                flag=random.randrange(-(2**31), 2**31),
                sys_flag=random.randrange(-(2**31), 2**31),
                born_timestamp=random.randrange(-(2**63), 2**63),
                born_host=random.randbytes(random.choice([8, 20])),
                reconsume_times=random.randrange(-(2**31), 2**31),
                prepared_transaction_offset=random.randrange(-(2**63), 2**63),
                properties=random.randbytes(random.randrange(300)),
            )
            for _ in range(count)
        ]

    def test_composed_records_equal_plain_encoder(self):
        messages = self.messages(Random(1), 200)
        self.know(*{(message.topic, message.queue_id) for message in messages}, next_offset=5)
        self.assertEqual(self.compose(*messages), 200)
        expected = b""
        for message, result, request in zip(messages, self.composer.results, self.composer.requests, strict=True):
            record = encode_record(
                message, self.store_host, result.queue_offset, result.physical_offset, result.store_timestamp
            )
            self.assertEqual(result.physical_offset, FILE_FROM + 100 + len(expected))
            self.assertEqual((result.size, request.size), (len(record), len(record)))
            self.assertEqual(self.composer.size_of(message), len(record))
            expected += record
        self.assertEqual(self.composed(), expected)
        self.assertEqual(self.composer.position, 100 + len(expected))
        self.assertEqual(self.composer.total_size(messages), (len(expected), None))

    def test_queue_offsets_count_per_queue_without_prepared_messages(self):
        self.know(("T", 0), ("T", 1), next_offset=7)
        prepared = make_message(topic="T", queue_id=1, sys_flag=4)
        self.compose(*[make_message(topic="T", queue_id=n % 2) for n in range(4)], prepared)
        self.assertEqual([result.queue_offset for result in self.composer.results], [7, 7, 8, 8, 0])
        self.assertEqual(self.composer.topic_queues["T", 1].next_offset, 9)

    def test_delayed_message_has_delivery_time_as_tags_code(self):
        topic = "SCHEDULE_TOPIC_XXXX"
        self.know((topic, 2), ("T", 2))
        self.compose(
            *[make_message(topic=name, queue_id=2, properties=b"DELAY\x013", tags_code=9) for name in (topic, "T")]
        )
        self.assertEqual([request.tags_code for request in self.composer.requests], [1_700_000_000_003, 9])

    def test_rolled_back_message_has_no_index_keys(self):
        self.know(("T", 0))
        self.compose(*[make_message(topic="T", key="k", sys_flag=flags) for flags in (0, 8, 12)])
        self.assertEqual([request.index_keys for request in self.composer.requests], [("k",), ("k",), ()])


class RecordV6Tests(RecordTests):
    store_host = STORE_V6


class StopTests(ComposerTestCase):
    def test_compose_stops_at_first_irregular_message(self):
        self.know(("T", 0), ("T" * 128, 0))
        good = make_message(topic="T")
        for bad in (
            make_message(topic="Unknown"),
            make_message(topic="T", queue_id=1),
            make_message(bytes(1001), topic="T"),
            make_message(topic="T", properties=bytes(MAX_PROPERTIES_LENGTH + 1)),
            make_message(topic="T" * 128),
        ):
            self.composer.begin_group(1)
            self.assertEqual(self.compose(good, bad, good), 1)
            self.assertEqual(len(self.composer.results), 1)
            self.assertEqual(len(self.composer.requests), 1)

    def test_compose_stops_at_end_of_file(self):
        self.know(("T", 0))
        message = make_message(topic="T")
        size = self.composer.size_of(message)
        for room, count in ((3 * size, 3), (3 * size - 1, 2)):
            self.composer.begin_group(1)
            self.composer.begin_file(0, 50, 50 + room)
            self.assertEqual(self.compose(*[message] * 3), count)
            self.assertEqual(self.composer.position, 50 + count * size)
            self.assertEqual(len(self.composed()), count * size)

    def test_compose_number_overflow_leaves_no_partial_record(self):
        self.know(("T", 0))
        good, bad = make_message(topic="T"), make_message(topic="T", flag=1 << 31)
        with self.assertRaises(struct.error):
            self.compose(good, bad)
        self.assertEqual([result.status for result in self.composer.results], [PutStatus.PUT_OK])
        self.assertEqual(len(self.composed()), self.composer.size_of(good))
        self.assertEqual(self.composer.position, 100 + self.composer.size_of(good))
        self.assertEqual(self.composer.topic_queues["T", 0].next_offset, 1)

    def test_total_size_returns_first_illegal_message(self):
        messages = [make_message(), make_message(bytes(1001)), make_message(topic="T" * 128)]
        self.assertEqual(self.composer.total_size(messages), (0, messages[1]))
        self.assertEqual(self.composer.total_size(messages[2:]), (0, messages[2]))
        self.composer.max_body_size = 2000
        self.assertEqual(self.composer.total_size(messages[:2])[1], None)
