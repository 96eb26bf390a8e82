from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.clients import consumers as consumers_module
from rocketd.broker.clients.broker_to_client import BrokerToClient
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.clients.consumers import ConsumerManager
from rocketd.broker.clients.producers import ProducerManager
from rocketd.broker.tables.filters.subscriptions import SubscriptionError, build_subscription
from rocketd.remoting.bodies.tables import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.wire.codes import LanguageCode, RequestCode


@implementer(IConnection)
class MemoryConnection:
    def __init__(self, name="c"):
        self.address = f"10.0.0.1:{sum(name.encode())}"
        self.host = b"\x0a\x00\x00\x01\x00\x00\x00\x01"
        self.closed = False
        self.sent = []

    def send(self, command):
        self.sent.append(command)

    def close(self):
        self.closed = True


def consumer(group="G", topics=("T",), version=1, expression="*"):
    return ConsumerData(
        group,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        [SubscriptionData(topic, expression, sub_version=version) for topic in topics],
    )


class CountingDict(dict):
    """Counts the iterations over the whole dict."""

    passes = 0

    def items(self):
        self.passes += 1
        return super().items()

    def values(self):
        self.passes += 1
        return super().values()


class ClientsTestCase(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()

    def now_ms(self):
        return int(self.clock.seconds() * 1000)

    def client(self, connection, client_id=None):
        name = client_id or f"id-{connection.address}"
        return ClientChannelInfo(connection, name, LanguageCode.JAVA, 407, self.now_ms())


class ConsumerManagerTests(ClientsTestCase):
    def setUp(self):
        super().setUp()
        self.consumers = ConsumerManager(self.now_ms)
        self.events = []
        self.consumers.on_ids_changed(lambda group, members: self.events.append((group, list(members))))
        self.a = MemoryConnection("a")
        self.b = MemoryConnection("b")

    def register(self, connection, data=None, notify=True, client_id=None):
        return self.consumers.register(self.client(connection, client_id), data or consumer(), notify)

    def take_events(self):
        events, self.events[:] = list(self.events), []
        return events

    def test_new_member_notifies_all_members(self):
        self.assertTrue(self.register(self.a))
        self.assertEqual(self.take_events(), [("G", [self.a])])
        self.assertTrue(self.register(self.b))
        self.assertEqual(self.take_events(), [("G", [self.a, self.b])])

    def test_repeated_heartbeat_is_not_a_change(self):
        self.register(self.a)
        self.take_events()
        self.assertFalse(self.register(self.a))
        self.assertEqual(self.take_events(), [])

    def test_group_without_notifications_gets_none(self):
        self.assertTrue(self.register(self.a, notify=False))
        self.consumers.unregister("G", self.a, notify=False)
        self.assertEqual(self.take_events(), [])

    def test_departure_of_last_member_is_reported_once(self):
        gone = []
        self.consumers.on_group_gone(gone.append)
        self.register(self.a)
        self.register(self.b)
        self.consumers.unregister("G", self.a, notify=False)
        self.assertEqual(gone, [])
        self.consumers.connection_closed(self.b)
        self.consumers.unregister("G", self.b, notify=False)
        self.assertEqual(gone, ["G"])
        self.register(self.a)
        self.clock.advance(1000)
        self.consumers.scan_not_active()
        self.assertEqual(gone, ["G", "G"])

    def test_topics_added_and_removed_are_changes(self):
        self.register(self.a)
        self.assertTrue(self.register(self.a, consumer(topics=("T", "U"))))
        self.assertEqual(self.consumers.groups_of_topic("U"), {"G"})
        self.assertTrue(self.register(self.a, consumer(topics=("U",))))
        self.assertIsNone(self.consumers.find("G").find_subscription("T"))
        self.assertEqual(len(self.take_events()), 3)

    def test_only_newer_subscription_replaces_older(self):
        self.register(self.a, consumer(version=5, expression="A"))
        self.assertFalse(self.register(self.a, consumer(version=4, expression="B")))
        self.assertEqual(self.consumers.find("G").find_subscription("T").sub_string, "A")
        self.assertFalse(self.register(self.a, consumer(version=6, expression="C")))
        self.assertEqual(self.consumers.find("G").find_subscription("T").sub_string, "C")

    def test_group_properties_come_from_last_heartbeat(self):
        self.register(self.a)
        data = consumer()
        data.message_model = MessageModel.BROADCASTING
        self.register(self.b, data)
        info = self.consumers.find("G")
        self.assertEqual(info.message_model, MessageModel.BROADCASTING)
        self.assertEqual(info.consume_type, ConsumeType.CONSUME_PASSIVELY)

    def test_unregister_notifies_other_members(self):
        self.register(self.a)
        self.register(self.b)
        self.take_events()
        self.consumers.unregister("G", self.a, notify=True)
        self.assertEqual(self.take_events(), [("G", [self.b])])
        self.consumers.unregister("G", self.b, notify=True)
        self.assertIsNone(self.consumers.find("G"))
        self.consumers.unregister("G", self.b, notify=True)
        self.assertEqual(self.take_events(), [("G", [])])

    def test_closed_connection_leaves_all_its_groups(self):
        for group in ("G", "H"):
            self.register(self.a, consumer(group))
            self.register(self.b, consumer(group))
        self.register(self.a, consumer("Only"))
        self.take_events()
        self.consumers.connection_closed(self.a)
        self.assertEqual(self.take_events(), [("G", [self.b]), ("H", [self.b]), ("Only", [])])
        self.consumers.connection_closed(self.a)
        self.assertEqual(self.take_events(), [])

    def test_consumer_heartbeat_after_close_is_ignored(self):
        self.a.closed = True
        self.consumers.connection_closed(self.a)
        self.assertFalse(self.register(self.a))
        self.assertIsNone(self.consumers.find("G"))

    def test_silence_for_two_minutes_ends_a_membership(self):
        self.register(self.a)
        self.register(self.b)
        self.clock.advance(100)
        self.register(self.b)
        self.take_events()
        self.clock.advance(20)
        self.consumers.scan_not_active()
        self.assertFalse(self.a.closed)
        self.clock.advance(1)
        self.consumers.scan_not_active()
        self.assertTrue(self.a.closed)
        self.assertFalse(self.b.closed)
        self.assertEqual(self.take_events(), [("G", [self.b])])
        self.assertEqual(self.consumers.find("G").client_ids(), [f"id-{self.b.address}"])

    def test_heartbeat_texts_are_built_outside_lock(self):
        held = []
        guard = self.consumers._guard
        real = consumers_module.wanted_texts
        self.patch(consumers_module, "wanted_texts", lambda wanted: (held.append(guard.locked()), real(wanted))[1])
        self.patch(self.consumers._peer_log, "emit", lambda *_, **__: held.append(guard.locked()))
        self.register(self.a)
        self.register(self.a, consumer(topics=("U",), version=2))
        self.register(self.a, consumer(topics=("U",), version=3, expression="A"))
        self.register(self.a, client_id="other")
        self.assertEqual(set(held), {False})
        self.assertEqual(self.consumers.find("G").channels[self.a].wanted, {"T": "*"})

    def test_heartbeat_with_many_changed_topics_emits_two_log_lines(self):
        lines = []
        self.patch(self.consumers._peer_log, "emit", lambda level, kind, text, **values: lines.append((kind, values)))
        topics = [f"T{number:04}" for number in range(1000)]
        self.register(self.a, consumer(topics=topics))
        self.register(self.a, consumer(topics=topics, version=2, expression="A"))
        self.register(self.a, consumer(topics=()))
        self.assertEqual(
            [kind for kind, _ in lines],
            [
                "joined G", "subscribes G", "subscribes more G", "changes G", "changes more G", "drops G", "drops more G",
            ],
        )  # fmt: skip
        self.assertEqual({values["count"] for _, values in lines if "count" in values}, {999})
        self.assertEqual(lines[-2][1]["topic"], "T0000")

    def test_client_with_old_connection_counts_once(self):
        self.register(self.a, client_id="one")
        self.register(self.b, client_id="one")
        self.assertEqual(self.consumers.find("G").client_ids(), ["one"])
        self.assertEqual(len(self.consumers.find("G").clients()), 2)

    def test_client_is_found_on_its_latest_open_connection(self):
        self.register(self.a, client_id="one")
        self.register(self.b, client_id="one")
        self.assertIs(self.consumers.find("G").find_client("one").connection, self.b)
        self.b.closed = True
        self.assertIs(self.consumers.find("G").find_client("one").connection, self.a)
        self.consumers.connection_closed(self.b)
        self.assertIs(self.consumers.find("G").find_client("one").connection, self.a)

    def test_consumer_changing_its_client_id(self):
        self.register(self.a, client_id="one")
        self.take_events()
        self.assertFalse(self.register(self.a, client_id="two"))
        self.assertEqual(self.consumers.find("G").client_ids(), ["two"])
        self.flushLoggedErrors()


class ProducerManagerTests(ClientsTestCase):
    def setUp(self):
        super().setUp()
        self.producers = ProducerManager(self.now_ms)
        self.a = MemoryConnection("a")
        self.b = MemoryConnection("b")

    def test_register_and_unregister(self):
        self.producers.register("P", self.client(self.a, "one"))
        self.assertIs(self.producers.find_connection("one"), self.a)
        self.producers.unregister("P", self.a)
        self.assertIsNone(self.producers.find_connection("one"))
        self.assertEqual(self.producers.all_clients(), {})

    def test_client_of_two_groups_is_found_until_both_are_left(self):
        self.producers.register("P", self.client(self.a, "one"))
        self.producers.register("Q", self.client(self.a, "one"))
        self.producers.unregister("P", self.a)
        self.assertIs(self.producers.find_connection("one"), self.a)
        self.producers.unregister("Q", self.a)
        self.assertIsNone(self.producers.find_connection("one"))

    def test_close_of_old_connection_keeps_new_one(self):
        self.producers.register("P", self.client(self.a, "one"))
        self.producers.register("P", self.client(self.b, "one"))
        self.producers.connection_closed(self.a)
        self.assertIs(self.producers.find_connection("one"), self.b)
        self.assertEqual([client.connection for client in self.producers.clients("P")], [self.b])

    def test_close_of_new_connection_leaves_old_one_for_requests(self):
        for group in ("P", "Q"):
            self.producers.register(group, self.client(self.a, "one"))
            self.producers.register(group, self.client(self.b, "one"))
        self.producers.register("P", self.client(self.a, "one"))
        self.assertIs(self.producers.find_connection("one"), self.b)
        self.b.closed = True
        self.assertIs(self.producers.find_connection("one"), self.a)
        self.producers.connection_closed(self.b)
        self.assertIs(self.producers.find_connection("one"), self.a)
        self.producers.connection_closed(self.a)
        self.assertIsNone(self.producers.find_connection("one"))
        self.assertEqual((self.producers._connections, self.producers._client_of), ({}, {}))

    def test_silence_for_two_minutes_ends_a_membership(self):
        self.producers.register("P", self.client(self.a))
        self.clock.advance(60)
        self.producers.register("P", self.client(self.a))
        self.producers.register("P", self.client(self.b))
        self.clock.advance(120)
        self.producers.scan_not_active()
        self.assertEqual(len(self.producers.clients("P")), 2)
        self.clock.advance(1)
        self.producers.scan_not_active()
        self.assertEqual(self.producers.clients("P"), [])
        self.assertTrue(self.a.closed)

    def test_producer_heartbeat_after_close_is_ignored(self):
        self.a.closed = True
        self.producers.connection_closed(self.a)
        self.producers.register("P", self.client(self.a))
        self.assertEqual(self.producers.all_clients(), {})

    def test_producer_changing_its_client_id(self):
        self.producers.register("P", self.client(self.a, "one"))
        self.producers.register("P", self.client(self.a, "two"))
        self.assertIsNone(self.producers.find_connection("one"))
        self.assertIs(self.producers.find_connection("two"), self.a)

    def test_close_of_connection_visits_its_groups_only(self):
        groups = self.producers._groups = CountingDict()
        self.producers.register("P7", self.client(self.b))
        for number in range(1000):
            self.producers.register(f"P{number}", self.client(self.a))
        self.producers.connection_closed(self.a)
        self.assertEqual(groups.passes, 0)
        self.assertEqual(list(self.producers.all_clients()), ["P7"])

    def test_scan_finds_silent_client_of_many_groups_in_one_pass(self):
        groups = self.producers._groups = CountingDict()
        for number in range(1000):
            self.producers.register(f"P{number}", self.client(self.a))
        self.clock.advance(121)
        self.producers.scan_not_active()
        self.assertEqual(groups.passes, 1)
        self.assertEqual(self.producers.all_clients(), {})
        self.assertIsNone(self.producers.find_connection(f"id-{self.a.address}"))


class NoticeTests(SynchronousTestCase):
    def setUp(self):
        self.sent = []
        self.settings = BrokerConfig()
        self.to_client = BrokerToClient(self.settings, self)

    def oneway_from_thread(self, connection, request, timeout_ms):
        self.sent.append((connection, request.code, request.ext_fields, timeout_ms))

    def test_members_get_separate_notifications(self):
        a, b = MemoryConnection("a"), MemoryConnection("b")
        self.to_client.notify_consumer_ids_changed("G", [a, b])
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        fields = {"consumerGroup": "G"}
        self.assertEqual(self.sent, [(a, code, fields, 10), (b, code, fields, 10)])

    def test_disabled_notifications_are_not_sent(self):
        self.settings.notify_consumer_ids_changed_enable = False
        self.to_client.notify_consumer_ids_changed("G", [MemoryConnection()])
        self.assertEqual(self.sent, [])


class SubscriptionTests(SynchronousTestCase):
    def test_subscription_to_all_tags(self):
        for expression in (None, "", "*"):
            self.assertEqual(build_subscription("T", expression), SubscriptionData("T", "*"))

    def test_tag_expression_is_split(self):
        subscription = build_subscription("T", " TagA || TagB||  || ", "TAG")
        self.assertEqual(subscription.tags_set, {"TagA", "TagB"})
        self.assertEqual(subscription.code_set, {2598919, 2598920})
        self.assertEqual(subscription.sub_string, " TagA || TagB||  || ")
        self.assertEqual(subscription.expression_type, "TAG")

    def test_single_bar_is_part_of_tag(self):
        self.assertEqual(build_subscription("T", "a|b").tags_set, {"a|b"})

    def test_subscription_of_separators_only(self):
        error = self.assertRaises(SubscriptionError, build_subscription, "T", "||||")
        self.assertEqual(str(error), "subString split error")

    def test_other_expression_types_are_unchanged(self):
        subscription = build_subscription("T", "a > 3", "SQL92")
        self.assertEqual((subscription.expression_type, subscription.sub_string), ("SQL92", "a > 3"))
        self.assertEqual(subscription.code_set, set())
        self.assertRaises(SubscriptionError, build_subscription, "T", "", "SQL92")
