"""Lag of groups in subscribed messages and in time, online and offline; remembered subscriptions."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.clients.last_subscriptions import GroupSubscription, LastSubscriptions, LastSubscriptionWrapper
from rocketd.broker.lag import counter as lag_counter
from rocketd.broker.lag.counter import LagCounter
from rocketd.broker.lag.processor import LagProcessor
from rocketd.broker.pull.pull_check import TagFilter
from rocketd.broker.tables.filters.subscriptions import build_subscription
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies.lag import ConsumerLag, QueueLag, TopicFilter
from rocketd.remoting.bodies.tables import ConsumerData, MessageModel, SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker
from tests.support.examples import examples


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
    def test_lag_of_topic_deleted_during_request_has_no_queues(self):
        self.put("A")
        self.commit(0)
        lag = self.processor._lag
        filter_of = lag._filter_of
        self.patch(lag, "_filter_of", lambda *each: (self.broker.topics.delete("T"), filter_of(*each))[1])
        self.assertEqual(self.lag().queues, [])

    def test_interface(self):
        verifyObject(IRequestProcessor, self.processor)

    def test_lag_of_empty_topic_is_zero(self):
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

    def test_lag_is_message_count_and_age_of_first(self):
        self.join()
        self.put("A", "B", "C", "")
        self.put("A", queue_id=1)
        self.commit(1)
        self.commit(1, queue_id=1)
        lag = self.lag()
        self.assertEqual(lag.queues[0], QueueLag("T", 0, 0, 4, 1, 3, 4000))
        self.assertEqual(lag.queues[1], QueueLag("T", 1, 0, 1, 1, 0, 0))
        self.assertEqual((lag.total_messages, lag.max_delay_millis), (3, 4000))

    def test_lag_without_offset_is_all_messages(self):
        self.join()
        self.put("A", "B", "C")
        self.assertEqual(self.lag().queues[0], QueueLag("T", 0, 0, 3, -1, 3, 3000))

    def test_expired_messages_are_not_lag(self):
        self.join()
        self.put("A", "B", "C")
        self.commit(0)
        self.broker.store.get_min_offset = lambda topic, queue_id: 2 if queue_id == 0 else 0
        self.assertEqual(self.lag().queues[0], QueueLag("T", 0, 2, 3, 0, 1, 1000))

    def test_offset_beyond_end_is_lag_zero(self):
        self.join()
        self.put("A")
        self.commit(7)
        self.assertEqual(self.first_queue(), (0, 0, True))

    def test_clock_set_back_gives_no_negative_delay(self):
        self.join()
        self.put("A")
        self.broker.clock.rightNow -= 3600
        self.assertEqual(self.first_queue(), (1, 0, True))

    def test_lag_counts_subscribed_tags_only(self):
        self.join("B || C")
        self.put("A", "B", "", "C", "A")
        self.assertEqual(self.first_queue(), (2, 4, True))
        self.commit(2)
        self.assertEqual(self.first_queue(), (1, 2, True))
        self.commit(4)
        self.assertEqual(self.first_queue(), (0, 0, True))

    def test_lag_of_sql_subscription_uses_properties(self):
        self.join("a > 2", kind="SQL92")
        self.put("x", a=1)
        self.put("x", "x", a=3)
        self.put("x", a=2)
        self.assertEqual(self.first_queue(), (2, 3, True))
        self.assertEqual(self.lag().filters, {"T": TopicFilter("SQL92", "a > 2", current=True)})

    def test_changed_subscription_is_recounted(self):
        self.join("A")
        self.put("A", "B", "B")
        self.assertEqual(self.first_queue(), (1, 3, True))
        self.broker.clock.advance(1)
        self.join("B")
        self.assertEqual(self.first_queue(), (2, 3, True))

    def test_lag_of_named_topic_only(self):
        self.broker.topics.update(TopicConfig("U", 1, 1))
        self.join()
        self.put("A", topic="U")
        self.commit(0, topic="U")
        self.assertEqual({queue.topic for queue in self.lag().queues}, {"T"})
        lag = self.lag(topic="U")
        self.assertEqual([(queue.topic, queue.messages) for queue in lag.queues], [("U", 1)])
        self.assertEqual(lag.filters, {})

    def test_lag_of_broadcasting_group_is_refused(self):
        self.join(model=MessageModel.BROADCASTING)
        code, remark = self.refused(consumerGroup="G")
        self.assertEqual(code, 1)
        self.assertIn("BROADCASTING", remark)

    def test_lag_of_unknown_group_or_topic_is_refused(self):
        self.assertEqual(self.refused(consumerGroup="None")[0], 26)
        self.assertEqual(self.refused(consumerGroup="G", topic="None"), (17, "topic[None] not exist"))
        self.assertEqual(self.refused(consumerGroup="None", topic="T")[0], 26)
        self.assertEqual(self.lag().queues, [])


class OfflineTests(LagTestCase):
    def test_tags_of_offline_group_are_remembered(self):
        self.join("B")
        self.put("A", "B", "B")
        self.commit(1)
        self.leave()
        lag = self.lag()
        self.assertFalse(lag.online)
        self.assertEqual(lag.filters, {"T": TopicFilter("TAG", "B", current=False)})
        self.assertEqual(self.first_queue(), (2, 2, True))

    def test_tags_of_offline_group_survive_restart(self):
        self.join("B")
        self.put("A", "B", "B")
        self.commit(1)
        self.broker.stop()
        self.open(self.broker.clock)
        self.broker.last_subscriptions.load()
        self.assertEqual(self.first_queue(), (2, 2, True))

    def test_expression_of_offline_group_is_remembered(self):
        self.join("a > 2", kind="SQL92")
        self.put("x", a=1)
        self.put("x", a=3)
        self.leave()
        self.assertEqual(self.first_queue(), (1, 1, True))

    def test_lag_of_unseen_group_counts_all_messages(self):
        self.put("A", "B")
        self.commit(0)
        self.assertEqual(self.first_queue(), (2, 2, True))
        self.assertEqual(self.lag().filters, {})


class LastSubscriptionsTests(LagTestCase):
    def wanted(self):
        return self.broker.last_subscriptions.find("G", "T")

    def test_latest_subscription_is_remembered(self):
        self.join("A")
        self.broker.clock.advance(1)
        self.join("B")
        self.assertEqual(self.wanted(), GroupSubscription("TAG", "B"))

    def test_registration_is_remembered_at_once(self):
        client = ClientChannelInfo(self.connection, "c", 0, 407, self.broker.now_ms())
        data = ConsumerData("G", subscription_data_set=[build_subscription("T", "A || B")])
        self.broker.consumers.register(client, data, notify=True)
        self.leave()
        self.assertEqual(self.wanted(), GroupSubscription("TAG", "A || B"))
        self.broker.last_subscriptions.note()
        stored = self.broker.json_file("lastSubscription", LastSubscriptionWrapper).load()
        self.assertEqual(stored, LastSubscriptionWrapper({"G": {"T": GroupSubscription("TAG", "A || B")}}))

    def test_deleted_group_is_forgotten(self):
        self.join("A")
        self.leave()
        self.broker.last_subscriptions.note()
        self.assertEqual(self.wanted(), GroupSubscription("TAG", "A"))
        self.broker.groups.delete("G")
        self.broker.last_subscriptions.note()
        self.assertIsNone(self.wanted())

    def test_unreadable_subscriptions_file_is_ignored(self):
        file = self.broker.json_file("lastSubscription", LastSubscriptionWrapper)
        os.makedirs(os.path.dirname(file.path), exist_ok=True)
        with open(file.path, "wb") as damaged:
            damaged.write(b"{")
        last = LastSubscriptions(self.broker.groups, self.broker.consumers, file)
        last.load()
        self.assertIsNone(last.find("G", "T"))

    def test_unwritable_subscriptions_file_is_ignored(self):
        path = os.path.join(self.directory, "config", "lastSubscription.json.tmp")
        os.makedirs(path)
        self.join("A")
        self.assertEqual(self.wanted(), GroupSubscription("TAG", "A"))


class CountingTests(LagTestCase):
    """An incremental count visits changed entries only, and equals a fresh count."""

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
        """The number of messages, the offset of the first, the number of visited entries."""
        self.looked = 0
        found = (counter or self.counter).count("G", "T", 0, begin, end, self.wanted, key)
        self.assertEqual((found.begin, found.end), (begin, end))
        return found.number, found.first, self.looked

    def test_moved_range_is_counted_incrementally(self):
        self.put(*"ABBAABAAAABBAAAAAAAB")
        self.assertEqual(self.count(0, 12), (5, 1, 12))
        fresh = LagCounter(self.broker.store, pause=lambda seconds: None)
        for begin, end in ((0, 12), (2, 13), (3, 13), (6, 20), (12, 20), (19, 20), (20, 20)):
            number, first, looked = self.count(begin, end)
            self.assertEqual((number, first), self.count(begin, end, fresh, key=(begin, end))[:2], (begin, end))
            if end < 20:
                self.assertLess(looked, end - begin, (begin, end))

    def test_changed_filter_is_recounted(self):
        self.put(*"ABBA")
        self.assertEqual(self.count(0, 4), (2, 1, 4))
        self.wanted = TagFilter(frozenset({java_string_hash("A")}))
        self.assertEqual(self.count(0, 4, key="A"), (2, 0, 4))

    def test_recreated_topic_is_recounted(self):
        self.put(*"ABBA")
        self.assertEqual(self.count(0, 4)[:2], (2, 1))
        self.broker.store.delete_topic("T")
        self.put(*"BAAAA")
        self.assertEqual(self.count(0, 5)[:2], (1, 0))

    def test_decreased_offset_is_recounted(self):
        self.put(*"ABBA")
        self.assertEqual(self.count(2, 4)[:2], (1, 2))
        self.assertEqual(self.count(0, 4)[:2], (2, 1))

    def test_entries_beyond_budget_count_as_wanted(self):
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
    """Entries of a queue in memory, of tags 0 to 2; files may go from its beginning, and all of it may be recreated."""

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

    @settings(max_examples=examples(200), deadline=None)
    @given(STEPS)
    def test_incremental_count_equals_fresh_count(self, steps):
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
