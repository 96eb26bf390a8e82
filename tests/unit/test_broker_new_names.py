"""Limits of new topics and groups, and what a burst of them costs."""

import os

from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.new_names import BURST_SECONDS, group_limit, topic_limit
from rocketd.broker.processors.client_manage import ClientManageProcessor
from rocketd.broker.processors.send import SendMessageProcessor
from rocketd.broker.settings import BrokerConfig
from rocketd.broker.testing import RecordingConnection, SmallBroker, job_of
from rocketd.remoting import fastjson
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.limit_log import LimitLog


class NewNameLimitTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.settings = BrokerConfig(max_new_topics_per_second=10)
        self.limits = LimitLog(Logger(), self.clock.seconds)
        self.limit = topic_limit(self.settings, self.limits, self.clock.seconds)

    def admitted(self, count):
        return sum(self.limit.admits(f"T{number}") for number in range(count))

    def test_burst_is_admitted_and_then_the_rate(self):
        self.assertEqual(self.admitted(1000), 10 * BURST_SECONDS)
        self.clock.advance(1)
        self.assertEqual(self.admitted(1000), 10)
        self.clock.advance(3600)
        self.assertEqual(self.admitted(1000), 10 * BURST_SECONDS)

    def test_zero_means_no_limit(self):
        self.settings.max_new_topics_per_second = 0
        self.assertEqual(self.admitted(5000), 5000)

    def test_refusal_names_the_setting_and_is_counted(self):
        self.admitted(50)
        error = self.assertRaises(RequestError, self.limit.check, "T")
        self.assertEqual(error.code, ResponseCode.SYSTEM_BUSY)
        self.assertIn("setting maxNewTopicsPerSecond", error.remark)
        self.assertEqual(self.limits.counts, {"new topics refused": 1})

    def test_groups_have_a_limit_of_their_own(self):
        self.admitted(50)
        self.assertTrue(group_limit(self.settings, self.limits, self.clock.seconds).admits("G"))


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
        context = type("Context", (), {"connection": RecordingConnection()})()
        request = RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.dumps(body))
        try:
            return self.processor.process(request, context)
        except RequestError as error:
            return RemotingCommand.response(error.code, error.remark)

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

    def test_heartbeat_registers_known_groups_and_the_first_new_ones(self):
        self.broker.settings.broker.max_new_groups_per_heartbeat = 3
        self.heartbeat(["old"])
        groups = [f"new-{number}" for number in range(10)]
        answer = self.heartbeat([*groups, "old"])
        self.assertEqual(answer.code, ResponseCode.SYSTEM_BUSY)
        self.assertIn("7 of 11 consumer groups of the heartbeat are not registered yet", answer.remark)
        self.assertEqual((self.registered(groups), self.registered(["old"])), (3, 1))

    def test_thousand_groups_of_one_client_are_there_after_a_few_heartbeats(self):
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

    def test_thousand_clients_with_a_group_each_are_there_at_once(self):
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
        error = self.assertRaises(RequestError, self.broker.groups.find, "other")
        self.assertIn("maxNewGroupsPerSecond", error.remark)

    def test_unregistering_an_unknown_group_makes_no_group(self):
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
