"""Allocation strategies: the promises of each, and the input that all refuse."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocationStrategy,
    hash_by_md5,
    sort_client_ids,
    sort_queues,
)
from rocketd.client.errors import AllocationError, RocketMQError
from rocketd.common.names import room_of_broker
from rocketd.remoting.bodies.tables import MessageQueue
from tests.support.examples import examples

AVERAGELY = AllocateMessageQueueAveragely()
BY_CIRCLE = AllocateMessageQueueAveragelyByCircle()
BY_HASH = AllocateMessageQueueConsistentHash()


def queues_of(count, broker="b"):
    return [MessageQueue("T", broker, queue_id) for queue_id in range(count)]


def client_room(client):
    return client.partition("-")[0]


def broker_room(queue):
    return room_of_broker(queue.broker_name)


def nearby(strategy: AllocationStrategy = AVERAGELY):
    return AllocateMachineRoomNearby(strategy, broker_room, client_room)


def shares(strategy, queues, clients):
    return [strategy("G", client, queues, clients) for client in clients]


def numbers(queues):
    return [queue.queue_id for queue in queues]


class EveryStrategyTests(SynchronousTestCase):
    strategies = (AVERAGELY, BY_CIRCLE, BY_HASH, AllocateMessageQueueByMachineRoom({"hz"}), nearby())

    def test_names_are_apaches(self):
        self.assertEqual(
            [strategy.name for strategy in self.strategies],
            ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG"],
        )
        self.assertEqual(AllocateMessageQueueByConfig().name, "CONFIG")
        self.assertEqual(nearby(BY_HASH).name, "MACHINE_ROOM_NEARBY-CONSISTENT_HASH")

    def test_stranger_gets_nothing(self):
        for strategy in self.strategies:
            self.assertEqual(strategy("G", "hz-9", queues_of(8, "hz@b"), ["hz-1", "hz-2"]), [], strategy)

    def test_one_member_gets_all(self):
        for strategy in self.strategies:
            self.assertEqual(strategy("G", "hz-1", queues_of(8, "hz@b"), ["hz-1"]), queues_of(8, "hz@b"), strategy)

    def test_error_names_missing_input(self):
        for strategy in self.strategies:
            for client, queues, clients, missing in (
                ("", queues_of(1), ["hz-1"], "no client id"),
                ("hz-1", [], ["hz-1"], "no queues"),
                ("hz-1", queues_of(1), [], "no client ids"),
            ):
                error = self.assertRaises(AllocationError, strategy, "G", client, queues, clients)
                self.assertEqual(str(error), f"group 'G' has nothing to share: {missing}")

    def test_every_queue_has_one_owner(self):
        @settings(max_examples=examples(100), deadline=None, database=None)
        @given(st.sampled_from(self.strategies), st.integers(1, 40), st.integers(1, 12))
        def check(strategy, count, members):
            queues = queues_of(count, "hz@b")
            found = shares(strategy, queues, [f"hz-{number}" for number in range(members)])
            self.assertEqual(sorted(queue for share in found for queue in share), queues)

        check()


class AveragelyTests(SynchronousTestCase):
    def test_shares_are_contiguous_and_first_members_get_one_more(self):
        found = shares(AVERAGELY, queues_of(8), ["a", "b", "c"])
        self.assertEqual([numbers(share) for share in found], [[0, 1, 2], [3, 4, 5], [6, 7]])

    def test_more_members_than_queues(self):
        found = shares(AVERAGELY, queues_of(2), ["a", "b", "c"])
        self.assertEqual([numbers(share) for share in found], [[0], [1], []])

    def test_member_listed_twice_counts_once(self):
        self.assertEqual(numbers(AVERAGELY("G", "b", queues_of(6), ["a", "b", "b"])), [2, 3])


class ByCircleTests(SynchronousTestCase):
    def test_one_by_one(self):
        found = shares(BY_CIRCLE, queues_of(8), ["a", "b", "c"])
        self.assertEqual([numbers(share) for share in found], [[0, 3, 6], [1, 4, 7], [2, 5]])

    def test_more_members_than_queues(self):
        found = shares(BY_CIRCLE, queues_of(2), ["a", "b", "c"])
        self.assertEqual([numbers(share) for share in found], [[0], [1], []])


class ByConfigTests(SynchronousTestCase):
    def test_configured_queues_are_the_share(self):
        configured = queues_of(2, "elsewhere")
        strategy = AllocateMessageQueueByConfig(configured)
        for client, queues, clients in (("a", queues_of(3), ["a", "b"]), ("x", [], [])):
            share = strategy("G", client, queues, clients)
            self.assertEqual(share, configured)
            share.clear()
        self.assertEqual(AllocateMessageQueueByConfig()("G", "a", queues_of(3), ["a"]), [])


class ByMachineRoomTests(SynchronousTestCase):
    def test_rooms_of_brokers(self):
        for name, room in (
            ("hz@b", "hz"), ("@b", ""), ("hz@b@", "hz"), ("hz@b@@", "hz"),
            ("b", None), ("hz@", None), ("hz@@b", None), ("hz@b@c", None), ("@", None), ("", None),
        ):  # fmt: skip
            self.assertEqual(room_of_broker(name), room, name)

    def test_queues_of_these_rooms_are_split_and_the_rest_go_in_turn(self):
        queues = sort_queues([*queues_of(3, "hz@b"), *queues_of(2, "sh@b"), *queues_of(4, "bj@b"), *queues_of(2)])
        found = shares(AllocateMessageQueueByMachineRoom(["hz", "sh"]), queues, ["a", "b", "c"])
        self.assertEqual(
            [[(queue.broker_name, queue.queue_id) for queue in share] for share in found],
            [[("hz@b", 0), ("sh@b", 0)], [("hz@b", 1), ("sh@b", 1)], [("hz@b", 2)]],
        )

    def test_no_queue_in_the_rooms(self):
        self.assertEqual(shares(AllocateMessageQueueByMachineRoom({"hz"}), queues_of(3), ["a", "b"]), [[], []])


class NearbyTests(SynchronousTestCase):
    def test_members_share_their_room_and_rooms_without_members(self):
        queues = [*queues_of(2, "sh@b"), *queues_of(2, "hz@b"), *queues_of(2, "bj@b"), *queues_of(2, "gz@b")]
        found = shares(nearby(), queues, ["hz-1", "hz-2", "sh-1"])
        self.assertEqual(
            [[(queue.broker_name[:2], queue.queue_id) for queue in share] for share in found],
            [
                [("hz", 0), ("bj", 0), ("gz", 0)],
                [("hz", 1), ("bj", 1), ("gz", 1)],
                [("sh", 0), ("sh", 1)],
            ],
        )

    def test_unknown_rooms_are_refused(self):
        error = self.assertRaises(AllocationError, nearby(), "G", "hz-1", queues_of(1), ["hz-1"])
        self.assertIn("broker_name='b'", str(error))
        error = self.assertRaises(AllocationError, nearby(), "G", "hz-1", queues_of(1, "hz@b"), ["-2", "hz-1"])
        self.assertEqual(str(error), "the machine room of -2 is not known")


class ConsistentHashTests(SynchronousTestCase):
    def test_hash_is_the_beginning_of_md5(self):
        self.assertEqual(hash_by_md5(""), 0xD41D8CD9)
        self.assertEqual(hash_by_md5("a"), 0x0CC175B9)
        self.assertEqual(hash_by_md5("\ud800"), hash_by_md5("?"))

    def test_new_member_takes_only_its_share(self):
        queues, clients = queues_of(200), [f"10.0.0.{number}@{number}" for number in range(8)]
        before = dict(zip(clients, shares(BY_HASH, queues, clients), strict=True))
        after = dict(zip(clients, shares(BY_HASH, queues, [*clients, "new"]), strict=False))
        for client in clients:
            self.assertLessEqual(set(after[client]), set(before[client]))
        self.assertNotEqual(before, after)

    def test_places_are_given_by_the_hash_function(self):
        places = {"a-0": 10, "a-1": 30, "b-0": 20, "b-1": 40}

        def place(key):
            return places[key] if key in places else int(key.rpartition("=")[2][:-1]) * 10

        strategy = AllocateMessageQueueConsistentHash(2, place)
        found = shares(strategy, queues_of(6), ["a", "b"])
        self.assertEqual([numbers(share) for share in found], [[0, 1, 3, 5], [2, 4]])

    def test_places_that_collide_belong_to_the_later_member(self):
        strategy = AllocateMessageQueueConsistentHash(1, lambda key: 0)
        self.assertEqual([numbers(share) for share in shares(strategy, queues_of(2), ["a", "b"])], [[], [0, 1]])

    def test_member_listed_twice_has_twice_the_places(self):
        asked = []

        def place(key):
            asked.append(key)
            return len(asked)

        AllocateMessageQueueConsistentHash(2, place)("G", "a", queues_of(1), ["a", "a"])
        self.assertEqual(asked[:-1], ["a-0", "a-1", "a-2", "a-3"])
        self.assertEqual(asked[-1], "MessageQueue [topic=T, brokerName=b, queueId=0]")

    def test_places_of_other_members_do_not_change_numbering(self):
        asked = []

        def place(key):
            asked.append(key)
            return 0

        AllocateMessageQueueConsistentHash(1, place)("G", "a", queues_of(1), ["a", "b", "a", "a"])
        self.assertEqual(asked[:-1], ["a-0", "b-0", "a-0", "a-1"])

    def test_number_of_places(self):
        self.assertEqual(AllocateMessageQueueConsistentHash(0)("G", "a", queues_of(2), ["a"]), [])
        self.assertRaises(AllocationError, AllocateMessageQueueConsistentHash, -1)

    def test_error_is_a_rocketmq_error(self):
        self.assertTrue(issubclass(AllocationError, RocketMQError))


class OrderTests(SynchronousTestCase):
    def test_names_go_by_utf16_units(self):
        self.assertEqual(sort_client_ids(["\uff5e", "🚀", "b", "a"]), ["a", "b", "🚀", "\uff5e"])
        queues = [MessageQueue("T", name, queue_id) for name in ("🚀", "\uff5e") for queue_id in (2, 10)]
        self.assertEqual(sort_queues(reversed(queues)), queues)
        topics = [MessageQueue(topic, "b", 0) for topic in ("A", "🚀", "\uff5e")]
        self.assertEqual(sort_queues(reversed(topics)), topics)
