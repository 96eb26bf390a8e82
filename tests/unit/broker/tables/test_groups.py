import os
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.groups import SubscriptionGroupManager
from rocketd.common import table_writer
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.bodies.tables import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketd.remoting.errors import RequestError
from rocketd.store.base.filesystem import RealFileSystem


class FullDisk(RealFileSystem):
    def write_file(self, path, data):
        raise OSError(28, "No space left on device")


class GroupsTests(SynchronousTestCase):
    def setUp(self):
        self.path = os.path.join(self.mktemp(), "subscriptionGroup.json")
        self.settings = BrokerConfig()
        self.groups = self.make()

    def make(self, file_system=None, writer=None):
        file = JsonFile(self.path, SubscriptionGroupWrapper, file_system or RealFileSystem())
        groups = SubscriptionGroupManager(self.settings, file, lambda: 1234, writer)
        groups.load()
        return groups

    def test_new_table_has_preset_groups(self):
        self.assertEqual(
            set(self.groups.snapshot().subscription_group_table),
            {
                "TOOLS_CONSUMER",
                "FILTERSRV_CONSUMER",
                "SELF_TEST_C_GROUP",
                "CID_ONS-HTTP-PROXY",
                "CID_ONSAPI_PULL",
                "CID_ONSAPI_PERMISSION",
                "CID_ONSAPI_OWNER",
            },
        )

    def test_group_is_created_on_first_use_and_stored(self):
        config = self.groups.find("G")
        self.assertEqual(config, SubscriptionGroupConfig("G"))
        self.assertIs(self.groups.find("G"), config)
        again = self.make().snapshot()
        self.assertEqual(again.subscription_group_table["G"], config)
        self.assertEqual((again.data_version.counter, again.data_version.timestamp), (1, 1234))

    def test_group_is_not_created_without_auto_create(self):
        self.settings.auto_create_subscription_group = False
        self.assertIsNone(self.groups.find("G"))
        self.assertIsNotNone(self.groups.find("CID_RMQ_SYS_TRANS"))
        self.assertIsNotNone(self.groups.find("TOOLS_CONSUMER"))

    def test_group_whose_retry_topic_cannot_be_stored_is_not_created(self):
        for group in ("g" * 121, "ä" * 61, "a\0b", "a/b"):
            error = self.assertRaises(RequestError, self.groups.find, group)
            self.assertEqual(error.code, 1)
            self.assertIn("group-illegal", error.remark)
            self.assertIsNone(self.groups.get(group))
        self.assertIsNotNone(self.groups.find("g" * 120))

    def test_known_group_with_long_name_stays(self):
        self.groups.update(SubscriptionGroupConfig("g" * 121))
        self.assertEqual(self.make().find("g" * 121), SubscriptionGroupConfig("g" * 121))

    def test_full_disk_does_not_prevent_creation_on_use(self):
        self.assertIsNotNone(self.make(FullDisk()).find("G"))

    def test_update_and_delete(self):
        self.groups.update(SubscriptionGroupConfig("G", retry_max_times=3, consume_enable=False))
        self.assertEqual(self.make().find("G").retry_max_times, 3)
        self.assertTrue(self.groups.delete("G"))
        self.assertFalse(self.groups.delete("G"))
        self.assertNotIn("G", self.make().snapshot().subscription_group_table)
        self.assertEqual(self.groups.snapshot().data_version.counter, 2)

    def test_new_group_among_many_is_safe_without_a_write_of_the_table(self):
        self.patch(table_writer, "WHOLE_SECONDS", 1e9)
        writer = TableWriter()
        groups = self.make(writer=writer)
        with groups._guard:
            for number in range(10_000):
                groups._put(f"G{number}", SubscriptionGroupConfig(f"G{number}"))
        groups.persist()
        before = Path(self.path).read_bytes()
        writer.start()
        self.addCleanup(writer.stop)
        done = threading.Event()
        groups.update(SubscriptionGroupConfig("New", retry_queue_nums=3), lambda error: done.set())
        self.assertTrue(done.wait(60))
        self.assertEqual(Path(self.path).read_bytes(), before)
        self.assertLess(Path(f"{self.path}.journal").stat().st_size, 500)
        # The store of a killed broker.
        self.assertEqual(self.make().snapshot(), groups.snapshot())
        self.assertEqual(SubscriptionGroupWrapper.decode(Path(self.path).read_bytes()), groups.snapshot())
