"""The consumer against scripted name servers and brokers, on a fake clock."""

from datetime import UTC, datetime

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.membership.group_beginning import CLOCK_SKEW_SECONDS
from rocketd.client.consumer.membership.missing_topics import ROUTE_LOOK_SECONDS, ROUTE_LOOKS
from rocketd.client.consumer.membership.rebalance import HANDOVER_SECONDS
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.errors import NoRouteError, StopConsuming
from rocketd.client.queries.queues import first_since
from rocketd.common.sysflag import PULL_COMMIT_OFFSET
from rocketd.remoting.bodies.tables import LockBatchResponseBody, MessageQueue
from rocketd.remoting.errors import RemotingSendRequestError
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import encode_record
from tests.support.client_cluster import HOST, ClientTestCase


class ConsumerTestCase(ClientTestCase):
    begin_at = "earliest"

    def setUp(self):
        super().setUp()
        self.got = []
        self.consumer = self.make(self.take)

    async def take(self, message):
        self.got.append((message.queue.broker_name, message.body))

    def make(self, listener, **options):
        return PushConsumerEngine(self.client, "cg", listener, options=ConsumerOptions(begin=self.begin_at, **options))

    def start(self, expression=None, consumer=None):
        consumer = consumer or self.consumer
        consumer.subscribe("T", expression)
        self.result_of(consumer.start())

    def answer_searches(self):
        """Answer searches by time with 5, which is right, and note their times."""
        times = []

        def search(address, request, fields):
            times.append(int(fields["timestamp"]))
            return RemotingCommand.response(0, ext_fields={"offset": "5"})

        pull = self.cluster.answer_11

        def nothing_before(address, request, fields):
            if fields["maxMsgNums"] != "1":
                return pull(address, request, fields)
            found_nothing = dict.fromkeys(("suggestWhichBrokerId", "minOffset", "maxOffset"), "0")
            return RemotingCommand.response(19, ext_fields={**found_nothing, "nextBeginOffset": "5"})

        self.cluster.answer_29, self.cluster.answer_11 = search, nothing_before
        return times


class ConsumerTests(ConsumerTestCase):
    def test_heartbeat_comes_before_the_first_pull(self):
        self.start()
        codes = self.cluster.codes()
        self.assertLess(codes.index(34), codes.index(11))
        (consumer,) = self.cluster.heartbeats[0].consumer_data_set
        topics = {subscription.topic for subscription in consumer.subscription_data_set}
        self.assertEqual((consumer.group_name, topics), ("cg", {"T", "%RETRY%cg"}))
        self.assertEqual(self.cluster.pulls(), {"a:10911": 0, "b:10911": 0})

    def test_start_cancelled_raises_cancelled_error(self):
        for code in (105, 34, 38, 14, 30):
            with self.subTest(code=code):
                self.setUp()
                self.begin_at = "latest"
                self.consumer = self.make(self.take)
                answer = getattr(self.cluster, f"answer_{code}")
                setattr(self.cluster, f"answer_{code}", lambda *_: Deferred())
                self.consumer.subscribe("T", None)
                starting = Deferred.fromCoroutine(self.consumer.start())
                self.assertNoResult(starting)
                starting.cancel()
                self.failureResultOf(starting, CancelledError)
                setattr(self.cluster, f"answer_{code}", answer)
                self.end_of(self.consumer.stop())

    def test_lost_connection_at_process_end_is_not_logged(self):
        self.start()
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        for running, address in ((True, "a:10911"), (False, "b:10911")):
            self.clock.running = running
            self.cluster.pull_of(address)[2].errback(RemotingSendRequestError(address, "closed"))
        pulling = [formatEvent(event) for event in events if "pulling" in formatEvent(event)]
        self.assertEqual(["a:10911" in text for text in pulling], [True])

    def test_messages_are_consumed_and_offsets_stored(self):
        self.start()
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.assertEqual(self.got, [("a", b"one"), ("a", b"two")])
        self.assertEqual(self.cluster.pulls(), {"a:10911": 2, "b:10911": 0})
        self.clock.advance(5)
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 2, ("b:10911", "T"): 0})

    def test_offsets_are_stored_one_after_the_other(self):
        """Brokers handle requests at once: an older offset that is under way could overtake the last one."""
        self.start()
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        held = []

        def hold(address, request, fields):
            if address[0] != "a":
                return RemotingCommand.response(0)
            held.append((int(fields["commitOffset"]), Deferred()))
            return held[-1][1]

        self.cluster.answer_15 = hold
        self.clock.advance(5)
        self.cluster.deliver("a:10911", [(b"two", "")], 1)
        stopping = Deferred.fromCoroutine(self.consumer.stop())
        self.clock.advance(5)
        self.assertEqual([offset for offset, _ in held], [1])
        self.assertNoResult(stopping)
        held[0][1].callback(RemotingCommand.response(0))
        self.assertEqual([offset for offset, _ in held], [1, 2])
        for place in (1, 2):  # by the timer, and then by the stop
            held[place][1].callback(RemotingCommand.response(0))
        self.end_of(stopping)

    def test_pull_stores_no_offset_beside_a_request_that_stores_one(self):
        """The broker has pools for both: the older offset could be processed last."""
        self.start()
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        storing = Deferred()
        self.cluster.answer_15 = lambda address, *_: storing if address[0] == "a" else RemotingCommand.response(0)
        self.clock.advance(5)
        self.cluster.deliver("a:10911", [(b"two", "")], 1)

        def stored_by_the_last_pull():
            _, fields, _ = self.cluster.pull_of("a:10911")
            return int(fields["commitOffset"]) if int(fields["sysFlag"]) & PULL_COMMIT_OFFSET else None

        self.assertIsNone(stored_by_the_last_pull())
        storing.callback(RemotingCommand.response(0))
        self.cluster.deliver("a:10911", [(b"three", "")], 2)
        self.assertEqual(stored_by_the_last_pull(), 3)

    def test_pull_stores_the_offset_if_no_message_is_under_way(self):
        """Otherwise a pull that the broker comes to late would store an offset older than the last one."""
        slow = Deferred()

        async def listener(message):
            if message.body == b"slow":
                await slow

        self.start(consumer=self.make(listener))

        def of_the_last_pull():
            (fields,) = [fields for address, fields, held in self.cluster.held if address[0] == "a" and not held.called]
            return int(fields["queueOffset"]), int(fields["sysFlag"]) & PULL_COMMIT_OFFSET, int(fields["commitOffset"])

        self.assertEqual(of_the_last_pull(), (0, 0, 0))
        self.cluster.deliver("a:10911", [(b"one", ""), (b"slow", "")], 0)
        self.assertEqual(of_the_last_pull()[:2], (2, 0))
        slow.callback(None)
        self.cluster.deliver("a:10911", [(b"three", "")], 2)
        self.cluster.deliver("a:10911", [(b"four", "")], 3)
        self.assertEqual(of_the_last_pull(), (4, PULL_COMMIT_OFFSET, 4))

    def test_start_continues_at_stored_offset(self):
        self.cluster.offsets["a:10911", "T"] = 40
        self.start()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 40, "b:10911": 0})

    def test_other_tags_with_the_same_hash_are_skipped(self):
        self.start("Aa")
        self.cluster.deliver("a:10911", [(b"no", "TAGS\x01BB"), (b"yes", "TAGS\x01Aa")], 0)
        self.assertEqual(self.got, [("a", b"yes")])
        self.assertEqual(self.cluster.pulls()["a:10911"], 2)

    def test_damaged_message_is_left_out_and_logged(self):
        """A queue that waits for it would stand still for ever."""
        lines = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        for order in ("none", "queue"):
            with self.subTest(order=order):
                self.setUp()
                self.start(consumer=self.make(self.take, order=order))
                self.cluster.deliver("a:10911", [(b"one", ""), (b"wrong", ""), (b"two", "")], 0, damaged=[1])
                self.cluster.deliver("b:10911", [(b"wrong", "")], 0, damaged=[0])
                self.assertEqual(self.got, [("a", b"one"), ("a", b"two")])
                self.assertEqual(self.cluster.pulls(), {"a:10911": 3, "b:10911": 1})
                self.clock.advance(5)
                self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 3, ("b:10911", "T"): 1})
                texts = [formatEvent(line) for line in lines if line["log_level"].name == "error"]
                self.assertIn("damaged: queue 0 of T at a: the record with offset 1 in queue 0, at 101 of", texts[-2])

    def test_failed_message_is_sent_back(self):
        async def listener(message):
            raise RuntimeError("not now")

        self.start(consumer=self.make(listener))
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        ((address, fields),) = self.cluster.of(36)
        self.assertEqual((address, fields["offset"], fields["group"]), ("a:10911", "100", "cg"))
        self.assertEqual(self.cluster.pulls()["a:10911"], 1)

    def test_message_not_sent_back_is_consumed_again_here(self):
        fails = [True]

        async def listener(message):
            if fails.pop() if fails else False:
                raise RuntimeError("not now")
            self.got.append(message.body)

        self.start(consumer=self.make(listener))
        self.cluster.refusals[36, "a:10911"] = 1
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.assertEqual(self.got, [])
        self.clock.advance(5)
        self.assertEqual(self.got, [b"one"])
        self.assertEqual(self.cluster.pulls()["a:10911"], 1)

    def test_stop_consuming_raised_by_listener_keeps_the_offset(self):
        async def listener(message):
            if message.body == b"two":
                raise StopConsuming()

        consumer = self.make(listener)
        self.start(consumer=consumer)
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", ""), (b"three", "")], 0)
        self.assertNotIn("a:10911", self.cluster.pulls())
        self.end_of(consumer.stop())
        self.assertEqual(self.cluster.of(36), [])
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 1)

    def test_slow_listener_holds_its_queue_only(self):
        slow = Deferred()
        seen = []

        async def listener(message):
            seen.append(message.body)
            if message.body == b"one":
                await slow

        self.start(consumer=self.make(listener, order="queue"))
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.cluster.deliver("b:10911", [(b"three", "")], 0)
        self.assertEqual(seen, [b"one", b"three"])
        slow.callback(None)
        self.assertEqual(seen, [b"one", b"three", b"two"])

    def test_queue_locked_by_another_member_is_taken_soon_after_its_release(self):
        """Its handler may take longer than the pause before queues of other members are taken."""
        free = self.cluster.answer_41
        self.cluster.answer_41 = lambda *_: RemotingCommand.response(0, body=LockBatchResponseBody(set()).encode())
        self.start(consumer=self.make(self.take, order="queue"))
        self.clock.pump([0.5] * 20)
        self.assertEqual(self.cluster.pulls("T"), {})
        tries = len(self.cluster.of(41))
        self.assertLessEqual(tries, 2 * 11)  # of two queues, about once a second
        self.cluster.answer_41 = free
        self.clock.advance(1)
        self.assertEqual(self.cluster.pulls("T"), {"a:10911": 0, "b:10911": 0})

    def test_share_follows_the_group(self):
        self.start()
        self.cluster.others = ("zzz",)
        self.cluster.request(40, {"consumerGroup": "cg"})
        self.assertEqual([queue.broker_name for queue in self.consumer.queues()], ["a"])
        self.cluster.others = ()
        self.clock.advance(20)
        self.assertEqual(sorted(queue.broker_name for queue in self.consumer.queues()), ["a", "b"])

    def test_refused_pull_is_tried_again_later(self):
        self.cluster.refusals[11, "a:10911"] = 24
        self.start()
        self.assertEqual(self.cluster.pulls(), {"b:10911": 0})
        self.cluster.refusals.clear()
        self.clock.advance(3)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 0, "b:10911": 0})

    def test_pulls_failing_repeatedly_wait_longer(self):
        self.cluster.refusals[11, "a:10911"] = 1
        self.start()

        def tries(seconds):
            before = self.cluster.codes().count(11)
            self.clock.pump([0.05] * round(seconds * 20))
            return self.cluster.codes().count(11) - before

        self.assertEqual(tries(1), 3)  # after 0.1, 0.3 and 0.7 s
        tries(10)
        self.assertEqual(tries(15), 5)
        self.cluster.refusals.clear()
        tries(3)
        self.cluster.refusals[11, "a:10911"] = 1
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.assertEqual(tries(1), 3)

    def test_stop_stores_offsets_and_leaves(self):
        self.start()
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        self.end_of(self.consumer.stop())
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 1, ("b:10911", "T"): 0})
        self.assertEqual({fields["consumerGroup"] for _, fields in self.cluster.of(35)}, {"cg"})
        self.assertEqual(self.consumer.queues(), [])

    def test_stop_from_the_listener_ends_with_its_message(self):
        async def listener(message):
            self.got.append(message.body)
            self.stopped = Deferred.fromCoroutine(consumer.stop())

        consumer = self.make(listener)
        self.start(consumer=consumer)
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.end_of(self.stopped)
        self.assertEqual(self.got, [b"one"])
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 1, ("b:10911", "T"): 0})

    def test_stop_waits_for_the_listener(self):
        slow = Deferred()

        async def listener(message):
            await slow

        consumer = self.make(listener)
        self.start(consumer=consumer)
        self.cluster.deliver("a:10911", [(b"one", "")], 0)
        stopped = Deferred.fromCoroutine(consumer.stop())
        self.assertNoResult(stopped)
        slow.callback(None)
        self.end_of(stopped)
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 1, ("b:10911", "T"): 0})

    def test_stop_while_first_offset_is_asked_for_starts_no_pull(self):
        asked = []
        self.cluster.answer_14 = lambda *_: asked.append(Deferred()) or asked[-1]
        self.consumer.subscribe("T")
        started = Deferred.fromCoroutine(self.consumer.start())
        stopped = Deferred.fromCoroutine(self.consumer.stop())
        self.assertNoResult(started)
        self.assertNoResult(stopped)
        for held in asked:
            held.callback(RemotingCommand.response(0, ext_fields={"offset": "3"}))
        self.end_of(stopped)
        self.successResultOf(started)
        self.assertEqual(self.cluster.of(11), [])

    def test_stop_while_routes_are_asked_for_joins_no_group(self):
        answer, asked = self.cluster.answer_105, []
        self.cluster.answer_105 = lambda *arguments: asked.append((Deferred(), arguments)) or asked[-1][0]
        self.consumer.subscribe("T")
        started = Deferred.fromCoroutine(self.consumer.start())
        self.end_of(self.consumer.stop())
        for held, arguments in asked:
            held.callback(answer(*arguments))
        self.successResultOf(started)
        self.assertEqual(self.cluster.of(34), [])
        self.assertEqual(self.client.consumers, {})

    def test_unknown_topic_fails_the_start_if_it_is_to_raise(self):
        consumer = self.make(self.take, missing="raise")
        consumer.subscribe("Nope")
        started = Deferred.fromCoroutine(consumer.start())
        self.clock.pump([ROUTE_LOOK_SECONDS] * ROUTE_LOOKS)
        self.failureResultOf(started, NoRouteError)

    def test_topic_registered_during_start_is_found(self):
        self.consumer.subscribe("Soon")
        started = Deferred.fromCoroutine(self.consumer.start())
        self.clock.advance(ROUTE_LOOK_SECONDS)
        self.assertNoResult(started)
        self.cluster.topics.add("Soon")
        self.clock.advance(ROUTE_LOOK_SECONDS)
        self.successResultOf(started)


class LatestTests(ConsumerTestCase):
    begin_at = "latest"

    def test_new_group_begins_at_the_end(self):
        self.start()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 7})

    def add_broker_b(self):
        self.cluster.brokers.append("b")
        self.result_of(self.client.routes.refresh(["T"]))
        self.cluster.request(40, {"consumerGroup": "cg"})

    def test_queue_that_appears_later_begins_at_the_start_of_the_consumer(self):
        self.cluster.brokers.remove("b")
        times = self.answer_searches()
        joined_ms = int(self.client.now_ms())
        self.start()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7})
        self.clock.advance(100)
        self.add_broker_b()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 5})
        self.assertEqual(times, [joined_ms - CLOCK_SKEW_SECONDS * 1000])

    def refuse_member_lists(self):
        for broker in ("a:10911", "b:10911"):
            self.cluster.refusals[38, broker] = 1

    def test_share_that_comes_after_the_start_begins_at_the_start_of_the_consumer(self):
        """No broker tells the members at the start. The application has sent messages since then."""
        times = self.answer_searches()
        joined_ms = int(self.client.now_ms())
        self.refuse_member_lists()
        self.start()
        self.assertEqual(self.cluster.pulls(), {})
        self.clock.advance(100)
        self.cluster.refusals.clear()
        self.clock.advance(20)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 5, "b:10911": 5})
        self.assertEqual(times, [joined_ms - CLOCK_SKEW_SECONDS * 1000] * 2)

    def test_topic_subscribed_later_begins_at_the_end(self):
        self.cluster.topics.add("T2")
        self.start()
        self.clock.advance(100)
        self.consumer.subscribe("T2")
        self.assertEqual(self.cluster.pulls("T2"), {"a:10911": 7, "b:10911": 7})

    def test_share_of_a_topic_subscribed_later_that_comes_late_begins_at_the_subscription(self):
        times = self.answer_searches()
        self.cluster.topics.add("T2")
        self.start()
        self.clock.advance(100)
        self.refuse_member_lists()
        subscribed_ms = int(self.client.now_ms())
        self.consumer.subscribe("T2")
        self.clock.advance(100)
        self.cluster.refusals.clear()
        self.clock.advance(20)
        self.assertEqual(self.cluster.pulls("T2"), {"a:10911": 5, "b:10911": 5})
        self.assertEqual(times, [subscribed_ms - CLOCK_SKEW_SECONDS * 1000] * 2)

    def test_topic_subscribed_later_by_a_group_with_offsets_begins_at_the_first_message(self):
        self.cluster.topics.add("T2")
        self.start()
        self.cluster.offsets["a:10911", "T2"] = 40
        self.consumer.subscribe("T2")
        self.clock.advance(20)
        self.assertEqual(self.cluster.pulls("T2"), {"a:10911": 40, "b:10911": 0})

    def subscribe_during_a_rebalance(self):
        """Subscribe to T2. A rebalance ends before the brokers tell whether the group has offsets."""
        self.cluster.topics.add("T2")
        self.start()
        answer, asked = self.cluster.answer_14, []

        def hold(address, request, fields):
            asked.append((Deferred(), answer(address, request, fields)))
            return asked[-1][0]

        self.cluster.answer_14 = hold
        self.consumer.subscribe("T2")
        self.cluster.answer_14 = answer
        self.cluster.request(40, {"consumerGroup": "cg"})
        self.assertNotIn("b:10911", self.cluster.pulls("T2"))
        ((held, told),) = asked
        held.callback(told)

    def test_queue_is_not_taken_before_it_is_known_whether_the_group_has_offsets(self):
        self.cluster.offsets["a:10911", "T2"] = 40
        self.subscribe_during_a_rebalance()
        self.clock.advance(20)
        self.assertEqual(self.cluster.pulls("T2"), {"a:10911": 40, "b:10911": 0})

    def test_first_share_after_it_is_known_that_the_group_has_no_offsets_begins_at_the_end(self):
        self.subscribe_during_a_rebalance()
        self.assertEqual(self.cluster.pulls("T2"), {"a:10911": 7, "b:10911": 7})

    def test_topic_subscribed_again_keeps_the_time_of_its_first_subscription(self):
        """The offsets of the group are those of this consumer."""
        self.cluster.brokers.remove("b")
        times = self.answer_searches()
        joined_ms = int(self.client.now_ms())
        self.start()
        self.clock.advance(100)
        self.consumer.subscribe("T", "TagA")
        self.add_broker_b()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 5})
        self.assertEqual(times, [joined_ms - CLOCK_SKEW_SECONDS * 1000])

    def test_queue_given_up_and_taken_again_without_its_offset_begins_at_the_start_of_the_consumer(self):
        """The broker was killed before it wrote the offset."""
        self.answer_searches()
        self.start()
        self.cluster.brokers.remove("b")
        self.result_of(self.client.routes.refresh(["T"]))
        self.cluster.request(40, {"consumerGroup": "cg"})
        self.cluster.held = [entry for entry in self.cluster.held if entry[0] == "a:10911"]
        del self.cluster.offsets["b:10911", "T"]
        self.add_broker_b()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 5})

    def test_queue_without_an_offset_of_a_group_with_offsets_begins_at_its_first_message(self):
        """It appeared while the group was away, or its broker was killed before it wrote the offset."""
        for offset in (0, 40):
            with self.subTest(offset=offset):
                self.setUp()
                self.cluster.offsets["a:10911", "T"] = offset
                self.start()
                self.clock.advance(20)
                self.assertEqual(self.cluster.pulls(), {"a:10911": offset, "b:10911": 0})

    def test_queue_of_a_group_with_offsets_that_appears_later_begins_at_its_first_message(self):
        self.cluster.brokers.remove("b")
        self.cluster.offsets["a:10911", "T"] = 40
        self.start()
        self.clock.advance(20)
        self.add_broker_b()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 40, "b:10911": 0})

    def test_members_of_a_new_group_that_start_together_begin_at_the_end(self):
        """One of them may have stored its offsets when the other comes to take its share."""
        self.cluster.others = ("0",)
        confirm = self.cluster.answer_34

        def other_takes_its_share(address, request, fields):
            self.cluster.offsets["a:10911", "T"] = 7
            return confirm(address, request, fields)

        self.cluster.answer_34 = other_takes_its_share
        self.consumer.subscribe("T", None)
        started = Deferred.fromCoroutine(self.consumer.start())
        self.clock.advance(HANDOVER_SECONDS)
        self.successResultOf(started)
        self.assertEqual(self.cluster.pulls(), {"b:10911": 7})

    def test_queue_whose_first_offset_another_member_is_storing_is_taken_with_it(self):
        self.cluster.offsets["a:10911", "T"] = 7
        self.start()
        self.cluster.request(40, {"consumerGroup": "cg"})
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7})
        self.cluster.offsets["b:10911", "T"] = 6
        self.clock.advance(20)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 6})

    def test_broker_that_does_not_tell_its_offsets_is_named_in_a_warning(self):
        self.cluster.refusals[43, "a:10911"] = 1
        lines = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        self.start()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 7})
        (line,) = [formatEvent(line) for line in lines if line["log_level"].name == "warn"]
        self.assertIn("cannot find out whether group cg has consumed T before: a:10911 answers", line)

    def test_chosen_queues_begin_at_the_end_each(self):
        consumer = LitePullConsumerEngine(self.client, "cg", options=LitePullOptions(begin="latest"))
        self.result_of(consumer.assign([MessageQueue("T", "a", 0)]))
        self.result_of(consumer.start())
        self.result_of(consumer.assign([MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)]))
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 7})

    def test_broadcasting_consumer_begins_a_queue_that_appeared_while_it_was_away_at_its_first_message(self):
        directory = self.mktemp()
        self.cluster.brokers.remove("b")
        for wanted in ({"a:10911": 7}, {"a:10911": 7, "b:10911": 0}):
            consumer = self.make(self.take, broadcast=True, offset_directory=directory)
            consumer.subscribe("T", None)
            self.end_of(consumer.start())
            self.assertEqual(self.cluster.pulls(), wanted)
            self.end_of(consumer.stop())
            self.cluster.held.clear()
            self.cluster.brokers.append("b")
            self.result_of(self.client.routes.refresh(["T"]))


class AbsentBrokerTests(ConsumerTestCase):
    """Broker b goes away and comes back, with messages that were sent to it meanwhile."""

    begin_at = "latest"

    def setUp(self):
        super().setUp()
        self.directory = self.mktemp()

    def broadcasting(self):
        consumer = self.make(self.take, broadcast=True, offset_directory=self.directory, persist_interval=5)
        consumer.subscribe("T", None)
        self.end_of(consumer.start())
        return consumer

    def remove_broker_b(self):
        self.cluster.brokers.remove("b")
        self.look()
        self.cluster.held = [entry for entry in self.cluster.held if entry[0] == "a:10911"]

    def look(self):
        self.result_of(self.client.routes.refresh(["T"]))
        self.clock.advance(20)

    def test_broadcasting_consumer_continues_behind_its_last_message(self):
        for stores in (False, True):
            with self.subTest(stores=stores):
                self.setUp()
                self.broadcasting()
                self.cluster.deliver("b:10911", [(b"one", "")], 7)
                self.remove_broker_b()
                if stores:
                    self.clock.advance(5)
                    self.clock.run_call()
                self.cluster.brokers.append("b")
                self.look()
                self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 8})

    def test_broadcasting_consumer_continues_behind_its_last_message_after_its_restart(self):
        consumer = self.broadcasting()
        self.cluster.deliver("b:10911", [(b"one", "")], 7)
        self.remove_broker_b()
        self.end_of(consumer.stop())
        self.cluster.held.clear()
        self.end_of(self.broadcasting().stop())
        self.cluster.held.clear()
        self.cluster.brokers.append("b")
        self.result_of(self.client.routes.refresh(["T"]))
        self.broadcasting()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 7, "b:10911": 8})


class RemadeTopicTests(ConsumerTestCase):
    """A topic is deleted and recreated while its consumer runs, or its last messages are lost."""

    def setUp(self):
        super().setUp()
        self.times = self.answer_searches()
        self.cluster.brokers.remove("b")
        self.cluster.offsets["a:10911", "T"] = 10

    def answer_pull(self, code, fields=None):
        entry = self.cluster.pull_of("a:10911")
        self.cluster.held.remove(entry)
        entry[2].callback(RemotingCommand.response(code, "because", fields))

    def move(self, offset, end):
        """Refuse the offset of the waiting pull."""
        header = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": str(end), "nextBeginOffset": str(offset)}
        self.answer_pull(21, header)

    def test_queue_that_ends_before_pulled_messages_continues_at_the_first_younger_one(self):
        self.start()
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 10)
        self.move(9, end=9)
        self.assertEqual(self.times, [0])  # the store time of the messages
        self.assertEqual(self.cluster.pulls(), {"a:10911": 5})
        self.clock.advance(5)
        self.assertEqual(self.cluster.offsets["a:10911", "T"], 5)

    def test_polled_queue_that_ends_before_pulled_messages_continues_at_the_first_younger_one(self):
        consumer = LitePullConsumerEngine(self.client, "cg")
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.cluster.deliver("a:10911", [(b"one", "")], 10)
        self.move(9, end=9)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 5})
        self.assertEqual([message.body for message in self.result_of(consumer.poll(0))], [b"one"])

    def test_queue_that_ends_before_a_message_never_pulled_continues_where_the_broker_says(self):
        self.start()
        self.move(9, end=9)
        self.assertEqual((self.times, self.cluster.pulls()), ([], {"a:10911": 9}))

    def test_offset_of_expired_messages_continues_where_the_broker_says(self):
        self.start()
        self.cluster.deliver("a:10911", [(b"one", "")], 10)
        self.move(40, end=50)
        self.assertEqual((self.times, self.cluster.pulls()), ([], {"a:10911": 40}))

    def test_failed_search_is_repeated(self):
        self.start()
        self.cluster.deliver("a:10911", [(b"one", "")], 10)
        self.cluster.refusals[29, "a:10911"] = 1
        self.move(9, end=9)
        self.assertEqual(self.cluster.pulls(), {})
        self.cluster.refusals.clear()
        self.clock.advance(1)
        self.move(9, end=9)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 5})

    def remake(self):
        """Delete the topic with its offsets, and make it again after a while."""
        self.answer_pull(17)
        del self.cluster.offsets["a:10911", "T"]
        self.clock.advance(10)
        self.assertEqual((self.cluster.pulls(), self.cluster.offsets), ({}, {}))
        self.clock.advance(10)

    def test_deleted_topic_begins_anew_when_it_is_made_again(self):
        """Also if it is longer then than the old offset."""
        for begin in ("earliest", "latest"):
            with self.subTest(begin=begin):
                self.begin_at = begin
                self.setUp()
                self.start()
                self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 10)
                self.remake()
                self.assertEqual(self.cluster.pulls(), {"a:10911": 0})
                self.assertEqual([queue.topic for queue in self.consumer.queues()], ["T"])

    def test_deleted_topic_of_polled_consumer_begins_anew(self):
        consumer = LitePullConsumerEngine(self.client, "cg", options=LitePullOptions(begin="latest"))
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.cluster.deliver("a:10911", [(b"one", "")], 10)
        self.result_of(consumer.poll(0))
        self.result_of(consumer.poll(0))
        self.remake()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 0})

    def test_deleted_topic_of_broadcasting_consumer_begins_anew(self):
        consumer = self.make(self.take, broadcast=True, offset_directory=self.mktemp())
        consumer.subscribe("T", None)
        self.end_of(consumer.start())
        self.cluster.deliver("a:10911", [(b"one", ""), (b"two", "")], 0)
        self.remake()
        self.assertEqual(self.cluster.pulls(), {"a:10911": 0})

    def test_slave_without_the_topic_is_asked_again(self):
        self.cluster.slaves["a"] = {1: "a-slave:10911"}
        self.start()
        self.cluster.deliver("a:10911", [(b"one", "")], 10, broker_id=1)
        entry = self.cluster.pull_of("a-slave:10911")
        self.cluster.held.remove(entry)
        entry[2].callback(RemotingCommand.response(17, "because"))
        self.clock.advance(1)
        self.assertEqual(self.cluster.pulls(), {"a-slave:10911": 11})


def found(offset, stored_ms):
    """The answer to a pull of one message."""
    message = MessageInner("T", 0, 0, 0, 0, HOST, 0, 0, b"", b"", 0)
    header = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "9", "nextBeginOffset": str(offset + 1)}
    return RemotingCommand.response(0, ext_fields=header, body=encode_record(message, HOST, offset, offset, stored_ms))


class MomentTests(ConsumerTestCase):
    begin_at = datetime(2026, 1, 1, tzinfo=UTC)

    def test_moment_amid_messages_of_one_time_begins_at_first_of_them(self):
        """Apache's broker names any of them, here 5."""
        self.cluster.brokers = ["a"]
        self.result_of(self.client.routes.subscribe_queues("T"))
        moment_ms = int(self.begin_at.timestamp() * 1000)
        for first in range(6):
            asked = []

            def answer_11(address, request, fields, first=first, asked=asked):
                offset = int(fields["queueOffset"])
                asked.append(offset)
                return found(offset, moment_ms if offset >= first else moment_ms - 1)

            self.cluster.answer_11 = answer_11
            search = first_since(self.client, "cg", MessageQueue("T", "a", 0), moment_ms)
            self.assertEqual(self.result_of(search), first)
            self.assertLessEqual(len(asked), 5, asked)

    def test_new_group_begins_at_the_first_message_since_a_moment(self):
        """The broker names 5, which is the nearest one: it is asked whether that is before or after."""
        self.consumer.subscribe("T")
        started = Deferred.fromCoroutine(self.consumer.start())
        self.cluster.deliver("a:10911", [(b"before", "")], 5)
        found_nothing = dict.fromkeys(("suggestWhichBrokerId", "minOffset", "maxOffset", "nextBeginOffset"), "0")
        for address, offset in (("a:10911", "6"), ("b:10911", "5")):
            _, fields, held = self.cluster.pull_of(address)
            self.assertEqual((fields["queueOffset"], fields["maxMsgNums"]), (offset, "1"))
            held.callback(RemotingCommand.response(19, ext_fields=found_nothing))
        self.successResultOf(started)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 6, "b:10911": 5})
        self.assertEqual(self.cluster.offsets, {("a:10911", "T"): 6, ("b:10911", "T"): 5})
        self.assertEqual(self.got, [])

    def test_queue_whose_message_next_to_the_moment_is_damaged_begins_there(self):
        self.consumer.subscribe("T")
        started = Deferred.fromCoroutine(self.consumer.start())
        for address in ("a:10911", "b:10911"):
            self.cluster.deliver(address, [(b"before", "")], 5, damaged=[0])
        self.successResultOf(started)
        self.assertEqual(self.cluster.pulls(), {"a:10911": 5, "b:10911": 5})
