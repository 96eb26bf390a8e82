import json

from twisted.trial.unittest import SynchronousTestCase

from rocketd.spark.errors import DataLossError, NoAnswerError, SparkError
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.checkpoint import batch_ranges, decode, encode, stored_times
from rocketd.spark.planning.follow import SETTLING, Limits, QueueFollower
from rocketd.spark.ranges import QueueRange
from tests.support.spark_catalog import MemoryCatalog, queue

Q0, Q1, B0 = queue(0), queue(1), queue(0, broker="b")


class CheckpointTests(SynchronousTestCase):
    def test_offsets_there_and_back(self):
        offsets = {queue(10): 5, queue(2): 6, B0: 7}
        kept = json.loads(json.dumps(encode(offsets, {B0: 3})))
        self.assertEqual(decode(kept), (offsets, {B0: 3}))

    def test_equal_offsets_have_equal_texts(self):
        first, second = encode({Q1: 1, Q0: 2, B0: 3}), encode({B0: 3, Q0: 2, Q1: 1})
        self.assertEqual(json.dumps(first), json.dumps(second))
        self.assertEqual(json.dumps(json.loads(json.dumps(first))), json.dumps(first))
        self.assertEqual(json.dumps(encode({Q0: 5})), '{"offsets": {"t": {"a": {"0": 5}}}, "v": 1}')

    def test_offsets_of_another_version_are_refused(self):
        for kept in ({"v": 2, "offsets": {}}, {"v": 1}, {}, {"v": 1, "offsets": {"t": {"a": {"0": "5"}}}}):
            self.assertRaises(SparkError, decode, kept)

    def test_store_times_are_kept_and_missing_in_earlier_entries(self):
        kept = json.loads(json.dumps(encode({Q0: 5, Q1: 6}, None, {Q0: 1_795_000_000_123})))
        self.assertEqual((decode(kept), stored_times(kept)), (({Q0: 5, Q1: 6}, {}), {Q0: 1_795_000_000_123}))
        self.assertEqual(stored_times(encode({Q0: 5})), {})

    def test_ranges_of_a_batch_lie_between_its_offsets(self):
        start, end = encode({Q0: 5, Q1: 7}), encode({Q0: 9, Q1: 7, B0: 4}, {B0: 1})
        self.assertEqual(batch_ranges(start, end), [QueueRange(Q0, 5, 9), QueueRange(B0, 1, 4)])

    def test_batch_starts_behind_lost_messages(self):
        start, end = encode({Q0: 5}), encode({Q0: 9}, {Q0: 8})
        self.assertEqual(batch_ranges(start, end), [QueueRange(Q0, 8, 9)])
        self.assertEqual(batch_ranges(end, encode({Q0: 11})), [QueueRange(Q0, 9, 11)])

    def test_starts_of_an_earlier_batch_do_not_count(self):
        self.assertEqual(batch_ranges(encode({Q0: 5}, {Q0: 1}), encode({Q0: 9})), [QueueRange(Q0, 5, 9)])


class FollowTestCase(SynchronousTestCase):
    def setUp(self):
        self.catalog = MemoryCatalog({Q0: (0, 10), Q1: (0, 10), B0: (0, 10)})
        self.now = 0.0
        self.pauses = []
        self.while_waiting = []

    def pause(self, seconds):
        """Time goes on, and something may happen."""
        self.assertGreater(seconds, 0)
        self.now += seconds
        self.pauses.append(seconds)
        if self.while_waiting and self.while_waiting[0][0] <= self.now:
            self.while_waiting.pop(0)[1]()

    def follower(self, **given):
        options = ReadOptions.parse({"store": "/s", "subscribe": "t", **given}, stream=True)
        return QueueFollower(lambda: self.catalog, options, clock=lambda: self.now, pause=self.pause)

    def set_end(self, one, end):
        self.catalog.spans[one] = (self.catalog.spans[one][0], end)


class InitialTests(FollowTestCase):
    def test_stream_starts_at_the_option_or_the_end(self):
        self.assertEqual(self.follower().initial(), {Q0: 10, Q1: 10, B0: 10})
        self.assertEqual(self.follower(startingOffsets="earliest").initial(), {Q0: 0, Q1: 0, B0: 0})
        self.assertEqual(self.follower(startingTimestamp="45").initial(), {Q0: 5, Q1: 5, B0: 5})

    def test_expired_start_is_a_loss(self):
        self.catalog.spans[Q0] = (5, 10)
        given = {"startingOffsets": '{"t": {"a": {"0": 1, "1": 2}, "b": {"0": 3}}}'}
        self.assertIn("t/a/0[1, 5)", str(self.assertRaises(DataLossError, self.follower(**given).initial)))
        with self.assertLogs("rocketd.spark", "WARNING"):
            self.assertEqual(self.follower(failOnDataLoss="false", **given).initial(), {Q0: 5, Q1: 2, B0: 3})

    def test_a_group_behind_the_end_is_a_loss(self):
        self.catalog.groups["g", Q0] = 12
        text = str(self.assertRaises(DataLossError, self.follower(startingOffsets="group:g").initial))
        self.assertIn("t/a/0 is to be read from 12, and ends at 10", text)
        self.assertIn("failOnDataLoss=false", text)
        with self.assertLogs("rocketd.spark", "WARNING"):
            starts = self.follower(startingOffsets="group:g", failOnDataLoss="false").initial()
        self.assertEqual(starts, {Q0: 10, Q1: 0, B0: 0})


class NewsTests(FollowTestCase):
    def test_news_ends_at_the_ends_of_queues(self):
        news = self.follower().news({Q0: 4, Q1: 10, B0: 9}, Limits())
        self.assertEqual(news.starts, {Q0: 4, Q1: 10, B0: 9})
        self.assertEqual(news.ends, {Q0: 10, Q1: 10, B0: 10})

    def test_news_has_current_ends(self):
        follower = self.follower()
        positions = {Q0: 10, Q1: 10, B0: 10}
        for end in range(11, 40):
            self.assertEqual(follower.news(positions, Limits()).ends, positions)
            self.set_end(Q0, end)
            positions = follower.news(positions, Limits()).ends
            self.assertEqual(positions[Q0], end)

    def test_follower_pauses_before_asking_again(self):
        follower = self.follower()
        positions = {Q0: 10, Q1: 10, B0: 10}
        self.assertEqual(follower.news(positions, Limits()).ends, positions)
        self.assertEqual(self.pauses, [])
        self.while_waiting.append((0, lambda: self.set_end(Q1, 12)))
        self.assertEqual(follower.news(positions, Limits()).ends[Q1], 12)
        self.assertEqual(len(self.pauses), 1)

    def test_pauses_grow_to_a_bound_and_end_with_news(self):
        follower = self.follower()
        positions = {Q0: 10, Q1: 10, B0: 10}
        for _ in range(20):
            follower.news(positions, Limits())
        self.assertEqual(self.pauses, sorted(self.pauses))
        self.assertEqual(max(self.pauses), 0.2)
        self.set_end(Q0, 12)
        follower.news(positions, Limits())
        before = len(self.pauses)
        follower.news(positions, Limits())
        self.assertEqual(len(self.pauses), before)

    def test_limits(self):
        positions = {Q0: 0, Q1: 0, B0: 0}
        ends = self.follower().news(positions, Limits(max_rows=6)).ends
        self.assertEqual(ends, {Q0: 2, Q1: 2, B0: 2})
        ends = self.follower().news(positions, Limits(max_bytes=900)).ends
        self.assertEqual(ends, {Q0: 3, Q1: 3, B0: 3})
        ends = self.follower().news(positions, Limits(max_rows=27, max_bytes=600)).ends
        self.assertEqual(ends, {Q0: 2, Q1: 2, B0: 2})

    def test_a_new_queue_is_read_from_its_lowest_offset(self):
        self.catalog.spans[B0] = (3, 8)
        news = self.follower().news({Q0: 10, Q1: 10}, Limits())
        self.assertEqual((news.starts[B0], news.ends[B0]), (3, 8))

    def test_new_empty_queue_is_left_out(self):
        self.catalog.spans[B0] = (3, 3)
        positions = {Q0: 10, Q1: 10}
        self.assertEqual(self.follower().news(positions, Limits()).ends, positions)

    def test_a_new_topic_of_the_pattern(self):
        given = {"subscribePattern": "t.*"}
        options = ReadOptions.parse({"store": "/s", **given}, stream=True)
        follower = QueueFollower(lambda: self.catalog, options, clock=lambda: self.now, pause=self.pause)
        new = queue(0, "t2")
        self.catalog.spans[new] = (0, 4)
        self.assertEqual(follower.news({Q0: 10, Q1: 10, B0: 10}, Limits()).ends[new], 4)


class RemadeTests(FollowTestCase):
    """A topic is deleted and recreated: other messages have the offsets that were read."""

    positions = {Q0: 5, Q1: 10, B0: 10}
    stored = {Q0: 40, Q1: 90, B0: 90}

    def news(self, follower=None, **given):
        return (follower or self.follower(**given)).news(self.positions, Limits(), None, self.stored)

    def remake(self, end, one=Q0):
        self.catalog.remade_ms[one] = 1000
        self.set_end(one, end)

    def assert_loss(self):
        text = str(self.assertRaises(DataLossError, self.news))
        self.assertIn(
            "t/a/0 was deleted and made anew: the messages before offset 5 are not those that were read", text
        )
        self.assertIn("failOnDataLoss=false", text)

    def test_same_queue_is_read_on(self):
        self.assertEqual(self.news().ends, {Q0: 10, Q1: 10, B0: 10})

    def test_longer_queue_is_a_loss(self):
        self.remake(8)
        self.assert_loss()

    def test_queue_of_the_same_length_is_a_loss(self):
        self.remake(5)
        self.assert_loss()

    def test_queue_made_anew_while_the_stream_runs_is_a_loss(self):
        follower = self.follower()
        self.set_end(Q0, 5)
        self.assertEqual(self.news(follower).ends, self.positions)
        self.remake(8)
        self.assertRaises(DataLossError, self.news, follower)

    def test_accepted_loss_goes_on_with_the_first_message(self):
        for end in (8, 5, 3):
            with self.subTest(end=end), self.assertLogs("rocketd.spark", "WARNING"):
                self.remake(end)
                news = self.news(failOnDataLoss="false")
                self.assertEqual((news.starts[Q0], news.ends[Q0]), (0, end))

    def test_accepted_loss_of_last_messages_goes_on_at_the_end(self):
        self.set_end(Q0, 3)
        with self.assertLogs("rocketd.spark", "WARNING"):
            news = self.news(failOnDataLoss="false")
        self.assertEqual((news.starts[Q0], news.ends[Q0]), (3, 3))

    def test_expired_message_before_the_position_says_nothing(self):
        self.catalog.spans[Q0] = (5, 10)
        self.remake(10)
        self.assertEqual(self.news().ends[Q0], 10)

    def test_broker_that_cannot_tell_has_no_news(self):
        def away(queue, offset):
            raise NoAnswerError("a is away", retriable=True)

        self.catalog.stored_at = away
        self.assertEqual(self.news().ends[Q0], 5)

    def test_store_times_are_asked_for_new_offsets_only(self):
        follower = self.follower()
        ends = self.news(follower).ends
        self.assertEqual(follower.stored_before(ends, {Q1: 17}), {Q0: 90, Q1: 17, B0: 90})
        self.catalog.away.add("b")
        self.assertEqual(follower.stored_before(ends, {Q1: 17}), {Q0: 90, Q1: 17})

    def test_batch_planned_before_is_a_loss(self):
        follower = self.follower()
        follower.check_same({Q0: 8, Q1: 10}, {Q0: 70})
        self.remake(9)
        self.assertRaises(DataLossError, follower.check_same, {Q0: 8, Q1: 10}, {Q0: 70})
        with self.assertLogs("rocketd.spark", "WARNING"):
            self.follower(failOnDataLoss="false").check_same({Q0: 8}, {Q0: 70})


class HoldingTests(FollowTestCase):
    def news(self, **given):
        follower = self.follower(minOffsetsPerTrigger="20", maxTriggerDelay="60s", **given)
        return follower.news({Q0: 10, Q1: 10, B0: 10}, Limits(least_rows=20)).ends

    def test_messages_are_held_back_for_a_limited_time(self):
        self.set_end(Q0, 15)
        self.assertEqual(self.news()[Q0], 15)
        self.assertGreaterEqual(self.now, 60)
        self.assertLess(self.now, 61)

    def test_enough_is_not_held_back(self):
        self.set_end(Q0, 15)
        self.while_waiting.append((5, lambda: self.set_end(Q1, 30)))
        ends = self.news()
        self.assertEqual((ends[Q0], ends[Q1]), (15, 30))
        self.assertLess(self.now, 6)

    def test_empty_news_are_returned_at_once(self):
        self.assertEqual(self.news(), {Q0: 10, Q1: 10, B0: 10})
        self.assertEqual(self.now, 0)

    def test_a_run_with_a_target_does_not_wait(self):
        self.set_end(Q0, 15)
        follower = self.follower(minOffsetsPerTrigger="20")
        target = follower.target()
        ends = follower.news({Q0: 10, Q1: 10, B0: 10}, Limits(least_rows=20), target).ends
        self.assertEqual((ends[Q0], self.now), (15, 0))


class TargetTests(FollowTestCase):
    def test_messages_behind_the_target_are_not_read(self):
        follower = self.follower()
        target = follower.target()
        self.set_end(Q0, 99)
        self.catalog.spans[queue(7)] = (0, 5)
        positions = {Q0: 4, Q1: 10, B0: 9}
        news = follower.news(positions, Limits(), target)
        self.assertEqual(news.ends, {Q0: 10, Q1: 10, B0: 10})
        self.assertEqual(follower.news(news.ends, Limits(), target).ends, news.ends)

    def test_a_position_behind_the_target_stays(self):
        follower = self.follower()
        target = follower.target()
        self.set_end(Q0, 99)
        self.assertEqual(follower.news({Q0: 50, Q1: 10, B0: 10}, Limits(), target).ends[Q0], 50)

    def test_target_waits_for_unreachable_broker(self):
        self.catalog.away.add("b")
        self.while_waiting.append((70, lambda: self.catalog.away.clear()))
        self.assertEqual(self.follower().target(), {Q0: 10, Q1: 10, B0: 10})
        self.assertGreaterEqual(self.now, 70)

    def test_wrong_address_of_a_run_with_target_fails_soon(self):
        self.catalog.away.add("namesrv")
        error = self.assertRaises(NoAnswerError, self.follower().target)
        self.assertIn("namesrv is away (for 3", str(error))
        self.assertLess(self.now, 60)


class TroubleTests(FollowTestCase):
    def test_unreachable_broker_is_waited_for(self):
        self.catalog.away.add("b")

        def back():
            self.catalog.away.clear()
            self.set_end(B0, 11)

        self.while_waiting.append((70, back))
        ends = self.follower().news({Q0: 10, Q1: 10, B0: 10}, Limits()).ends
        self.assertEqual(ends[B0], 11)
        self.assertGreaterEqual(self.now, 70)

    def test_other_brokers_are_read_while_one_is_unreachable(self):
        self.catalog.away.add("b")
        self.set_end(Q1, 12)
        follower = self.follower()
        self.assertEqual(follower.news({Q0: 10, Q1: 10, B0: 10}, Limits()).ends, {Q0: 10, Q1: 12, B0: 10})
        self.assertEqual(self.now, 0)

    def test_broker_unreachable_too_long_is_given_up(self):
        self.catalog.away.add("b")
        error = self.assertRaises(NoAnswerError, self.follower().news, {Q0: 10, Q1: 10, B0: 10}, Limits())
        self.assertIn("b is away (for 30", str(error))
        self.assertGreaterEqual(self.now, 300)

    def test_unreachable_name_servers_are_waited_for(self):
        self.catalog.away.add("namesrv")
        self.set_end(Q1, 12)
        self.assertEqual(self.follower().news({Q0: 10, Q1: 10, B0: 10}, Limits()).ends[Q1], 12)
        self.while_waiting.append((20, self.catalog.away.clear))
        positions = {Q0: 10, Q1: 12, B0: 10}
        self.assertEqual(self.follower().news(positions, Limits()).ends, positions)
        self.assertGreaterEqual(self.now, 20)

    def test_queue_without_route_is_waited_for(self):
        self.catalog.hidden.add("b")

        def back():
            self.catalog.hidden.clear()
            self.set_end(B0, 11)

        self.while_waiting.append((90, back))
        self.assertEqual(self.follower().news({Q0: 10, Q1: 10, B0: 10}, Limits()).ends[B0], 11)

    def test_queue_missing_too_long_is_a_loss(self):
        self.catalog.hidden.add("b")
        positions = {Q0: 10, Q1: 10, B0: 10}
        error = self.assertRaises(DataLossError, self.follower().news, positions, Limits())
        self.assertIn("t/b/0 is not there any more", str(error))
        with self.assertLogs("rocketd.spark", "WARNING") as logged:
            follower = self.follower(failOnDataLoss="false")
            self.assertEqual(follower.news(positions, Limits()).ends, positions)
            self.set_end(Q0, 11)
            self.assertEqual(follower.news(positions, Limits()).ends[Q0], 11)
        self.assertEqual(len(logged.output), 1)

    def test_a_queue_is_never_read_backwards(self):
        self.set_end(Q0, 7)
        self.set_end(Q1, 12)
        positions = {Q0: 10, Q1: 10, B0: 10}
        follower = self.follower()
        self.assertEqual(follower.news(positions, Limits()).ends, {Q0: 10, Q1: 12, B0: 10})
        self.while_waiting.append((5, lambda: self.set_end(Q0, 13)))
        positions = {Q0: 10, Q1: 12, B0: 10}
        self.assertEqual(follower.news(positions, Limits()).ends[Q0], 13)

    def test_queue_ending_before_its_position_is_a_loss(self):
        self.set_end(Q0, 7)
        error = self.assertRaises(DataLossError, self.follower().news, {Q0: 10, Q1: 10, B0: 10}, Limits())
        self.assertIn("t/a/0 was read up to 10, and ends at 7 now", str(error))
        self.assertGreaterEqual(self.now, SETTLING)

    def test_a_stream_may_go_on_at_the_new_end(self):
        self.set_end(Q0, 7)
        positions = {Q0: 10, Q1: 10, B0: 10}
        follower = self.follower(failOnDataLoss="false")
        with self.assertLogs("rocketd.spark", "WARNING"):
            news = follower.news(positions, Limits())
        self.assertEqual((news.starts[Q0], news.ends[Q0]), (7, 7))
        self.set_end(Q0, 9)
        news = follower.news(news.ends, Limits())
        self.assertEqual((news.starts[Q0], news.ends[Q0]), (7, 9))

    def test_expired_messages_are_named(self):
        self.catalog.spans[Q0] = (15, 20)
        positions = {Q0: 10, Q1: 10, B0: 10}
        error = self.assertRaises(DataLossError, self.follower().news, positions, Limits())
        self.assertIn("5 messages are not there any more: t/a/0[10, 15)", str(error))
        with self.assertLogs("rocketd.spark", "WARNING"):
            news = self.follower(failOnDataLoss="false").news(positions, Limits(max_rows=3))
        self.assertEqual((news.starts[Q0], news.ends[Q0]), (15, 18))

    def test_permanent_errors_are_raised_at_once(self):
        def refused(queue):
            raise NoAnswerError("no permission")

        self.catalog.bounds = refused
        self.assertRaises(NoAnswerError, self.follower().news, {Q0: 1}, Limits())
        self.assertEqual(self.now, 0)
