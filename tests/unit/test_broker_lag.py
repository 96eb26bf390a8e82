"""How far groups are behind: in messages they want and in time, online and offline, and what is remembered between."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker import lag_counter
from rocketd.broker.clients import ClientChannelInfo
from rocketd.broker.lag_counter import LagCounter
from rocketd.broker.last_subscriptions import LastSubscriptions, LastSubscriptionWrapper, Wanted
from rocketd.broker.processors.lag import LagProcessor
from rocketd.broker.pull_check import TagFilter
from rocketd.broker.subscriptions import build_subscription
from rocketd.broker.testing import BORN_HOST, RecordingConnection, SmallBroker
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies import ConsumerData, MessageModel, SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.lag_bodies import ConsumerLag, QueueLag, TopicFilter
from rocketd.store.message import MessageInner


class LagTestCase(SynchronousTestCase):
    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())
        self.open()
        self.addCleanup(lambda: self.broker.stop())
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.broker.groups.update(SubscriptionGroupConfig("G"))
        self.connection = RecordingConnection("127.0.0.1:5000")

    def open(self, clock=None):
        self.broker = SmallBroker(self.directory, clock)
        self.broker.start()
        self.processor = LagProcessor(self.broker)

    def put(self, *tags, topic="T", queue_id=0, **properties):
        """Store a message for each tag, a second apart."""
        for tag in tags:
            table = {"TAGS": tag, **properties} if tag else properties
            text = "\x02".join(f"{name}\x01{value}" for name, value in table.items()).encode()
            code = java_string_hash(tag) if tag else 0
            message = MessageInner(topic, queue_id, 0, 0, 0, BORN_HOST, 0, 0, b"x", text, code)
            self.broker.store.put_messages([message])
            self.broker.clock.advance(1)
        self.broker.settle()

    def join(self, expression="*", kind="TAG", topic="T", model=MessageModel.CLUSTERING, connection=None):
        subscription = build_subscription(topic, expression, kind)
        subscription.sub_version = self.broker.now_ms()
        client = ClientChannelInfo(connection or self.connection, "c", 0, 407, self.broker.now_ms())
        data = ConsumerData("G", subscription_data_set=[subscription], message_model=model)
        self.broker.consumers.register(client, data, notify=False)
        self.broker.filters.register_group("G", data.subscription_data_set)
        self.broker.last_subscriptions.note()

    def leave(self):
        self.broker.consumers.unregister("G", self.connection, notify=False)
        self.assertIsNone(self.broker.consumers.find("G"))

    def commit(self, offset, queue_id=0, topic="T"):
        self.broker.offsets.commit("h:1", "G", topic, queue_id, offset)

    def lag(self, group="G", **more):
        answer = self.processor.process(RemotingCommand(30002, {"consumerGroup": group, **more}), None)
        self.assertEqual((answer.code, answer.remark), (0, None))
        return ConsumerLag.decode(answer.body)

    def first_queue(self):
        """Messages, delay in seconds, and whether it is exact, in queue 0."""
        queue = self.lag().queues[0]
        return queue.messages, queue.delay_millis / 1000, queue.exact

    def refused(self, **fields):
        error = self.assertRaises(RequestError, self.processor.process, RemotingCommand(30002, fields), None)
        return error.code, error.remark


class OnlineTests(LagTestCase):
    def test_interface(self):
        verifyObject(IRequestProcessor, self.processor)

    def test_nothing_was_stored(self):
        self.join()
        self.assertEqual(
            self.lag(),
            ConsumerLag(
                "G",
                online=True,
                message_model=MessageModel.CLUSTERING,
                filters={"T": TopicFilter("TAG", "*", current=True)},
                queues=[QueueLag("T", 0), QueueLag("T", 1)],
            ),
        )

    def test_messages_and_the_age_of_the_first(self):
        self.join()
        self.put("A", "B", "C", "")
        self.put("A", queue_id=1)
        self.commit(1)
        self.commit(1, queue_id=1)
        lag = self.lag()
        self.assertEqual(lag.queues[0], QueueLag("T", 0, 0, 4, 1, 3, 4000))
        self.assertEqual(lag.queues[1], QueueLag("T", 1, 0, 1, 1, 0, 0))
        self.assertEqual((lag.total_messages, lag.max_delay_millis), (3, 4000))

    def test_without_an_offset_it_is_behind_by_all_that_is_there(self):
        self.join()
        self.put("A", "B", "C")
        self.assertEqual(self.lag().queues[0], QueueLag("T", 0, 0, 3, -1, 3, 3000))

    def test_what_has_expired_is_no_lag(self):
        self.join()
        self.put("A", "B", "C")
        self.commit(0)
        self.broker.store.get_min_offset = lambda topic, queue_id: 2 if queue_id == 0 else 0
        self.assertEqual(self.lag().queues[0], QueueLag("T", 0, 2, 3, 0, 1, 1000))

    def test_an_offset_beyond_the_end_is_no_negative_lag(self):
        self.join()
        self.put("A")
        self.commit(7)
        self.assertEqual(self.first_queue(), (0, 0, True))

    def test_a_clock_that_was_set_back_gives_no_negative_delay(self):
        self.join()
        self.put("A")
        self.broker.clock.rightNow -= 3600
        self.assertEqual(self.first_queue(), (1, 0, True))

    def test_only_tags_that_are_wanted_count(self):
        self.join("B || C")
        self.put("A", "B", "", "C", "A")
        self.assertEqual(self.first_queue(), (2, 4, True))
        self.commit(2)
        self.assertEqual(self.first_queue(), (1, 2, True))
        self.commit(4)
        self.assertEqual(self.first_queue(), (0, 0, True))

    def test_an_expression_is_judged_by_the_properties(self):
        self.join("a > 2", kind="SQL92")
        self.put("x", a=1)
        self.put("x", "x", a=3)
        self.put("x", a=2)
        self.assertEqual(self.first_queue(), (2, 3, True))
        self.assertEqual(self.lag().filters, {"T": TopicFilter("SQL92", "a > 2", current=True)})

    def test_a_changed_subscription_is_counted_anew(self):
        self.join("A")
        self.put("A", "B", "B")
        self.assertEqual(self.first_queue(), (1, 3, True))
        self.broker.clock.advance(1)
        self.join("B")
        self.assertEqual(self.first_queue(), (2, 3, True))

    def test_one_topic_only(self):
        self.broker.topics.update(TopicConfig("U", 1, 1))
        self.join()
        self.put("A", topic="U")
        self.commit(0, topic="U")
        self.assertEqual({queue.topic for queue in self.lag().queues}, {"T"})
        lag = self.lag(topic="U")
        self.assertEqual([(queue.topic, queue.messages) for queue in lag.queues], [("U", 1)])
        self.assertEqual(lag.filters, {})

    def test_who_broadcasts_keeps_the_offsets(self):
        self.join(model=MessageModel.BROADCASTING)
        code, remark = self.refused(consumerGroup="G")
        self.assertEqual(code, 1)
        self.assertIn("BROADCASTING", remark)

    def test_what_does_not_exist(self):
        self.assertEqual(self.refused(consumerGroup="None")[0], 26)
        self.assertEqual(self.refused(consumerGroup="G", topic="None"), (17, "topic[None] not exist"))
        self.assertEqual(self.refused(consumerGroup="None", topic="T")[0], 26)
        self.assertEqual(self.lag().queues, [])


class OfflineTests(LagTestCase):
    def test_tags_are_remembered(self):
        self.join("B")
        self.put("A", "B", "B")
        self.commit(1)
        self.leave()
        lag = self.lag()
        self.assertFalse(lag.online)
        self.assertEqual(lag.filters, {"T": TopicFilter("TAG", "B", current=False)})
        self.assertEqual(self.first_queue(), (2, 2, True))

    def test_after_a_restart_too(self):
        self.join("B")
        self.put("A", "B", "B")
        self.commit(1)
        self.broker.stop()
        self.open(self.broker.clock)
        self.broker.last_subscriptions.load()
        self.assertEqual(self.first_queue(), (2, 2, True))

    def test_an_expression_too(self):
        self.join("a > 2", kind="SQL92")
        self.put("x", a=1)
        self.put("x", a=3)
        self.leave()
        self.assertEqual(self.first_queue(), (1, 1, True))

    def test_a_group_that_was_never_seen_wants_all(self):
        self.put("A", "B")
        self.commit(0)
        self.assertEqual(self.first_queue(), (2, 2, True))
        self.assertEqual(self.lag().filters, {})


class LastSubscriptionsTests(LagTestCase):
    def wanted(self):
        return self.broker.last_subscriptions.find("G", "T")

    def test_the_latest_counts(self):
        self.join("A")
        self.broker.clock.advance(1)
        self.join("B")
        self.assertEqual(self.wanted(), Wanted("TAG", "B"))

    def test_who_comes_is_seen_at_once(self):
        client = ClientChannelInfo(self.connection, "c", 0, 407, self.broker.now_ms())
        data = ConsumerData("G", subscription_data_set=[build_subscription("T", "A || B")])
        self.broker.consumers.register(client, data, notify=True)
        self.leave()
        self.assertEqual(self.wanted(), Wanted("TAG", "A || B"))
        self.broker.last_subscriptions.note()
        stored = self.broker.json_file("lastSubscription", LastSubscriptionWrapper).load()
        self.assertEqual(stored, LastSubscriptionWrapper({"G": {"T": Wanted("TAG", "A || B")}}))

    def test_a_deleted_group_is_forgotten(self):
        self.join("A")
        self.leave()
        self.broker.last_subscriptions.note()
        self.assertEqual(self.wanted(), Wanted("TAG", "A"))
        self.broker.groups.delete("G")
        self.broker.last_subscriptions.note()
        self.assertIsNone(self.wanted())

    def test_a_file_that_cannot_be_read_is_done_without(self):
        file = self.broker.json_file("lastSubscription", LastSubscriptionWrapper)
        os.makedirs(os.path.dirname(file.path), exist_ok=True)
        with open(file.path, "wb") as damaged:
            damaged.write(b"{")
        last = LastSubscriptions(self.broker, file)
        last.load()
        self.assertIsNone(last.find("G", "T"))

    def test_a_file_that_cannot_be_written_is_done_without(self):
        path = os.path.join(self.directory, "config", "lastSubscription.json.tmp")
        os.makedirs(path)
        self.join("A")
        self.assertEqual(self.wanted(), Wanted("TAG", "A"))


class CountingTests(LagTestCase):
    """Counting again looks at what came and what went, and finds the same as counting anew."""

    def setUp(self):
        super().setUp()
        self.looked = 0
        entries = self.broker.store.queue_entries

        def counted(topic, queue_id, offset, limit):
            found = entries(topic, queue_id, offset, limit)
            self.looked += len(found)
            return found

        self.broker.store.queue_entries = counted
        self.counter = LagCounter(self.broker.store, pause=lambda seconds: None)
        self.patch(lag_counter, "_CHUNK", 3)
        self.wanted = TagFilter(frozenset({java_string_hash("B")}))

    def count(self, begin, end, counter=None, key="B"):
        """How many, where the first is, how many entries were looked at."""
        self.looked = 0
        found = (counter or self.counter).count("G", "T", 0, begin, end, self.wanted, key)
        self.assertEqual((found.begin, found.end), (begin, end))
        return found.number, found.first, self.looked

    def test_moves(self):
        self.put(*"ABBAABAAAABBAAAAAAAB")
        self.assertEqual(self.count(0, 12), (5, 1, 12))
        fresh = LagCounter(self.broker.store, pause=lambda seconds: None)
        for begin, end in ((0, 12), (2, 13), (3, 13), (6, 20), (12, 20), (19, 20), (20, 20)):
            number, first, looked = self.count(begin, end)
            self.assertEqual((number, first), self.count(begin, end, fresh, key=(begin, end))[:2], (begin, end))
            if end < 20:
                self.assertLess(looked, end - begin, (begin, end))

    def test_another_filter_is_counted_anew(self):
        self.put(*"ABBA")
        self.assertEqual(self.count(0, 4), (2, 1, 4))
        self.wanted = TagFilter(frozenset({java_string_hash("A")}))
        self.assertEqual(self.count(0, 4, key="A"), (2, 0, 4))

    def test_a_topic_that_was_made_again_is_counted_anew(self):
        self.put(*"ABBA")
        self.assertEqual(self.count(0, 4)[:2], (2, 1))
        self.broker.store.delete_topic("T")
        self.put(*"BAAAA")
        self.assertEqual(self.count(0, 5)[:2], (1, 0))

    def test_offsets_that_went_back_are_counted_anew(self):
        self.put(*"ABBA")
        self.assertEqual(self.count(2, 4)[:2], (1, 2))
        self.assertEqual(self.count(0, 4)[:2], (2, 1))

    def test_when_the_budget_ends_the_rest_counts_as_wanted(self):
        self.put(*"ABBAAAAAAA")
        self.patch(lag_counter, "BUDGET", 6)
        self.counter.begin_question()
        found = self.counter.count("G", "T", 0, 0, 10, self.wanted, "B")
        self.assertEqual((found.number, found.first, found.exact), (2 + 4, 1, False))
        self.counter.begin_question()
        self.assertEqual(self.count(0, 6)[0], 2)
        self.patch(lag_counter, "BUDGET", 2)
        self.counter.begin_question()
        found = self.counter.count("G", "T", 0, 0, 10, self.wanted, "B")
        self.assertEqual((found.number, found.first, found.exact), (10, 0, False))


class Queue:
    """Entries of a queue in memory, of tags 0 to 2; files may go from its beginning, and all of it may be made anew."""

    def __init__(self):
        self.entries = []
        self.min_offset = 0
        self.physical = 0

    def put(self, tags):
        for tag in tags:
            self.entries.append((self.physical, 100, tag))
            self.physical += 100

    def queue_entries(self, topic, queue_id, offset, limit):
        if offset < self.min_offset:
            return []
        # As if a file ended after every seven entries.
        return self.entries[offset : min(offset + limit, (offset // 7 + 1) * 7)]

    def get_min_offset(self, topic, queue_id):
        return self.min_offset


class ModelTests(SynchronousTestCase):
    STEPS = st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.lists(st.integers(0, 2), max_size=20)),
            st.tuples(st.just("consume"), st.integers(0, 20)),
            st.tuples(st.just("go back"), st.integers(0, 20)),
            st.tuples(st.just("expire"), st.integers(0, 20)),
            st.tuples(st.just("make anew"), st.lists(st.integers(0, 2), max_size=20)),
        ),
        max_size=20,
    )

    @settings(max_examples=200, deadline=None)
    @given(STEPS)
    def test_counting_again_finds_what_counting_anew_does(self, steps):
        queue, consumed = Queue(), 0
        counter = LagCounter(queue, pause=lambda seconds: None)
        wanted = TagFilter(frozenset({1}))
        for step, value in steps:
            if step == "put":
                queue.put(value)
            elif step == "consume":
                consumed = min(consumed + value, len(queue.entries))
            elif step == "go back":
                consumed = max(consumed - value, 0)
            elif step == "expire":
                queue.min_offset = min(queue.min_offset + value, len(queue.entries))
            else:
                queue.entries.clear()
                queue.min_offset = consumed = 0
                queue.put(value)
            begin, end = max(consumed, queue.min_offset), len(queue.entries)
            hits = [offset for offset in range(begin, end) if queue.entries[offset][2] == 1]
            found = counter.count("G", "T", 0, begin, end, wanted, "B")
            self.assertEqual((found.number, found.first), (len(hits), hits[0] if hits else end))
