"""The choice of a queue: turns, brokers that failed, brokers that are slow."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.producer.faults import LATENCY_MAX_MS, NOT_AVAILABLE_DURATION_MS, LatencyFaultTolerance, Turn
from rocketd.client.producer.queue_choice import QueueChoice, TopicPublishInfo, write_queue_nums_of
from rocketd.remoting.bodies.tables import MessageQueue, QueueData, TopicRouteData


def queues_of(brokers, count=2):
    return [MessageQueue("T", broker, queue_id) for broker in brokers for queue_id in range(count)]


def info_of(brokers, count=2, start=-1, nums=None):
    nums = dict.fromkeys(brokers, count) if nums is None else nums
    return TopicPublishInfo(queues_of(brokers, count), nums, start)


def short(queue):
    return f"{queue.broker_name}{queue.queue_id}"


class TurnTests(SynchronousTestCase):
    def test_turn_wraps_to_zero_at_int_max(self):
        turn = Turn(0x7FFFFFFD)
        self.assertEqual([turn.advance() for _ in range(4)], [0x7FFFFFFE, 0x7FFFFFFF, 0, 1])


class TopicPublishInfoTests(SynchronousTestCase):
    def test_queues_in_turn_from_the_start(self):
        info = info_of("ab", start=1)
        self.assertEqual([short(info.select_one_message_queue()) for _ in range(5)], ["b0", "b1", "a0", "a1", "b0"])

    def test_failed_broker_is_skipped(self):
        info = info_of("ab")
        self.assertEqual([short(info.select_one_message_queue("a")) for _ in range(4)], ["b0", "b1", "b0", "b1"])
        self.assertEqual(short(info.select_one_message_queue("c")), "a0")

    def test_failed_broker_is_taken_if_it_is_the_only_one(self):
        info = info_of("a", count=3)
        # Its three queues are passed over, then the turn goes on: no queue is preferred.
        self.assertEqual([short(info.select_one_message_queue("a")) for _ in range(4)], ["a0", "a1", "a2", "a0"])

    def test_no_queues(self):
        self.assertRaises(ValueError, TopicPublishInfo, [], {}, 0)

    def test_numbers_of_queues_of_a_route(self):
        datas = [QueueData("a", 8, 4, 6), QueueData("b", 8, 2, 4), QueueData("a", 8, 1, 6)]
        self.assertEqual(write_queue_nums_of(TopicRouteData(datas, [])), {"a": 4, "b": 2})


class FaultsTests(SynchronousTestCase):
    def test_longer_latency_gives_longer_isolation(self):
        faults = LatencyFaultTolerance(0)
        self.assertEqual(LATENCY_MAX_MS, (50, 100, 550, 1000, 2000, 3000, 15000))
        self.assertEqual(NOT_AVAILABLE_DURATION_MS, (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000))
        before = 0
        for latency, duration in zip(LATENCY_MAX_MS, NOT_AVAILABLE_DURATION_MS, strict=True):
            self.assertEqual(faults.not_available_duration_ms(latency - 1), before)
            self.assertEqual(faults.not_available_duration_ms(latency), duration)
            before = duration
        self.assertEqual(faults.not_available_duration_ms(10**9), 600_000)

    def test_other_tables(self):
        faults = LatencyFaultTolerance(0, [10, 20], [1, 2])
        self.assertEqual([faults.not_available_duration_ms(latency) for latency in (9, 10, 19.9, 20)], [0, 1, 1, 2])
        self.assertRaises(ValueError, LatencyFaultTolerance, 0, [10, 20], [1])

    def test_available_again_when_the_time_has_passed(self):
        faults = LatencyFaultTolerance(0)
        faults.update("a", 600, 1000)
        self.assertEqual([faults.is_available("a", now) for now in (1000, 30_999, 31_000)], [False, False, True])
        self.assertTrue(faults.is_available("unknown", 1000))

    def test_quick_send_makes_broker_available_at_once(self):
        faults = LatencyFaultTolerance(0)
        faults.update("a", 5000, 0)
        self.assertFalse(faults.is_available("a", 10))
        faults.update("a", 99, 10)
        self.assertTrue(faults.is_available("a", 10))

    def test_isolation_is_ten_minutes_however_quick_the_failure(self):
        faults = LatencyFaultTolerance(0)
        faults.update("a", 1, 0, isolation=True)
        self.assertFalse(faults.is_available("a", 599_999))
        self.assertTrue(faults.is_available("a", 600_000))

    def test_forgotten_broker_is_available(self):
        faults = LatencyFaultTolerance(0)
        faults.update("a", 5000, 0)
        faults.remove("a")
        faults.remove("a")
        self.assertTrue(faults.is_available("a", 0))

    def test_better_half_in_turn(self):
        faults = LatencyFaultTolerance(-1)
        for broker, latency in (("a", 5000), ("b", 4000), ("c", 10), ("d", 2000), ("e", 1200)):
            faults.update(broker, latency, 0)
        self.assertEqual([faults.pick_one_at_least(0) for _ in range(4)], ["c", "e", "c", "e"])

    def test_available_is_better_than_quick(self):
        faults = LatencyFaultTolerance(-1)
        faults.update("quick", 10, 0, isolation=True)
        faults.update("slow", 5000, 0)
        self.assertEqual(faults.pick_one_at_least(0), "quick")
        self.assertEqual(faults.pick_one_at_least(180_000), "slow")

    def test_equal_latencies_pick_the_broker_available_earlier(self):
        faults = LatencyFaultTolerance(-1)
        faults.update("late", 5000, 10)
        faults.update("early", 5000, 0)
        self.assertEqual(faults.pick_one_at_least(20), "early")

    def test_pick_turn_advances_once_better_half_has_two(self):
        faults = LatencyFaultTolerance(-1)
        for number, broker in enumerate("abcd"):
            faults.update(broker, 1000 + number, 0)
            self.assertEqual(faults.pick_one_at_least(0), "a", broker)
        self.assertEqual(faults.pick_one_at_least(0), "b")

    def test_pick_from_one_broker_returns_it(self):
        faults = LatencyFaultTolerance(0)
        faults.update("a", 5000, 0)
        self.assertEqual([faults.pick_one_at_least(0) for _ in range(2)], ["a", "a"])
        faults.remove("a")
        self.assertRaises(IndexError, faults.pick_one_at_least, 0)


class QueueChoiceTests(SynchronousTestCase):
    def test_without_fault_tolerance_only_the_last_failure_counts(self):
        choice, info = QueueChoice(), info_of("ab")
        choice.update("b", 60_000, 0, isolation=True)
        self.assertEqual(
            [short(choice.select_one_message_queue(info, last, 0)) for last in (None, None, None, "b", "a")],
            ["a0", "a1", "b0", "a0", "b0"],
        )

    def test_unavailable_brokers_are_skipped(self):
        choice, info = QueueChoice(LatencyFaultTolerance(0)), info_of("abc", count=1)
        choice.update("b", 600, 0)
        found = [short(choice.select_one_message_queue(info, None, 0)) for _ in range(6)]
        # One step of the turn per message, however many queues it passes over.
        self.assertEqual(found, ["a0", "c0", "c0", "a0", "c0", "c0"])
        found = [short(choice.select_one_message_queue(info, None, 30_000)) for _ in range(3)]
        self.assertEqual(found, ["a0", "b0", "c0"])

    def test_last_failure_does_not_count_by_itself(self):
        choice, info = QueueChoice(LatencyFaultTolerance(0)), info_of("ab")
        self.assertEqual(short(choice.select_one_message_queue(info, "a", 0)), "a0")

    def test_fastest_broker_is_taken_if_none_is_available(self):
        choice, info = QueueChoice(LatencyFaultTolerance(0)), info_of("ab", nums={"a": 2, "b": 3})
        choice.update("a", 5000, 0)
        choice.update("b", 600, 0)
        found = [short(choice.select_one_message_queue(info, None, 0)) for _ in range(3)]
        self.assertEqual(found, ["b2", "b2", "b2"])  # three steps of the turn per message
        self.assertEqual(info.queues, tuple(queues_of("ab")))

    def test_fastest_broker_without_queues_of_topic_is_forgotten(self):
        choice, info = QueueChoice(LatencyFaultTolerance(0)), info_of("ab")
        choice.update("elsewhere", 600, 0)
        for broker in "ab":
            choice.update(broker, 5000, 0)
        self.assertEqual(short(choice.select_one_message_queue(info, None, 0)), "a1")
        self.assertTrue(choice.faults.is_available("elsewhere", 0))
        self.assertEqual(choice.faults.pick_one_at_least(0), "a")
