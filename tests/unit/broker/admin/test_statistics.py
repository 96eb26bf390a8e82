"""Answers about statistics and progress: 208, 303, 308, 315, 317."""

import os
import time

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.broker.admin.statistics import StatisticsProcessor, time_text
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.remoting.bodies.tables import ConsumerData, SubscriptionData, SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.interfaces import IRequestProcessor
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker

START_MS = 1_795_000_000_000


class StatisticsTestCase(SynchronousTestCase):
    def setUp(self):
        before = os.environ.get("TZ")
        os.environ["TZ"] = "UTC"
        time.tzset()
        self.addCleanup(self.restore_zone, before)
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.processor = StatisticsProcessor(self.broker)
        self.broker.topics.update(TopicConfig("T", 2, 3))
        self.broker.groups.update(SubscriptionGroupConfig("G"))

    def restore_zone(self, before):
        os.environ.pop("TZ", None)
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()

    def put(self, count, topic="T", queue_id=0):
        """Store messages a second apart."""
        for _ in range(count):
            self.broker.store.put_messages([MessageInner(topic, queue_id, 0, 0, 0, BORN_HOST, 0, 0, b"x", b"", 0)])
            self.broker.clock.advance(1)
        self.broker.settle()

    def join(self, *topics, group="G"):
        client = ClientChannelInfo(RecordingConnection("127.0.0.1:5000"), "c", 0, 407, self.broker.now_ms())
        subscriptions = [SubscriptionData(topic, "*", set(), set(), 1) for topic in topics]
        self.broker.consumers.register(client, ConsumerData(group, subscription_data_set=subscriptions), notify=False)

    def commit(self, offset, topic="T", queue_id=0, group="G"):
        self.broker.offsets.commit("h:1", group, topic, queue_id, offset)

    def ask(self, code, **fields):
        answer = self.processor.process(RemotingCommand(code, fields), None)
        self.assertEqual((answer.code, answer.remark, answer.ext_fields), (0, None, None))
        return fastjson.loads(answer.body)

    def refused(self, code, **fields):
        error = self.assertRaises(RequestError, self.processor.process, RemotingCommand(code, fields), None)
        return error.code, error.remark

    def progress(self, body):
        """Broker's offset, group's offset and time of its last message, by topic and queue."""
        return {
            (dict(queue)["topic"], dict(queue)["queueId"]): (
                wrapper["brokerOffset"],
                wrapper["consumerOffset"],
                wrapper["lastTimestamp"],
            )
            for queue, wrapper in body["offsetTable"].items()
        }


class ConsumeStatsTests(StatisticsTestCase):
    def consume_stats(self, **more):
        return self.progress(self.ask(208, consumerGroup="G", **more))

    def test_interface(self):
        verifyObject(IRequestProcessor, self.processor)

    def test_consume_stats_of_group_without_offsets_are_empty(self):
        self.put(3)
        self.assertEqual(self.ask(208, consumerGroup="G"), {"consumeTps": 0.0, "offsetTable": {}})

    def test_consume_stats_cover_all_readable_queues(self):
        self.put(3)
        self.commit(2)
        self.assertEqual(self.consume_stats(), {("T", 0): (3, 2, START_MS + 1000), ("T", 1): (0, 0, 0)})

    def test_consume_stats_of_named_topic_need_no_offsets(self):
        self.put(3)
        self.assertEqual(self.consume_stats(topic="T"), {("T", 0): (3, 0, 0), ("T", 1): (0, 0, 0)})
        self.assertEqual(self.consume_stats(topic="None"), {})

    def test_consume_stats_with_blank_topic_cover_all_topics(self):
        self.commit(0)
        self.assertEqual(self.consume_stats(topic=" "), {("T", 0): (0, 0, 0), ("T", 1): (0, 0, 0)})

    def test_consume_stats_of_online_group_cover_its_subscriptions(self):
        self.broker.topics.update(TopicConfig("U", 1, 1))
        self.commit(0)
        self.commit(0, "U")
        self.commit(0, "Gone")
        self.assertEqual({topic for topic, _ in self.consume_stats()}, {"T", "U"})
        self.join("U")
        self.assertEqual({topic for topic, _ in self.consume_stats()}, {"U"})

    def test_consume_tps_is_sum_of_topics(self):
        self.broker.topics.update(TopicConfig("U", 1, 1))
        self.commit(0)
        self.commit(0, "U")
        self.broker.broker_stats.count_gets("G", "T", 0, 30, 500, 0)
        self.broker.broker_stats.count_gets("G", "U", 0, 10, 500, 0)
        self.broker.broker_stats.sample()
        self.assertEqual(self.ask(208, consumerGroup="G")["consumeTps"], 4.0)


class AllConsumeStatsTests(StatisticsTestCase):
    def all_stats(self, ordered="false"):
        body = self.ask(317, isOrder=ordered)
        self.assertEqual(body["brokerAddr"], self.broker.address)
        found = {}
        for entry in body["consumeStatsList"]:
            ((group, stats),) = entry.items()
            found[group] = [self.progress(each) for each in stats]
        return found, body["totalDiff"]

    def test_consume_stats_of_all_groups(self):
        self.broker.groups.update(SubscriptionGroupConfig("H"))
        self.put(5)
        self.commit(2)
        self.commit(4, group="H")
        found, total = self.all_stats()
        self.assertEqual(found["G"], [{("T", 0): (5, 2, START_MS + 1000), ("T", 1): (0, 0, 0), ("T", 2): (0, 0, 0)}])
        self.assertEqual(found["H"][0]["T", 0], (5, 4, START_MS + 3000))
        self.assertEqual(total, 4)
        self.assertEqual(found["TOOLS_CONSUMER"], [])

    def test_consume_stats_of_ordered_topics_only(self):
        self.broker.topics.update(TopicConfig("Ordered", 1, 1, order=True))
        self.put(1, "Ordered")
        self.commit(0)
        self.commit(0, "Ordered")
        found, total = self.all_stats("true")
        self.assertEqual((found["G"], total), ([{("Ordered", 0): (1, 0, 0)}], 1))


class TimeSpanTests(StatisticsTestCase):
    def spans(self, **more):
        return self.ask(303, topic="T", group="G", **more)["consumeTimeSpanSet"]

    def test_time_span_of_unknown_topic_is_refused(self):
        self.assertEqual(self.refused(303, topic="None", group="G"), (17, "topic[None] not exist"))

    def test_time_span_has_times_of_first_last_and_next_message(self):
        self.put(5)
        self.commit(2)
        first, *others = self.spans()
        self.assertEqual(
            first,
            {
                "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
                "minTimeStamp": START_MS,
                "maxTimeStamp": START_MS + 4000,
                "consumeTimeStamp": START_MS + 1000,
                "delayTime": 3000,
                "minTimeStampStr": "2026-11-18#11:06:40:000",
                "maxTimeStampStr": "2026-11-18#11:06:44:000",
                "consumeTimeStampStr": "2026-11-18#11:06:41:000",
            },
        )
        self.assertEqual([span["messageQueue"]["queueId"] for span in others], [1, 2])
        self.assertEqual(others[0]["minTimeStamp"], -1)
        self.assertEqual(others[0]["minTimeStampStr"], "1969-12-31#23:59:59:999")
        self.assertEqual(others[0]["delayTime"], 0)

    def test_time_span_of_consumed_queue_has_no_delay(self):
        self.put(2)
        self.commit(2)
        self.assertEqual(self.spans()[0]["delayTime"], 0)
        self.assertEqual(self.spans()[0]["consumeTimeStamp"], START_MS + 1000)

    def test_time_span_without_offset_counts_from_first_message(self):
        self.put(2)
        span = self.spans()[0]
        self.assertEqual((span["consumeTimeStamp"], span["delayTime"]), (START_MS, 2000))

    def test_time_text(self):
        self.assertEqual(time_text(0), "1970-01-01#00:00:00:000")
        self.assertEqual(time_text(1_795_000_000_007), "2026-11-18#11:06:40:007")


class LeastOffsetTests(StatisticsTestCase):
    def least(self, **more):
        return self.ask(308, topic="T", compareGroup="G", **more)

    def test_least_offset_of_all_groups(self):
        self.put(5)
        self.put(5, queue_id=1)
        for group, offsets in (("G", (4, 3)), ("H", (2, 5)), ("I", (1,))):
            for queue_id, offset in enumerate(offsets):
                self.commit(offset, queue_id=queue_id, group=group)
        self.commit(0, "TT")
        self.assertEqual(self.least(), {"correctionOffsets": {0: 1, 1: 3}})
        self.assertEqual(self.least(filterGroups="I,G"), {"correctionOffsets": {0: 2, 1: 5}})
        self.assertEqual(self.broker.offsets.query("I", "T", 0), 1)

    def test_least_offset_ignores_offsets_before_queue(self):
        self.put(5)
        self.broker.store.get_min_offset = lambda topic, queue_id: 2
        self.commit(1)
        self.commit(2, group="H")
        self.assertEqual(self.least(), {"correctionOffsets": {0: 2}})

    def test_least_offset_without_offsets_is_empty(self):
        self.assertEqual(self.least(), {"correctionOffsets": {}})


class ViewTests(StatisticsTestCase):
    def test_view_of_unknown_statistic_is_refused(self):
        self.assertEqual(
            self.refused(315, statsName="TOPIC_PUT_NUMS", statsKey="T"), (1, "The stats <TOPIC_PUT_NUMS> <T> not exist")
        )
        self.assertEqual(
            self.refused(315, statsName="GROUP_GET_FALL_SIZE", statsKey="0@T@G"),
            (1, "The stats <GROUP_GET_FALL_SIZE> <0@T@G> not exist"),
        )

    def test_view_of_statistic(self):
        self.broker.broker_stats.count_gets("G", "T", 0, 30, 3000, 6)
        self.broker.broker_stats.sample()
        nothing = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
        self.assertEqual(
            self.ask(315, statsName="GROUP_GET_SIZE", statsKey="T@G"),
            {"statsMinute": {"avgpt": 3000.0, "sum": 3000, "tps": 300.0}, "statsHour": nothing, "statsDay": nothing},
        )
