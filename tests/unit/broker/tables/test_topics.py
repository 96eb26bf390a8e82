import os
import threading
from functools import partial
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.topics import TopicConfigManager
from rocketd.common import table_writer
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies.tables import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)
from rocketd.remoting.errors import RequestError
from rocketd.store.base.filesystem import RealFileSystem


class FullDisk(RealFileSystem):
    def write_file(self, path, data):
        raise OSError(28, "No space left on device")


class TopicsTestCase(SynchronousTestCase):
    def setUp(self):
        self.path = os.path.join(self.mktemp(), "topics.json")
        self.clock = Clock()
        self.clock.advance(1000)
        self.settings = BrokerConfig(broker_name="broker-a", broker_cluster_name="C1")
        self.topics = self.make()
        self.heard = []
        self.topics.on_change(self.heard.append)

    def make(self, file_system=None):
        file = JsonFile(self.path, TopicConfigSerializeWrapper, file_system or RealFileSystem())
        return TopicConfigManager(self.settings, file, lambda: int(self.clock.seconds() * 1000))

    def reloaded(self):
        topics = self.make()
        topics.load()
        return topics

    def create(self, topic="T", default_topic="TBW102", queues=4, sys_flag=0):
        return self.topics.create_topic_in_send_message(topic, default_topic, "1.2.3.4:5", queues, sys_flag)


class PresetTests(TopicsTestCase):
    def shape(self, name):
        config = self.topics.select(name)
        return config and (config.read_queue_nums, config.write_queue_nums, config.perm)

    def test_new_table_has_preset_topics(self):
        self.assertEqual(
            {config.topic_name: self.shape(config.topic_name) for config in self.topics.all_topics()},
            {
                "SELF_TEST_TOPIC": (1, 1, 6),
                "TBW102": (8, 8, 7),
                "BenchmarkTest": (1024, 1024, 6),
                "C1": (16, 16, 7),
                "broker-a": (1, 1, 7),
                "OFFSET_MOVED_EVENT": (1, 1, 6),
                "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
                "C1_REPLY_TOPIC": (1, 1, 6),
            },
        )

    def test_presets_follow_settings(self):
        self.settings.auto_create_topic_enable = False
        self.settings.cluster_topic_enable = False
        self.settings.broker_topic_enable = False
        self.settings.trace_topic_enable = True
        self.topics = self.make()
        self.assertIsNone(self.shape("TBW102"))
        self.assertEqual(self.shape("C1"), (16, 16, 1))
        self.assertEqual(self.shape("broker-a"), (1, 1, 1))
        self.assertEqual(self.shape("RMQ_SYS_TRACE_TOPIC"), (1, 1, 6))

    def test_system_topics(self):
        for topic in ("TBW102", "C1", "broker-a", "C1_REPLY_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x"):
            self.assertTrue(self.topics.is_system_topic(topic), topic)
        self.assertFalse(self.topics.is_system_topic("T"))

    def test_protected_and_bad_names(self):
        for topic, remark in (
            ("TBW102", "The topic[TBW102] is conflict with system topic."),
            ("rmq_sys_x", "The topic[rmq_sys_x] is conflict with system topic."),
            ("", "The specified topic is blank."),
            ("a" * 128, "The specified topic is longer than topic max length."),
        ):
            error = self.assertRaises(RequestError, self.topics.check_may_change, topic)
            self.assertEqual((error.code, error.remark), (1, remark))
        self.topics.check_may_change("%RETRY%G")


class CreateOnUseTests(TopicsTestCase):
    def test_new_topic_has_requested_queues_and_no_inherit_bit(self):
        config = self.create(queues=4, sys_flag=1)
        self.assertEqual(config, TopicConfig("T", 4, 4, 6, TopicFilterType.SINGLE_TAG, 1))
        self.assertIs(self.topics.select("T"), config)

    def test_new_topic_has_at_most_queues_of_template(self):
        self.assertEqual(self.create(queues=16).write_queue_nums, 8)

    def test_new_topic_never_has_negative_queues(self):
        self.assertEqual(self.create(queues=-3).write_queue_nums, 0)

    def test_new_topic_has_filter_type_of_template(self):
        self.topics.update(TopicConfig("Template", 2, 2, 7, TopicFilterType.MULTI_TAG))
        self.assertEqual(self.create(default_topic="Template").topic_filter_type, TopicFilterType.MULTI_TAG)

    def test_existing_topic_is_returned(self):
        first = self.create()
        self.assertIs(self.create(queues=1), first)
        self.assertEqual(len(self.heard), 1)

    def test_missing_or_uninherited_template_creates_no_topic(self):
        self.assertIsNone(self.create(default_topic="Nowhere"))
        self.assertIsNone(self.create(default_topic="BenchmarkTest"))
        self.assertEqual(self.heard, [])
        self.assertFalse(os.path.exists(self.path))

    def test_template_of_earlier_run_is_ignored(self):
        self.create("Old")
        self.settings.auto_create_topic_enable = False
        self.topics = self.reloaded()
        self.assertIsNone(self.create("New"))
        self.assertEqual(self.topics.select("TBW102").perm, 6)
        self.assertIsNotNone(self.create("Old"))

    def test_other_templates_stay_usable_without_automatic_creation(self):
        self.settings.auto_create_topic_enable = False
        self.assertEqual(self.create(default_topic="C1").perm, 6)

    def test_retry_topics(self):
        config = self.topics.create_topic_in_send_message_back("%RETRY%G", 1, 6, 2)
        self.assertEqual(config, TopicConfig("%RETRY%G", 1, 1, 6, topic_sys_flag=2))
        self.assertIs(self.topics.create_topic_in_send_message_back("%RETRY%G", 9, 2, 0), config)
        self.assertEqual(len(self.heard), 1)

    def test_retry_topic_grows_to_retry_queues_of_its_group(self):
        group = SubscriptionGroupConfig("G", retry_queue_nums=2)
        self.assertEqual(
            self.topics.retry_topic(group, unit_mode=True), TopicConfig("%RETRY%G", 2, 2, 6, topic_sys_flag=2)
        )
        self.topics.update(TopicConfig("%RETRY%G", 1, 4, 6, order=True))
        grown = TopicConfig("%RETRY%G", 2, 4, 6, order=True)
        self.assertEqual(self.topics.retry_topic(group, unit_mode=False), grown)
        self.assertEqual(self.reloaded().select("%RETRY%G"), grown)
        self.assertEqual(self.heard[-1], "topic %RETRY%G has 2 queues now, as many as its group has retry queues")
        heard = len(self.heard)
        self.assertIs(self.topics.retry_topic(group, unit_mode=False), self.topics.select("%RETRY%G"))
        self.assertEqual(len(self.heard), heard)

    def test_retry_topic_of_careless_setting_has_no_more_queues_than_a_topic_may_have(self):
        config = self.topics.retry_topic(SubscriptionGroupConfig("G", retry_queue_nums=2**31 - 1), unit_mode=False)
        self.assertEqual(config.read_queue_nums, 65_536)

    def test_waiting_message_of_a_removed_queue_goes_to_one_that_routes_show(self):
        self.topics.update(TopicConfig("T", 4, 2, 6))
        self.assertEqual([self.topics.shown_queue("T", queue) for queue in range(6)], [0, 1, 2, 3, 0, 1])
        self.topics.update(TopicConfig("T", 0, 0, 6))
        self.assertEqual((self.topics.shown_queue("T", 5), self.topics.shown_queue("Unknown", 5)), (5, 5))

    def test_retry_topic_without_possible_directory_is_not_created(self):
        for group in ("a\0b", "/../../escaped", "g" * 121, "\n"):
            self.assertIsNone(self.topics.create_topic_in_send_message_back(f"%RETRY%{group}", 1, 6, 0))
        self.assertIsNotNone(self.topics.create_topic_in_send_message_back("%RETRY%组 a.b", 1, 6, 0))

    def test_change_by_administrator_is_stored_before_listeners_run(self):
        found = []
        self.topics.on_change(lambda change: found.append(self.reloaded().select("T") is not None))
        self.topics.update(TopicConfig("T"))
        self.assertEqual(found, [True])

    def test_topic_created_on_use_is_announced_and_stored(self):
        found = []
        self.topics.on_change(lambda change: found.append(self.topics.select("T") is not None))
        self.create()
        self.assertEqual(found, [True])
        self.assertIsNotNone(self.reloaded().select("T"))

    def test_full_disk_does_not_prevent_creation_on_use(self):
        self.topics = self.make(FullDisk())
        self.topics.on_change(self.heard.append)
        self.assertIsNotNone(self.create())
        self.assertEqual(len(self.heard), 1)

    def test_concurrent_creation_makes_one_topic(self):
        made = []
        threads = [threading.Thread(target=lambda: made.append(self.create())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len({id(config) for config in made}), 1)
        self.assertEqual(len(self.heard), 1)
        self.assertEqual(self.topics.data_version.counter, 1)


class AdministrationTests(TopicsTestCase):
    def test_update_replaces_counts_stores_and_announces(self):
        self.topics.update(TopicConfig("T", 4, 4))
        self.clock.advance(5)
        self.topics.update(TopicConfig("T", 8, 8, 4))
        self.assertEqual(self.topics.data_version, DataVersion(timestamp=1005_000, counter=2))
        again = self.reloaded()
        self.assertEqual(again.select("T"), TopicConfig("T", 8, 8, 4))
        self.assertEqual(again.data_version, self.topics.data_version)
        self.assertEqual(len(self.heard), 2)

    def test_update_with_failed_store_is_an_error(self):
        self.topics = self.make(FullDisk())
        errors = []
        self.topics.update(TopicConfig("T"), errors.append)
        self.topics.delete("T", errors.append)
        self.assertEqual([error.errno for error in errors], [28, 28])

    def test_delete_removes_topic(self):
        self.topics.update(TopicConfig("T"))
        self.assertTrue(self.topics.delete("T"))
        self.assertFalse(self.topics.delete("T"))
        self.assertIsNone(self.reloaded().select("T"))
        self.assertEqual(self.topics.data_version.counter, 2)
        self.assertEqual(len(self.heard), 2)

    def test_order_flags_follow_name_servers(self):
        for name in ("A", "B"):
            self.topics.update(TopicConfig(name))
        before = self.topics.select("A")
        self.topics.update_order_topics(["A", "Unknown"])
        self.assertTrue(self.topics.is_order_topic("A"))
        self.assertFalse(self.topics.is_order_topic("B"))
        self.assertFalse(before.order)
        self.assertEqual(self.topics.data_version.counter, 3)
        self.topics.update_order_topics(["A"])
        self.assertEqual(self.topics.data_version.counter, 3)
        self.topics.update_order_topics([])
        self.assertFalse(self.reloaded().is_order_topic("A"))
        self.assertEqual(len(self.heard), 2)

    def test_snapshot_does_not_change(self):
        snapshot = self.topics.snapshot()
        self.topics.update(TopicConfig("T"))
        self.assertNotIn("T", snapshot.topic_config_table)
        self.assertEqual(snapshot.data_version.counter, 0)

    def test_stored_topics_win_over_presets(self):
        Path(self.path).parent.mkdir(exist_ok=True)
        Path(self.path).write_text(
            '{"dataVersion":{"counter":7,"timestamp":9},"topicConfigTable":'
            '{"TBW102":{"perm":7,"readQueueNums":2,"topicName":"TBW102","writeQueueNums":2,"attributes":{}}}}'
        )
        self.topics = self.reloaded()
        self.assertEqual(self.create().write_queue_nums, 2)
        self.assertIsNotNone(self.topics.select("BenchmarkTest"))
        self.assertEqual(self.topics.data_version.counter, 8)


class JournalTests(TopicsTestCase):
    """A change of one topic among many."""

    def setUp(self):
        super().setUp()
        self.writer = TableWriter()
        self.topics = self.make(writer=self.writer)
        with self.topics._guard:
            for number in range(10_000):
                self.topics._put(f"T{number}", TopicConfig(topic_name=f"T{number}"))
        self.topics.persist()
        self.journal = Path(f"{self.path}.journal")
        self.writer.start()
        self.addCleanup(self.writer.stop)

    def make(self, file_system=None, writer=None):
        file = JsonFile(self.path, TopicConfigSerializeWrapper, file_system or RealFileSystem())
        return TopicConfigManager(self.settings, file, lambda: int(self.clock.seconds() * 1000), writer)

    def wait_for(self, change):
        done = threading.Event()
        change(lambda error: (self.assertIsNone(error), done.set()))
        self.assertTrue(done.wait(60))

    def test_new_topic_among_many_is_safe_without_a_write_of_the_table(self):
        self.patch(table_writer, "WHOLE_SECONDS", 1e9)
        before = Path(self.path).read_bytes()
        self.wait_for(partial(self.topics.update, TopicConfig(topic_name="New", read_queue_nums=3)))
        self.assertEqual(Path(self.path).read_bytes(), before)
        self.assertLess(self.journal.stat().st_size, 400)
        # The store of a killed broker.
        found = JsonFile(self.path, TopicConfigSerializeWrapper, RealFileSystem()).load()
        self.assertEqual(found, self.topics.snapshot())
        self.writer.stop()
        self.assertFalse(self.journal.exists())
        self.assertEqual(TopicConfigSerializeWrapper.decode(Path(self.path).read_bytes()), found)

    def test_deletion_and_order_are_written_with_the_whole_table(self):
        self.patch(table_writer, "WHOLE_SECONDS", 1e9)
        for change in (
            partial(self.topics.delete, "T5"),
            lambda written: (self.topics.update_order_topics(["T6"]), self.topics._saved.changed(written)),
        ):
            self.wait_for(partial(self.topics.update, TopicConfig(topic_name="New")))
            self.assertTrue(self.journal.exists())
            self.wait_for(change)
            self.assertFalse(self.journal.exists())
            self.assertEqual(TopicConfigSerializeWrapper.decode(Path(self.path).read_bytes()), self.topics.snapshot())

    def test_start_after_a_kill_moves_the_journal_into_the_file(self):
        self.patch(table_writer, "WHOLE_SECONDS", 1e9)
        self.wait_for(partial(self.topics.update, TopicConfig(topic_name="New", read_queue_nums=3)))
        topics = self.reloaded()
        self.assertEqual(topics.snapshot(), self.topics.snapshot())
        self.assertFalse(self.journal.exists())
        self.assertEqual(TopicConfigSerializeWrapper.decode(Path(self.path).read_bytes()), topics.snapshot())
