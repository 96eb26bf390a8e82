"""Selectors of queues: keys as Java hashes them, chance, machine rooms."""

from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.errors import UsageError
from rocketd.client.messages.message import Message
from rocketd.client.producer.selectors import (
    MessageQueueSelector,
    SelectMessageQueueByHash,
    SelectMessageQueueByMachineRoom,
    SelectMessageQueueByRandom,
    java_hash_of_key,
)
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies.tables import MessageQueue
from tests.support.examples import examples

MESSAGE = Message("T", b"x")


def queues_of(count, broker="b"):
    return [MessageQueue("T", broker, queue_id) for queue_id in range(count)]


def select(selector: MessageQueueSelector, queues, key=None):
    return selector(queues, MESSAGE, key)


class KeyTests(SynchronousTestCase):
    def test_java_hash_codes(self):
        for key, value in (
            ("", 0), ("order-1", java_string_hash("order-1")), ("polygenelubricants", -(2**31)),
            (7, 7), (-7, -7), (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31)),
            (2**31, -(2**31)), (2**32, 1), (2**63 - 1, -(2**31)), (-(2**63), -(2**31)), (-(2**31) - 1, -(2**31)),
            (True, 1231), (False, 1237),
        ):  # fmt: skip
            self.assertEqual(java_hash_of_key(key), value, key)

    def test_other_keys_count_as_text(self):
        uuid = UUID("12345678-1234-5678-1234-567812345678")
        for key in (uuid, 2**63, -(2**63) - 1, 1.5, ("a", 1), b"x"):
            self.assertEqual(java_hash_of_key(key), java_string_hash(str(key)), key)

    def test_keys_without_anything_lasting_are_refused(self):
        for key in (None, object(), type("Order", (), {})()):
            error = self.assertRaises(ValueError, java_hash_of_key, key)
            self.assertIn("is not a key", str(error))


class ByHashTests(SynchronousTestCase):
    def test_places_of_negative_hashes_count_from_the_front(self):
        selector = SelectMessageQueueByHash()
        for key, place in ((0, 0), (4, 1), (-4, 1), (-1, 1), ("polygenelubricants", 2)):
            self.assertEqual(select(selector, queues_of(3), key).queue_id, place, key)

    def test_same_key_same_queue(self):
        @settings(max_examples=examples(100), deadline=None, database=None)
        @given(st.one_of(st.text(), st.integers(), st.binary()), st.integers(1, 20))
        def check(key, count):
            first, second = (select(SelectMessageQueueByHash(), queues_of(count), key) for _ in range(2))
            self.assertEqual(first, second)

        check()


class ByRandomTests(SynchronousTestCase):
    def test_every_queue_gets_some(self):
        selector = SelectMessageQueueByRandom(Random(5))
        found = [select(selector, queues_of(4)).queue_id for _ in range(200)]
        self.assertEqual(set(found), {0, 1, 2, 3})
        again = SelectMessageQueueByRandom(Random(5))
        self.assertEqual(found, [select(again, queues_of(4)).queue_id for _ in range(200)])


class ByMachineRoomTests(SynchronousTestCase):
    def test_queue_of_the_key_in_the_rooms(self):
        queues = [*queues_of(2, "bj@b"), *queues_of(2, "hz@b"), *queues_of(1), *queues_of(2, "sh@b")]
        selector = SelectMessageQueueByMachineRoom({"hz", "sh"})
        found = [select(selector, queues, key) for key in range(5)]
        near = [*queues_of(2, "hz@b"), *queues_of(2, "sh@b")]
        self.assertEqual(found, [*near, near[0]])

    def test_no_queue_in_the_rooms(self):
        selector = SelectMessageQueueByMachineRoom({"sh", "hz"})
        error = self.assertRaises(UsageError, select, selector, queues_of(2, "bj@b"), "k")
        self.assertEqual(str(error), "topic T has no queue at a broker named room@broker in: hz, sh")
