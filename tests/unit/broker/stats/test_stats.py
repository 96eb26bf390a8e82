"""Statistics of topics and groups: samples, spans, keys, and the counts of each processor."""

import os
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.admin.clean_up import CleanUpProcessor
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.pull.processor import PullMessageProcessor
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.broker.send.send_back import SendBackProcessor
from rocketd.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketd.broker.stats.stats_item import StatsSnapshot
from rocketd.remoting.bodies.tables import ConsumerData, SubscriptionData, SubscriptionGroupConfig, TopicConfig
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from tests.support.broker import BORN_HOST, RecordingConnection, SmallBroker, job_of

NOTHING = StatsSnapshot()


def message(topic="T", queue_id=0):
    return MessageInner(topic, queue_id, 0, 0, 0, BORN_HOST, 0, 0, b"x", b"", 0)


def stored(size):
    return PutResult(PutStatus.PUT_OK, size=size)


REFUSED = PutResult(PutStatus.MESSAGE_ILLEGAL)


class StatsTestCase(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.clock.advance(1_795_000_000)
        self.stats = self.make()

    def make(self, **options):
        return BrokerStatsManager("C", lambda: int(self.clock.seconds() * 1000), **options)

    def put(self, count, size=100, topic="T"):
        self.stats.count_sends([message(topic)] * count, [stored(size)] * count)

    def run_for(self, seconds):
        for _ in range(seconds // 10):
            self.clock.advance(10)
            self.stats.sample()

    def totals(self, name):
        """Sum and times of all keys of a statistic, by key."""
        self.run_for(10)
        found = {}
        for key in self.stats._tables[name]:
            minute = self.stats.find(name, key).minute
            if minute.sum:
                found[key] = (minute.sum, minute.times)
        return found


class SampleTests(StatsTestCase):
    def test_uncounted_statistic_is_absent(self):
        self.assertIsNone(self.stats.find("TOPIC_PUT_NUMS", "T"))
        self.assertIsNone(self.stats.find("NO_SUCH_STATISTIC", "T"))
        self.assertIsNone(self.stats.find("COMMERCIAL_SEND_TIMES", "T"))

    def test_statistic_is_zero_before_first_sample(self):
        self.put(3)
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T"), (NOTHING, NOTHING, NOTHING))

    def test_first_sample_has_rate_over_ten_seconds(self):
        self.put(3, size=50)
        self.clock.advance(4)
        self.stats.sample()
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T").minute, StatsSnapshot(3, 0.3, 3, 1.0))
        self.assertEqual(self.stats.find("TOPIC_PUT_SIZE", "T").minute, StatsSnapshot(150, 15.0, 3, 50.0))

    def test_minute_statistic_ends_after_a_minute(self):
        self.put(12)
        self.run_for(20)
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T").minute, StatsSnapshot(12, 0.6, 12, 1.0))
        self.run_for(40)
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T").minute, StatsSnapshot(12, 0.2, 12, 1.0))
        self.put(6)
        self.run_for(10)
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T").minute, StatsSnapshot(6, 0.1, 6, 1.0))
        self.run_for(60)
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T").minute, StatsSnapshot(0, 0.0, 0, 0.0))

    def test_hour_and_day_have_separate_samples(self):
        self.run_for(300)
        self.put(36)
        self.run_for(290)
        minute, hour, day = self.stats.find("TOPIC_PUT_NUMS", "T")
        self.assertEqual((minute.sum, hour, day), (0, NOTHING, NOTHING))
        self.run_for(10)
        _, hour, day = self.stats.find("TOPIC_PUT_NUMS", "T")
        self.assertEqual((hour, day), (StatsSnapshot(36, 0.06, 36, 1.0), NOTHING))
        self.run_for(50 * 60)
        _, hour, day = self.stats.find("TOPIC_PUT_NUMS", "T")
        self.assertEqual((hour, day), (StatsSnapshot(36, 0.01, 36, 1.0), StatsSnapshot(36, 0.01, 36, 1.0)))
        self.run_for(10 * 60)
        _, hour, day = self.stats.find("TOPIC_PUT_NUMS", "T")
        self.assertEqual((hour.sum, day.sum), (0, 36))

    def test_day_statistic_ends_after_a_day(self):
        self.put(24)
        for _ in range(24):
            self.clock.advance(3600)
            self.stats.sample()
        day = self.stats.find("TOPIC_PUT_NUMS", "T").day
        self.assertEqual((day.sum, day.tps), (24, 24 / 86_400))
        self.clock.advance(3600)
        self.stats.sample()
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T").day.sum, 0)

    def test_clock_set_back_gives_no_negative_rate(self):
        self.put(5)
        self.clock.advance(10)
        self.stats.sample()
        self.clock.rightNow -= 3600
        self.stats.sample()
        self.assertEqual(self.stats.find("TOPIC_PUT_NUMS", "T").minute, StatsSnapshot(5, 0.0, 5, 1.0))


class CountTests(StatsTestCase):
    def test_stored_messages_only_are_counted(self):
        self.stats.count_sends([message()] * 3, [stored(10), REFUSED, stored(20)])
        self.stats.count_sends([message()], [REFUSED])
        self.assertEqual(self.totals("TOPIC_PUT_NUMS"), {"T": (2, 2)})
        self.assertEqual(self.totals("TOPIC_PUT_SIZE"), {"T": (30, 2)})
        self.assertEqual(self.totals("BROKER_PUT_NUMS"), {"C": (2, 0)})

    def test_messages_of_several_topics_are_counted_per_topic(self):
        self.stats.count_sends([message("T"), message("U"), message("T")], [stored(1), stored(10), stored(100)])
        self.assertEqual(self.totals("TOPIC_PUT_SIZE"), {"T": (101, 2), "U": (10, 1)})

    def test_batch_is_counted_once(self):
        self.stats.count_batch([message()] * 4, [stored(10)] * 4)
        self.stats.count_batch([message()] * 4, [REFUSED] * 4)
        self.assertEqual(self.totals("TOPIC_PUT_NUMS"), {"T": (4, 1)})
        self.assertEqual(self.totals("TOPIC_PUT_SIZE"), {"T": (40, 1)})

    def test_levels_of_delayed_messages(self):
        delayed = [message("SCHEDULE_TOPIC_XXXX", 2), message("SCHEDULE_TOPIC_XXXX", 4)]
        self.stats.count_sends(delayed, [stored(10), stored(20)])
        self.assertEqual(
            self.totals("QUEUE_PUT_SIZE"), {"SCHEDULE_TOPIC_XXXX@2": (10, 1), "SCHEDULE_TOPIC_XXXX@4": (20, 1)}
        )
        self.assertEqual(self.totals("TOPIC_PUT_NUMS"), {"SCHEDULE_TOPIC_XXXX": (2, 2)})
        self.stats.count_delivery(3, "T", 15)
        self.assertEqual(self.totals("QUEUE_GET_NUMS"), {"SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER": (1, 1)})
        self.assertEqual(self.totals("GROUP_GET_SIZE"), {"SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER": (15, 1)})
        self.assertEqual(self.totals("TOPIC_PUT_SIZE"), {"SCHEDULE_TOPIC_XXXX": (30, 2), "T": (15, 1)})
        self.assertEqual(self.totals("BROKER_PUT_NUMS"), {"C": (3, 0)})

    def test_gets_are_counted_per_topic_and_group(self):
        self.stats.count_gets("G", "T", 3, 5, 500, 2)
        self.stats.count_gets("G", "T", 3, 1, 100, 4)
        self.stats.count_gets("G", "T", 0, 1, 100, 0)
        self.assertEqual(self.totals("GROUP_GET_NUMS"), {"T@G": (7, 3)})
        self.assertEqual(self.totals("GROUP_GET_SIZE"), {"T@G": (700, 3)})
        self.assertEqual(self.totals("GROUP_GET_LATENCY"), {"3@T@G": (6, 2)})
        self.assertEqual(self.totals("BROKER_GET_NUMS"), {"C": (7, 0)})
        self.assertEqual(self.stats.find("GROUP_GET_LATENCY", "3@T@G").minute.avgpt, 3.0)
        self.assertGreater(self.stats.tps_group_get_nums("G", "T"), 0)
        self.assertEqual(self.stats.tps_group_get_nums("H", "T"), 0.0)

    def test_statistics_without_queue_details_are_merged(self):
        self.stats = self.make(per_queue=False)
        self.stats.count_gets("G", "T", 3, 5, 500, 2)
        self.stats.count_sends([message("SCHEDULE_TOPIC_XXXX", 2)], [stored(10)])
        self.stats.count_delivery(3, "T", 15)
        self.assertEqual(self.totals("GROUP_GET_LATENCY"), {"T@G": (2, 1)})
        self.assertEqual((self.totals("QUEUE_PUT_NUMS"), self.totals("QUEUE_GET_NUMS")), ({}, {}))

    def test_light_queues_are_merged_if_configured(self):
        self.stats = self.make(merge_lmq=True)
        self.stats.count_gets("%LMQ%G", "%LMQ%T", 0, 5, 500, 2)
        self.stats.count_gets("%LMQ%H", "%LMQ%U", 0, 1, 100, 4)
        self.stats.count_gets("G", "T", 0, 1, 100, 4)
        self.stats.count_send_back("%LMQ%G", "%LMQ%T", message("%DLQ%G"), stored(10))
        self.assertEqual(self.totals("GROUP_GET_NUMS"), {"%LMQ%@%LMQ%": (6, 2), "T@G": (1, 1)})
        self.assertEqual(self.totals("GROUP_GET_LATENCY"), {"0@%LMQ%@%LMQ%": (6, 2), "0@T@G": (4, 1)})
        self.assertEqual(self.totals("SNDBCK_PUT_NUMS"), {"%LMQ%@%LMQ%": (1, 1)})
        self.assertGreater(self.stats.tps_group_get_nums("%LMQ%H", "%LMQ%T"), 0)

    def test_send_backs_are_counted(self):
        self.stats.count_send_back("G", "T", message("SCHEDULE_TOPIC_XXXX", 2), stored(10))
        self.stats.count_send_back("G", "T", message("%DLQ%G"), stored(10))
        self.assertEqual(self.totals("SNDBCK_PUT_NUMS"), {"T@G": (2, 2)})
        self.assertEqual(self.totals("TOPIC_PUT_NUMS"), {"SCHEDULE_TOPIC_XXXX": (1, 1)})
        self.assertEqual(self.totals("BROKER_PUT_NUMS"), {})

    def test_replies_are_counted(self):
        self.stats.count_reply("C_REPLY_TOPIC", 70)
        self.assertEqual(self.totals("TOPIC_PUT_SIZE"), {"C_REPLY_TOPIC": (70, 1)})
        self.assertEqual(self.totals("BROKER_PUT_NUMS"), {"C": (1, 0)})


class DeletionTests(StatsTestCase):
    def count_everything(self):
        for topic in ("T", "T2"):
            self.put(1, topic=topic)
            for group in ("G", "T"):
                self.stats.count_gets(group, topic, 3, 5, 500, 2)
                self.stats.count_send_back(group, topic, message(), stored(10))
        self.stats.count_sends([message("SCHEDULE_TOPIC_XXXX", 2)], [stored(10)])
        self.stats.count_delivery(3, "T", 15)

    def keys(self):
        return {name: sorted(table) for name, table in self.stats._tables.items() if table}

    def test_deleted_topic_removes_its_statistics(self):
        self.count_everything()
        self.stats.on_topic_deleted("T")
        left = self.keys()
        self.assertEqual(left["TOPIC_PUT_NUMS"], ["SCHEDULE_TOPIC_XXXX", "T2"])
        self.assertEqual(left["GROUP_GET_NUMS"], ["SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER", "T2@G", "T2@T"])
        self.assertEqual(left["GROUP_GET_LATENCY"], ["3@T2@G", "3@T2@T"])
        self.assertEqual(left["SNDBCK_PUT_NUMS"], ["T2@G", "T2@T"])
        self.put(1)
        self.stats.count_gets("G", "T", 3, 5, 500, 2)
        self.assertEqual(self.totals("TOPIC_PUT_NUMS")["T"], (1, 1))
        self.assertEqual(self.totals("GROUP_GET_NUMS")["T@G"], (5, 1))
        self.stats.on_topic_deleted("SCHEDULE_TOPIC_XXXX")
        self.assertNotIn("QUEUE_PUT_NUMS", self.keys())
        self.assertNotIn("QUEUE_GET_NUMS", self.keys())

    def test_deleted_group_removes_its_statistics(self):
        self.count_everything()
        self.stats.on_group_deleted("T")
        left = self.keys()
        self.assertEqual(left["GROUP_GET_NUMS"], ["SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER", "T2@G", "T@G"])
        self.assertEqual(left["GROUP_GET_LATENCY"], ["3@T2@G", "3@T@G"])
        self.assertEqual(left["SNDBCK_PUT_NUMS"], ["T2@G", "T@G"])
        self.assertIn("T", left["TOPIC_PUT_NUMS"])
        self.stats.count_gets("T", "T", 3, 5, 500, 2)
        self.assertEqual(self.totals("GROUP_GET_NUMS")["T@T"], (5, 1))

    def test_latencies_without_queues(self):
        self.stats = self.make(per_queue=False)
        self.stats.count_gets("G", "T", 3, 5, 500, 2)
        self.stats.on_topic_deleted("T")
        self.assertEqual(self.keys(), {"BROKER_GET_NUMS": ["C"]})


class PlacesTests(SynchronousTestCase):
    """Counts by each processor."""

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.broker.groups.update(SubscriptionGroupConfig("G"))
        self.connection = RecordingConnection()

    def minute(self, name, key):
        self.broker.clock.advance(10)
        self.broker.broker_stats.sample()
        found = self.broker.broker_stats.find(name, key)
        return None if found is None else (found.minute.sum, found.minute.times)

    def run_jobs(self, processor, *commands):
        processor.process_jobs([job_of(processor, self.connection, *commands)])
        return self.connection.answers()

    def send(self, count=1, properties="", **more):
        fields = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": properties}
        commands = [RemotingCommand(310, {**fields, **more}, b"hello") for _ in range(count)]
        return self.run_jobs(SendMessageProcessor(self.broker), *commands)

    def test_send_processor_counts(self):
        self.assertEqual([answer.code for answer in self.send(3)], [0, 0, 0])
        self.send(1, "DELAY\x013")
        self.assertEqual(self.minute("TOPIC_PUT_NUMS", "T"), (3, 3))
        self.assertEqual(self.minute("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"), (1, 1))
        self.assertEqual(self.minute("BROKER_PUT_NUMS", "DefaultCluster"), (4, 0))
        size = self.minute("TOPIC_PUT_SIZE", "T")[0] + self.minute("TOPIC_PUT_SIZE", "SCHEDULE_TOPIC_XXXX")[0]
        self.assertEqual(size, self.broker.store.max_physical_offset())

    def test_schedule_counts_deliveries(self):
        self.send(2, "DELAY\x011")
        self.broker.settle()
        self.broker.clock.advance(2)
        self.broker.schedule.deliver_due()
        self.assertEqual(self.minute("TOPIC_PUT_NUMS", "T"), (2, 2))
        self.assertEqual(self.minute("GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"), (2, 2))
        self.broker.settings.store.enable_schedule_message_stats = False
        self.send(1, "DELAY\x011")
        self.broker.settle()
        self.broker.clock.advance(2)
        self.broker.schedule.deliver_due()
        self.assertEqual(self.broker.store.get_max_offset("SCHEDULE_TOPIC_XXXX", 0), 3)
        self.assertEqual(self.minute("TOPIC_PUT_NUMS", "T"), (2, 2))

    def test_pull_processor_counts(self):
        self.send(3)
        self.broker.settle()
        client = ClientChannelInfo(RecordingConnection("127.0.0.1:5000"), "c", 0, 407, self.broker.now_ms())
        data = ConsumerData("G", subscription_data_set=[SubscriptionData("T", "*", set(), set(), 1)])
        self.broker.consumers.register(client, data, notify=False)
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "0",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1",
        }  # fmt: skip
        empty = {**fields, "queueOffset": "3"}
        processor = PullMessageProcessor(self.broker)
        answers = self.run_jobs(processor, *[RemotingCommand(11, each) for each in (fields, empty, fields)])
        self.assertEqual([answer.code for answer in answers], [0, 19, 0])
        self.assertEqual(self.minute("GROUP_GET_NUMS", "T@G"), (6, 2))
        self.assertEqual(self.minute("GROUP_GET_SIZE", "T@G")[0], 2 * self.broker.store.max_physical_offset())
        self.assertEqual(self.minute("BROKER_GET_NUMS", "DefaultCluster"), (6, 0))
        self.assertEqual(self.minute("GROUP_GET_LATENCY", "0@T@G")[1], 2)

    def test_send_back_processor_counts(self):
        self.send(1)
        fields = {"offset": "0", "group": "G", "delayLevel": "0", "originTopic": "T"}
        processor = SendBackProcessor(self.broker)
        context = SimpleNamespace(connection=self.connection)
        self.assertEqual(processor.process(RemotingCommand(36, fields, version=407), context).code, 0)
        self.assertEqual(self.minute("SNDBCK_PUT_NUMS", "T@G"), (1, 1))
        self.assertEqual(self.minute("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"), (1, 1))

    def test_clean_up_removes_statistics_of_missing_topics(self):
        self.send()
        self.broker.settle()
        self.broker.topics.delete("T")

        class Context:
            connection = self.connection

        CleanUpProcessor(self.broker).process(RemotingCommand(316), Context)
        self.assertIsNone(self.minute("TOPIC_PUT_NUMS", "T"))
        self.assertEqual(self.minute("BROKER_PUT_NUMS", "DefaultCluster"), (1, 0))
