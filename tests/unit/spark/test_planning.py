import random

from twisted.trial.unittest import SynchronousTestCase

from rocketd.spark.errors import DataLossError, OptionError
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.batch import planned_ranges
from rocketd.spark.planning.limits import by_bytes, by_rows, fair_shares, first_rows, is_held_back
from rocketd.spark.planning.losses import within
from rocketd.spark.planning.one_broker import OneBroker
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.planning.splits import into_tasks
from rocketd.spark.ranges import Queue, QueueRange, joined
from tests.support.spark_catalog import MemoryCatalog, queue

Q0, Q1, B0 = queue(0), queue(1), queue(0, broker="b")
U0 = queue(0, topic="u")


def options(stream=False, **given):
    return ReadOptions.parse({"store": "/s", **({"subscribe": "t"} if _chooses(given) else {}), **given}, stream=stream)


def _chooses(given):
    return not {"subscribe", "subscribePattern", "assign"} & set(given)


class ChoiceTests(SynchronousTestCase):
    def setUp(self):
        self.catalog = MemoryCatalog(dict.fromkeys((Q0, Q1, B0, U0, queue(0, "SCHEDULE_TOPIC_XXXX")), (0, 10)))

    def chosen(self, again=False, **given):
        return chosen_queues(self.catalog, options(**given), again=again)

    def refused(self, **given):
        return str(self.assertRaises(OptionError, self.chosen, **given))

    def test_topics_by_name(self):
        self.assertEqual(self.chosen(subscribe="u,t"), [Q0, Q1, B0, U0])

    def test_unknown_topic_is_named_with_the_nearest(self):
        self.catalog.spans[queue(0, "orders")] = (0, 1)
        self.assertIn("topic 'order' does not exist; did you mean orders?", self.refused(subscribe="t,order"))

    def test_topics_by_pattern_match_whole_and_are_not_of_the_system(self):
        self.assertEqual(self.chosen(subscribePattern=".*"), [Q0, Q1, B0, U0])
        self.assertEqual(self.chosen(subscribePattern="u"), [U0])
        self.catalog.spans[queue(0, "uu")] = (0, 1)
        self.assertEqual(self.chosen(subscribePattern="u"), [U0])

    def test_batch_pattern_without_match_is_refused(self):
        self.assertIn("no topic matches; there are SCHEDULE_TOPIC_XXXX, t, u", self.refused(subscribePattern="x+"))

    def test_a_stream_by_a_pattern_waits_for_topics(self):
        self.assertEqual(chosen_queues(self.catalog, options(stream=True, subscribePattern="x+")), [])

    def test_queues_by_name(self):
        self.assertEqual(self.chosen(assign='{"t": [0], "u": {"a": [0]}}'), [Q0, B0, U0])
        self.assertEqual(self.chosen(assign='{"t": {"b": [0]}}'), [B0])

    def test_unknown_queue_is_named(self):
        self.assertIn(
            "queue t/b/1 does not exist; there are t/a/0, t/a/1, t/b/0", self.refused(assign='{"t": {"b": [1]}}')
        )
        self.assertIn("topic 'zzz' does not exist", self.refused(assign='{"zzz": [1]}'))

    def test_later_choice_may_be_empty(self):
        self.assertEqual(self.chosen(again=True, subscribe="t,zzz"), [Q0, Q1, B0])
        self.assertEqual(self.chosen(again=True, assign='{"t": {"b": [0, 7]}, "z": [0]}'), [B0])
        self.assertEqual(self.chosen(again=True, subscribePattern="z"), [])

    def test_choice_can_be_limited_to_one_broker(self):
        one = OneBroker(self.catalog, "b")
        self.assertEqual((one.topics(), one.queues("t"), one.bounds(B0)), (["t"], [B0], (0, 10)))


class BatchTests(SynchronousTestCase):
    def setUp(self):
        self.catalog = MemoryCatalog({Q0: (5, 20), Q1: (0, 10)})

    def planned(self, **given):
        return [(one.queue.queue_id, one.start, one.end) for one in planned_ranges(self.catalog, options(**given))]

    def refused(self, kind=OptionError, **given):
        return str(self.assertRaises(kind, self.planned, **given))

    def test_batch_without_offsets_reads_everything(self):
        self.assertEqual(self.planned(), [(0, 5, 20), (1, 0, 10)])

    def test_empty_queues_are_left_out(self):
        self.catalog.spans[Q1] = (7, 7)
        self.assertEqual(self.planned(), [(0, 5, 20)])

    def test_exact_offsets_with_and_without_broker_and_marks(self):
        given = '{"t": {"a": {"0": 6}, "1": -2}}'
        self.assertEqual(self.planned(startingOffsets=given), [(0, 6, 20), (1, 0, 10)])
        self.assertEqual(self.planned(endingOffsets='{"t": {"0": 6, "1": -1}}'), [(0, 5, 6), (1, 0, 10)])
        self.assertEqual(self.planned(startingOffsets='{"t": {"0": -1, "1": 9}}'), [(1, 9, 10)])

    def test_offsets_must_name_exactly_the_read_queues(self):
        self.assertIn("startingOffsets leaves out t/a/1", self.refused(startingOffsets='{"t": {"0": 6}}'))
        text = self.refused(endingOffsets='{"t": {"0": 6, "1": 1, "2": 1}}')
        self.assertIn("endingOffsets names t/2, which is not among the queues", text)
        text = self.refused(startingOffsets='{"t": {"0": 6, "a": {"0": 7}, "1": 1}}')
        self.assertIn("names t/a/0 twice", text)

    def test_a_queue_of_two_brokers_needs_the_broker(self):
        self.catalog.spans[B0] = (0, 1)
        self.assertIn("t/0 is on brokers a, b", self.refused(startingOffsets='{"t": {"0": 6, "1": 0}}'))

    def test_group_start_is_its_offset_or_the_earliest(self):
        self.catalog.groups["g", Q0] = 12
        self.assertEqual(self.planned(startingOffsets="group:g"), [(0, 12, 20), (1, 0, 10)])

    def test_group_without_offsets_is_refused_with_the_known_groups(self):
        self.assertIn(
            "startingOffsets: consumer group Reel has committed no offset in t; no group has",
            self.refused(startingOffsets="group:Reel"),
        )
        self.catalog.groups["Real", Q0] = 12
        self.assertIn("groups with offsets: Real; to read everything", self.refused(startingOffsets="group:Reel"))
        self.catalog.spans = {Q0: (7, 7)}
        self.assertEqual(self.planned(startingOffsets="group:Reel"), [])

    def test_times(self):
        self.assertEqual(self.planned(startingTimestamp="91", endingTimestamp="121"), [(0, 10, 13)])
        self.assertEqual(self.planned(startingTimestamp="30"), [(0, 5, 20), (1, 3, 10)])
        self.assertEqual(self.planned(startingOffsetsByTimestamp='{"t": {"0": 150, "1": 999}}'), [(0, 15, 20)])
        self.assertEqual(self.planned(endingOffsetsByTimestamp='{"t": {"0": 60, "1": 0}}'), [(0, 5, 6)])

    def test_time_without_later_message_is_an_error_on_demand(self):
        text = self.refused(startingTimestamp="150", timestampStrategy="error")
        self.assertIn("startingTimestamp: no message of t/a/1 is from then or later", text)

    def test_lost_messages_are_named(self):
        text = self.refused(DataLossError, startingOffsets='{"t": {"0": 2, "1": 0}}')
        self.assertIn("3 messages are not there any more: t/a/0[2, 5)", text)
        self.assertIn("failOnDataLoss=false", text)
        text = self.refused(DataLossError, endingOffsets='{"t": {"0": 25, "1": 0}}')
        self.assertIn("5 messages are not there any more: t/a/0[20, 25)", text)

    def test_lost_messages_are_tolerated_on_demand(self):
        given = {"failOnDataLoss": "false", "startingOffsets": '{"t": {"0": 2, "1": 0}}'}
        with self.assertLogs("rocketd.spark", "WARNING") as logged:
            self.assertEqual(self.planned(**given), [(0, 5, 20), (1, 0, 10)])
        self.assertIn("t/a/0[2, 5)", logged.output[0])

    def test_a_start_behind_the_end_is_an_error(self):
        text = self.refused(startingOffsets='{"t": {"0": 25, "1": 0}}')
        self.assertIn("t/a/0 is to be read from 25, and ends at 20", text)

    def test_a_group_behind_the_end_is_a_loss(self):
        self.catalog.groups["g", Q1] = 12
        self.assertIn(
            "t/a/1 is to be read from 12, and ends at 10", self.refused(DataLossError, startingOffsets="group:g")
        )
        with self.assertLogs("rocketd.spark", "WARNING"):
            self.assertEqual(self.planned(startingOffsets="group:g", failOnDataLoss="false"), [(0, 5, 20)])

    def test_at_most_so_many_rows(self):
        self.assertEqual(self.planned(maxRows="5"), [(0, 5, 8), (1, 0, 2)])
        self.assertEqual(self.planned(maxRows="1"), [(0, 5, 6)])
        self.assertEqual(self.planned(maxRows="100"), [(0, 5, 20), (1, 0, 10)])


class WithinTests(SynchronousTestCase):
    def test_ranges_are_split_into_present_and_lost(self):
        there, lost = within([QueueRange(Q0, 0, 30), QueueRange(Q1, 50, 60)], {Q0: (5, 20), Q1: (0, 10)})
        self.assertEqual(there, [QueueRange(Q0, 5, 20)])
        self.assertEqual(lost, [QueueRange(Q0, 0, 5), QueueRange(Q0, 20, 30), QueueRange(Q1, 50, 60)])

    def test_range_of_missing_queue_is_lost(self):
        self.assertEqual(within([QueueRange(Q0, 0, 3)], {}), ([], [QueueRange(Q0, 0, 3)]))


class TaskTests(SynchronousTestCase):
    def tasks(self, ranges, size=1 << 20, minimum=None, maximum=512 << 20, cores=2):
        found = into_tasks(
            ranges, lambda part: part.count * size, min_partitions=minimum, max_bytes=maximum, cores=cores
        )
        self.assertEqual(joined(one for task in found for one in task), joined(one for one in ranges if one.count))
        self.assertTrue(all(task and all(one.count for one in task) for task in found))
        return found

    def test_empty_ranges_make_no_task(self):
        self.assertEqual(self.tasks([]), [])
        self.assertEqual(self.tasks([QueueRange(Q0, 5, 5)]), [])

    def test_little_is_one_task_of_several_queues(self):
        found = self.tasks([QueueRange(Q0, 0, 1), QueueRange(Q1, 7, 8)])
        self.assertEqual(found, [(QueueRange(Q0, 0, 1), QueueRange(Q1, 7, 8))])

    def test_much_is_a_task_for_each_core(self):
        ranges = [QueueRange(queue(number), 0, 50) for number in range(4)]
        self.assertEqual([len(task) for task in self.tasks(ranges, cores=2)], [2, 2])
        self.assertEqual([len(task) for task in self.tasks(ranges, cores=4)], [1, 1, 1, 1])

    def test_a_big_queue_is_split(self):
        found = self.tasks([QueueRange(Q0, 10, 110)], maximum=10 << 20)
        self.assertEqual(len(found), 10)
        self.assertEqual({task[0].count for task in found}, {10})

    def test_least_number_of_tasks_is_made_of_enough_messages(self):
        self.assertEqual(len(self.tasks([QueueRange(Q0, 0, 9), QueueRange(Q1, 0, 2)], minimum=7)), 7)
        self.assertEqual(len(self.tasks([QueueRange(Q0, 0, 3)], minimum=7)), 3)

    def test_a_cut_near_the_border_of_queues_is_made_there(self):
        found = self.tasks([QueueRange(Q0, 0, 1000), QueueRange(Q1, 0, 1010)], size=20_000)
        self.assertEqual(found, [(QueueRange(Q0, 0, 1000),), (QueueRange(Q1, 0, 1010),)])

    def test_unknown_sizes_are_estimated(self):
        found = into_tasks([QueueRange(Q0, 0, 100)], lambda part: None, min_partitions=4, max_bytes=1 << 20, cores=1)
        self.assertEqual([task[0].count for task in found], [25, 25, 25, 25])

    def test_any_ranges_come_out_whole_in_order_and_alike(self):
        source = random.Random(5)
        for _ in range(300):
            ranges = sorted(
                QueueRange(Queue("t", "a", number), start, start + source.choice((0, 1, 2, 7, 500)))
                for number, start in enumerate(source.sample(range(1000), source.randint(1, 6)))
            )
            sizes = {one.queue: source.choice((1, 100, 10_000)) for one in ranges}
            count = sum(one.count for one in ranges)
            minimum = source.choice((None, 1, 3, 20))
            found = into_tasks(
                ranges,
                lambda part, sizes=sizes: part.count * sizes[part.queue],
                min_partitions=minimum,
                max_bytes=1 << 20,
                cores=2,
            )
            flat = [one for task in found for one in task]
            self.assertEqual(joined(flat), joined(one for one in ranges if one.count))
            self.assertEqual(flat, sorted(flat))
            self.assertTrue(all(one.count for one in flat))
            self.assertGreaterEqual(len(found), min(minimum or 1, count))


class ShareTests(SynchronousTestCase):
    def test_shares_are_in_proportion_whole_and_never_more_than_there_is(self):
        source = random.Random(7)
        for _ in range(500):
            backlogs = [source.choice((1, 2, 50, 10_000)) for _ in range(source.randint(1, 9))]
            maximum = source.randint(1, 30_000)
            shares = fair_shares(backlogs, maximum, turn=source.randint(0, 99))
            self.assertEqual(sum(shares), min(maximum, sum(backlogs)))
            self.assertTrue(all(share <= backlog for share, backlog in zip(shares, backlogs, strict=True)))
            if maximum >= len(backlogs):
                self.assertTrue(all(shares))

    def test_queues_with_alike_backlogs_have_alike_shares(self):
        self.assertEqual(fair_shares([100, 100, 100], 30, turn=0), [10, 10, 10])
        self.assertEqual(fair_shares([1000, 10], 101, turn=0), [99, 2])

    def test_fewer_rows_than_queues_go_to_queues_in_turn(self):
        starts = {queue(number): 0 for number in range(5)}
        ends = dict.fromkeys(starts, 3)
        rounds = 0
        while starts != ends:
            following = by_rows(starts, ends, 2)
            self.assertLessEqual(sum(following.values()) - sum(starts.values()), 2)
            self.assertNotEqual(following, starts)
            starts = following
            rounds += 1
        self.assertLessEqual(rounds, 10)

    def test_shares_never_move_a_queue_back(self):
        self.assertEqual(by_rows({Q0: 50, Q1: 0}, {Q0: 40, Q1: 9}, 100), {Q0: 50, Q1: 9})

    def test_bytes_bound_a_batch(self):
        starts, ends = {Q0: 0, Q1: 100}, {Q0: 1000, Q1: 1100}
        got = by_bytes(starts, ends, 20_000, lambda part: part.count * 100)
        self.assertEqual(got, {Q0: 100, Q1: 200})
        self.assertEqual(by_bytes(starts, ends, 20_000, lambda part: None), {Q0: 19, Q1: 119})
        self.assertEqual(by_bytes(ends, ends, 20_000, lambda part: None), ends)

    def test_large_message_passes_alone_over_the_byte_limit(self):
        starts, ends = {Q0: 0, Q1: 100}, {Q0: 1000, Q1: 1100}
        got = by_bytes(starts, ends, 10, lambda part: part.count * 100_000)
        self.assertEqual(sum(got.values()) - sum(starts.values()), 1)

    def test_queue_with_tiny_share_gets_one_message(self):
        starts, ends = {Q0: 0, Q1: 0}, {Q0: 1_000_000, Q1: 3}
        got = by_bytes(starts, ends, 100_000, lambda part: part.count * 1000)
        self.assertEqual(got[Q1], 1)
        self.assertIn(got[Q0], (98, 99, 100))

    def test_first_rows_of_ranges(self):
        ranges = [QueueRange(Q0, 0, 10), QueueRange(Q1, 5, 15)]
        self.assertEqual(first_rows(ranges, None), ranges)
        self.assertEqual(first_rows(ranges, 4), [QueueRange(Q0, 0, 2), QueueRange(Q1, 5, 7)])

    def test_messages_are_held_back_until_they_are_enough_or_time_is_over(self):
        self.assertTrue(is_held_back(5, 10, waited=3, longest=9))
        self.assertFalse(is_held_back(10, 10, waited=3, longest=9))
        self.assertFalse(is_held_back(5, 10, waited=9, longest=9))
        self.assertFalse(is_held_back(0, 10, waited=3, longest=9))
        self.assertFalse(is_held_back(5, None, waited=3, longest=9))
