"""Limits of new topics and groups, and the cost of a burst of them."""

import os

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.clients import heartbeats as client_manage
from rocketd.broker.clients.heartbeats import ClientManageProcessor
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.broker.tables.new_names import BURST_SECONDS, group_limit, topic_limit
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.broker import RecordingConnection, SmallBroker, job_of

CLIENT = "10.0.0.1:5000"


class NewNameLimitTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.settings = BrokerConfig(max_new_topics_per_second=10)
        self.limits = LimitLog(Logger(), self.clock.seconds)
        self.limit = topic_limit(self.settings, self.limits, self.clock.seconds)

    def admitted(self, count, address=CLIENT):
        return sum(self.limit.admits(f"T{number}", address) for number in range(count))

    def test_names_are_admitted_in_burst_then_at_rate(self):
        self.assertEqual(self.admitted(1000), 10 * BURST_SECONDS)
        self.clock.advance(1)
        self.assertEqual(self.admitted(1000), 10)
        self.clock.advance(3600)
        self.assertEqual(self.admitted(1000), 10 * BURST_SECONDS)

    def test_flooder_does_not_use_up_the_share_of_others(self):
        served = flooded = 0
        for _ in range(200):
            self.clock.advance(0.3)
            flooded += self.admitted(100, CLIENT)
            served += self.admitted(1, "10.0.0.2:5000")
        self.assertEqual(served, 200, "a third of the rate, every time")
        self.assertLessEqual(served + flooded, 10 * (60 + 2 * BURST_SECONDS))

    def test_greedy_addresses_get_equal_parts_and_leave_as_much(self):
        counts = [0] * 4
        for _ in range(1000):
            for number in range(4):
                counts[number] += self.admitted(1, f"[2001:db8:0:{number}::{_:x}]:5000")
        self.assertEqual(counts, [20] * 4)
        self.assertEqual(self.admitted(1000, "10.0.0.2:5000"), 10)

    def test_zero_means_no_limit(self):
        self.settings.max_new_topics_per_second = 0
        self.assertEqual(self.admitted(5000), 5000)

    def test_refusal_names_the_setting_and_is_counted(self):
        self.admitted(50)
        error = self.assertRaises(RequestError, self.limit.check, "T", CLIENT)
        self.assertEqual(error.code, ResponseCode.SYSTEM_BUSY)
        self.assertIn("setting maxNewTopicsPerSecond", error.remark)
        self.assertEqual(self.limits.counts, {"new topics refused": 1})

    def test_names_beyond_bound_are_refused(self):
        self.settings.max_topics = 3
        held = ["A", "B"]
        self.limit.held = lambda: len(held)
        self.assertTrue(self.limit.admits("C", CLIENT))
        held.append("C")
        error = self.assertRaises(RequestError, self.limit.check, "D", CLIENT)
        self.assertEqual(error.code, ResponseCode.TOPIC_NOT_EXIST)
        self.assertIn("the broker has 3 topics, and sends create topics only up to 3 (setting maxTopics)", error.remark)
        self.assertEqual(self.limits.counts, {"topics beyond maxTopics refused": 1})
        self.settings.max_topics = 0
        self.assertTrue(self.limit.admits("D", CLIENT))

    def test_groups_have_separate_limit(self):
        self.admitted(50)
        self.assertTrue(group_limit(self.settings, self.limits, self.clock.seconds).admits("G", CLIENT))


class BurstTests(SynchronousTestCase):
    options = {}

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()), **self.options)
        self.written = []
        real = self.broker.file_system.write_file

        def write_file(path, data):
            self.written.append(os.path.basename(path))
            real(path, data)

        self.broker.file_system.write_file = write_file
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.processor = ClientManageProcessor(self.broker)

    def start_writer(self):
        self.broker.table_writer.start()
        self.addCleanup(self.broker.table_writer.stop)

    def heartbeat(self, groups):
        """Send one heartbeat, and return its answer."""
        body = {
            "clientID": "c",
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
                }
                for group in groups
            ],
            "producerDataSet": [{"groupName": "P"}],
        }
        return self.answer_to(body, RecordingConnection())

    def answer_to(self, body, connection):
        """Have a heartbeat with this body processed to its end, and return its answer."""
        request = RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.dumps(body))
        context = type("Context", (), {"connection": connection})()
        processed = maybeDeferred(self.processor.process, request, context)
        processed.addErrback(lambda failure: RemotingCommand.response(failure.value.code, failure.value.remark))
        return self.successResultOf(processed)

    def ask(self, connection, consumers=None, producers=()):
        """Send a heartbeat with producer groups, and consumer groups with their topics; return its answer."""
        body = {
            "clientID": "c",
            "consumerDataSet": [
                {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subVersion": 1} for topic in topics]}
                for group, topics in (consumers or {}).items()
            ],
            "producerDataSet": [{"groupName": group} for group in producers],
        }
        return self.answer_to(body, connection)

    def refused_heartbeats(self):
        return self.broker.dispatcher.limits.counts.get("heartbeats refused", 0)

    def test_heartbeat_refuses_new_groups_whose_retry_topic_cannot_be_stored_and_registers_the_rest(self):
        known = "k" * 121
        self.broker.groups.update(SubscriptionGroupConfig(known))
        answer = self.heartbeat(["g" * 121, "a/b", "g" * 120, known])
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("its retry topic could not be stored", answer.remark)
        self.assertIn("that one would have 128 bytes", answer.remark)
        online = [info.group for info in self.broker.consumers.all_groups()]
        self.assertEqual(online, ["g" * 120, known])
        self.assertIsNotNone(self.broker.topics.select("%RETRY%" + "g" * 120))
        self.assertEqual(self.broker.producers.clients("P")[0].client_id, "c")

    def test_heartbeat_with_too_many_groups_registers_nothing_and_is_counted(self):
        self.broker.settings.broker.max_groups_per_connection = 3
        connection = RecordingConnection()
        for answer, kind in (
            (self.ask(connection, {"CG": ["T"]}, ["P"] * 4), "producer"),
            (self.ask(connection, {key: ["T"] for key in "ABCD"}, ["P"]), "consumer"),
        ):
            self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
            self.assertIn(f"the connection would have 4 {kind} groups", answer.remark)
            self.assertIn("(setting maxGroupsPerConnection)", answer.remark)
        self.assertEqual(self.registered(["CG", *"ABCD"]), 0)
        self.assertEqual(self.broker.producers.all_clients(), {})
        self.assertEqual(self.refused_heartbeats(), 2)
        self.assertEqual(self.ask(connection, {key: ["T"] for key in "ABC"}, "PQR").code, 0)

    def test_groups_of_earlier_heartbeats_count_once(self):
        self.broker.settings.broker.max_groups_per_connection = 3
        connection = RecordingConnection()
        for _ in range(3):
            self.assertEqual(self.ask(connection, {key: ["T"] for key in "AB"}, "PQ").code, 0)
        self.assertEqual(self.ask(connection, {}, "RS").code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.ask(connection, {key: ["T"] for key in "CD"}).code, ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.ask(connection, {key: ["T"] for key in "BC"}, "QR").code, 0)
        self.assertEqual(self.ask(RecordingConnection(), {key: ["T"] for key in "CDE"}, "RST").code, 0)

    def test_heartbeat_with_too_many_subscriptions_registers_nothing(self):
        self.broker.settings.broker.max_subscriptions_per_connection = 5
        connection = RecordingConnection()
        self.assertEqual(self.ask(connection, {"A": "12345"}).code, 0)
        for consumers in ({"A": "12345", "B": "1"}, {"B": "1"}, {"A": "123", "B": "123"}):
            answer = self.ask(connection, consumers)
            self.assertIn("the connection would have 6 subscriptions", answer.remark)
            self.assertIn("(setting maxSubscriptionsPerConnection)", answer.remark)
        self.assertEqual(self.registered("B"), 0)
        self.assertEqual(self.ask(connection, {"A": "12", "B": "123"}).code, 0)

    def test_heartbeat_of_too_many_bytes_is_not_read(self):
        self.broker.settings.broker.max_heartbeat_bytes = 10
        context = type("Context", (), {"connection": RecordingConnection()})()
        request = RemotingCommand(RequestCode.HEART_BEAT, {}, b"not JSON, but long")
        error = self.assertRaises(RequestError, self.processor.process, request, context)
        self.assertIn("its body has 18 bytes", error.remark)
        self.assertEqual(self.refused_heartbeats(), 1)

    def test_zero_means_no_limit_of_a_heartbeat(self):
        limits = self.broker.settings.broker
        limits.max_groups_per_connection = limits.max_subscriptions_per_connection = limits.max_heartbeat_bytes = 0
        producers = [f"{number:02100}" for number in range(2001)]
        topics = [f"T{number}" for number in range(11_000)]
        self.assertEqual(self.ask(RecordingConnection(), {"A": topics}, producers).code, 0)

    def test_new_group_is_noted_without_copy_of_table(self):
        table = self.broker.last_subscriptions._groups
        self.heartbeat(["A", "B"])
        self.assertIs(self.broker.last_subscriptions._groups, table)
        self.assertEqual(list(table), ["A", "B"])

    def begin(self, connection, groups=100, **members):
        """Begin a long heartbeat, of which the dispatcher keeps the next step; return the Deferred of its answer."""
        self.broker.dispatcher.delay = True
        consumers = [{"groupName": f"{connection.address}-{n}", "subscriptionDataSet": []} for n in range(groups)]
        body = {"clientID": "c" * 20_000, "consumerDataSet": consumers, **members}
        context = type("Context", (), {"connection": connection})()
        return self.processor.process(RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.dumps(body)), context)

    def step(self):
        """Take all steps that wait; return the names of their pools."""
        return self.broker.dispatcher.run()

    def test_long_heartbeats_take_turns_in_separate_pool(self):
        self.start_writer()
        connections = [RecordingConnection(f"10.0.0.1:{n}") for n in range(2)]
        answers = [self.begin(connection, 500) for connection in connections]
        counts = []
        while not all(answer.called for answer in answers):
            self.assertEqual(set(self.step()), {"heartbeat-long"})
            online = [info.group.rpartition("-")[0] for info in self.broker.consumers.all_groups()]
            counts.append([online.count(connection.address) for connection in connections])
        self.assertEqual(counts, [[min(step * 50, 500)] * 2 for step in range(len(counts))])
        self.assertEqual([self.successResultOf(answer).code for answer in answers], [0, 0])

    def test_producer_groups_and_subscriptions_are_divided_into_steps(self):
        producers = [{"groupName": f"P{n}"} for n in range(2000)]
        sql = [{"topic": f"T{n}", "subString": "a > 1", "expressionType": "SQL92"} for n in range(200)]
        for groups, members, steps in (
            (0, {"producerDataSet": producers}, 2000 // 500),
            (0, {"consumerDataSet": [{"groupName": "A", "subscriptionDataSet": sql}]}, 200 // 50),
            (
                0,
                {"consumerDataSet": [{"groupName": g, "subscriptionDataSet": sql[:1] * 490} for g in "BCDE"]},
                4 * 9 + 4,
            ),
        ):
            answer = self.begin(RecordingConnection(), groups, **members)
            taken = 0
            while not answer.called:
                self.step()
                taken += 1
            self.assertEqual((self.successResultOf(answer).code, taken - 2), (0, steps))

    def test_short_heartbeat_is_answered_beside_long_one(self):
        long = self.begin(RecordingConnection())
        self.assertEqual(self.ask(RecordingConnection(), {"CG": ["T"]}).code, 0)
        self.assertNoResult(long)

    def test_heartbeats_of_connection_keep_order_and_are_bounded(self):
        connection = RecordingConnection()
        first, second = self.begin(connection, 100), self.begin(connection, 0, producerDataSet=[{"groupName": "P"}])
        error = self.assertRaises(RequestError, self.begin, connection, 0)
        self.assertEqual((error.code, self.refused_heartbeats()), (ResponseCode.SYSTEM_BUSY, 1))
        context = type("Context", (), {"connection": connection})()
        self.assertRaises(RequestError, self.processor.process, RemotingCommand(34, {}, b'{"clientID":"c"}'), context)
        while not first.called:
            self.assertEqual(self.broker.producers.all_clients(), {})
            self.step()
        while not second.called:
            self.step()
        self.assertEqual(list(self.broker.producers.all_clients()), ["P"])
        self.assertEqual(self.step(), [])

    def test_long_heartbeats_hold_a_bounded_number_of_bytes(self):
        self.patch(client_manage, "LONG_HEARTBEATS_BYTES", 50_000)
        self.processor = ClientManageProcessor(self.broker)
        first = self.begin(RecordingConnection(), 0)
        self.begin(RecordingConnection(), 0)
        self.assertRaises(RequestError, self.begin, RecordingConnection(), 0)
        while not first.called:
            self.step()
        self.assertEqual(self.begin(RecordingConnection(), 0).called, False)

    def test_refused_long_heartbeat_is_answered(self):
        self.broker.settings.broker.max_new_groups_per_heartbeat = 3
        answer = self.begin(RecordingConnection(), 10)
        while not answer.called:
            self.step()
        self.failureResultOf(answer, RequestError)

    def test_rest_of_a_heartbeat_is_not_registered_after_the_close(self):
        connection = RecordingConnection()
        answer = self.begin(connection)
        self.step()
        self.step()
        connection.closed = True
        while not answer.called:
            self.step()
        self.assertIsNone(self.broker.groups.get(f"{connection.address}-99"))

    def registered(self, groups):
        return sum(self.broker.consumers.find(group) is not None for group in groups)

    def test_heartbeat_with_2000_unknown_groups_costs_few_writes(self):
        self.broker.settings.broker.max_new_groups_per_heartbeat = 0
        self.broker.settings.broker.max_new_groups_per_second = 0
        self.start_writer()
        groups = [f"bomb-{number}" for number in range(2000)]
        self.assertEqual(self.heartbeat(groups).code, 0)
        self.broker.table_writer.stop()
        self.assertLessEqual(len(self.written), 60)
        self.assertEqual(self.registered(groups), 2000)
        self.assertEqual(sum("bomb" in name for name in self.broker.groups.snapshot().subscription_group_table), 2000)
        self.assertIsNotNone(self.broker.topics.select("%RETRY%bomb-1999"))

    def test_new_groups_and_topics_are_written_once(self):
        files = self.broker.groups._file, self.broker.topics._file
        self.heartbeat([f"G{number}" for number in range(20)])
        self.assertGreater(len(self.written), 30)
        self.assertEqual(
            [file._kept.written for file in files],
            [len(self.broker.groups.snapshot().subscription_group_table), len(self.broker.topics.all_topics())],
        )

    def test_heartbeat_registers_known_groups_and_limited_new_ones(self):
        self.broker.settings.broker.max_new_groups_per_heartbeat = 3
        self.heartbeat(["old"])
        groups = [f"new-{number}" for number in range(10)]
        answer = self.heartbeat([*groups, "old"])
        self.assertEqual(answer.code, ResponseCode.SYSTEM_BUSY)
        self.assertIn("7 of 11 consumer groups of the heartbeat are not registered yet", answer.remark)
        self.assertEqual((self.registered(groups), self.registered(["old"])), (3, 1))

    def test_thousand_groups_of_client_register_in_few_heartbeats(self):
        self.start_writer()
        groups = [f"moved-{number}" for number in range(1000)]
        heartbeats = 1
        while self.heartbeat(groups).code != 0:
            heartbeats += 1
            self.broker.clock.advance(30)
        self.assertEqual((self.registered(groups), heartbeats), (1000, 2))

    def test_heartbeat_with_many_new_groups_logs_few_lines(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.start_writer()
        self.heartbeat([f"G{number}" for number in range(300)])
        self.broker.table_writer.stop()
        self.assertLess(len(events), 100)
        self.assertTrue(any("has joined 300 new consumer groups" in formatEvent(event) for event in events))

    def test_thousand_clients_with_one_group_each_register_at_once(self):
        self.start_writer()
        groups = [f"moved-{number}" for number in range(1000)]
        self.assertEqual({self.heartbeat([group]).code for group in groups}, {0})

    def test_groups_beyond_the_rate_are_refused_and_known_ones_are_not(self):
        self.broker.settings.broker.max_new_groups_per_second = 2
        self.heartbeat(["old"])
        refused = [self.heartbeat([f"new-{number}"]).code for number in range(20)]
        self.assertEqual(refused.count(ResponseCode.SYSTEM_BUSY), 20 - (2 * BURST_SECONDS - 1))
        self.assertEqual(self.heartbeat(["old"]).code, 0)
        self.assertIsNone(self.broker.groups.get("new-19"))
        error = self.assertRaises(RequestError, self.broker.groups.find, "other", RecordingConnection().address)
        self.assertIn("maxNewGroupsPerSecond", error.remark)

    def test_groups_beyond_the_bound_are_refused_and_known_ones_are_not(self):
        groups = self.broker.groups
        self.broker.settings.broker.max_consumer_groups = len(groups.snapshot().subscription_group_table) + 1
        self.assertEqual(self.heartbeat(["old"]).code, 0)
        answer = self.heartbeat(["new", "old", "other"])
        self.assertEqual(answer.code, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.assertIn("consumer group[new] not exist", answer.remark)
        self.assertIn("maxConsumerGroups", answer.remark)
        self.assertEqual((self.registered(["new", "other"]), self.registered(["old"])), (0, 1))
        self.assertRaises(RequestError, groups.find, "new")
        groups.update(SubscriptionGroupConfig(group_name="new"))
        self.assertEqual(self.heartbeat(["new"]).code, 0)

    def test_topics_beyond_bound_are_refused_except_for_administrator(self):
        topics = self.broker.topics
        self.broker.settings.broker.max_topics = len(topics.snapshot().topic_config_table) + 1
        create = topics.create_topic_in_send_message
        self.assertIsNotNone(create("first", "TBW102", CLIENT, 4, 0))
        error = self.assertRaises(RequestError, create, "second", "TBW102", CLIENT, 4, 0)
        self.assertIn("topic[second] not exist, apply first please!", error.remark)
        topics.update(TopicConfig("second", 4, 4))
        self.assertIsNotNone(create("second", "TBW102", CLIENT, 4, 0))
        self.heartbeat(["G"])
        self.assertIsNotNone(topics.select("%RETRY%G"), "a group is not left without its retry topic")

    def test_unregister_of_unknown_group_creates_none(self):
        context = type("Context", (), {"connection": RecordingConnection()})()
        fields = {"clientID": "c", "consumerGroup": "never"}
        self.processor.process(RemotingCommand(RequestCode.UNREGISTER_CLIENT, fields), context)
        self.assertIsNone(self.broker.groups.get("never"))

    def test_send_beyond_the_rate_of_new_topics_is_refused(self):
        self.broker.settings.broker.max_new_topics_per_second = 1
        sends = SendMessageProcessor(self.broker)
        connection = RecordingConnection()
        for number in range(BURST_SECONDS + 3):
            for topic in (f"new-{number}", f"%RETRY%{number}", "old"):
                fields = {
                    "producerGroup": "P",
                    "topic": topic,
                    "defaultTopic": "TBW102" if topic[0] != "%" else "none",
                    "defaultTopicQueueNums": "4",
                    "queueId": "0",
                    "sysFlag": "0",
                    "bornTimestamp": "1700000000000",
                    "flag": "0",
                    "properties": "",
                    "reconsumeTimes": "0",
                    "unitMode": "false",
                    "batch": "false",
                }
                sends.process_jobs([job_of(sends, connection, RemotingCommand(10, fields, b"x"))])
        codes = [answer.code for answer in connection.answers()]
        self.assertEqual(codes.count(0), BURST_SECONDS - 1 + BURST_SECONDS + 3)
        self.assertEqual(codes.count(ResponseCode.SYSTEM_BUSY), len(codes) - codes.count(0))
        self.assertEqual(set(codes[2::3]), {0})
