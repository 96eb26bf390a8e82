"""The name server's KV configuration and the file it is kept in."""

import json
from pathlib import Path

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.logs.throttle import EVENT_LINES
from rocketd.namesrv.kv_config import KVConfigError, KVConfigManager
from rocketd.store.base.filesystem import RealFileSystem


class FullDisk(RealFileSystem):
    def write_file(self, path, data):
        raise OSError(28, "No space left on device", path)


class KVConfigTest(SynchronousTestCase):
    def setUp(self):
        self.path = Path(self.mktemp()) / "namesrv" / "kvConfig.json"
        self.kv = self.loaded()

    def loaded(self):
        kv = KVConfigManager(str(self.path), RealFileSystem())
        self.is_found = kv.load()
        return kv

    def test_new_table_is_empty(self):
        self.assertFalse(self.is_found)
        self.assertIsNone(self.kv.get("N", "k"))
        self.assertIsNone(self.kv.of_namespace("N"))
        self.assertFalse(self.path.exists())

    def test_many_changes_leave_a_bounded_number_of_lines(self):
        lines = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        for number in range(EVENT_LINES + 50):
            self.kv.put("N", str(number), "v")
        self.assertEqual(len(lines), EVENT_LINES)

    def test_put_get_delete_list(self):
        self.kv.put("N", "k", "v")
        self.kv.put("N", "l", "w")
        self.assertEqual(self.kv.get("N", "k"), "v")
        self.assertEqual(self.kv.of_namespace("N"), {"k": "v", "l": "w"})
        self.kv.delete("N", "k")
        self.kv.delete("M", "k")
        self.assertIsNone(self.kv.get("N", "k"))
        self.assertEqual(self.kv.of_namespace("N"), {"l": "w"})
        self.assertIsNone(self.kv.of_namespace("M"))
        self.kv.delete("N", "l")
        self.assertEqual(self.kv.of_namespace("N"), {})

    def test_every_change_grows_the_revision(self):
        before = self.kv.revision
        self.kv.put("N", "k", "v")
        self.assertGreater(self.kv.revision, before)
        before = self.kv.revision
        self.kv.delete("N", "k")
        self.assertGreater(self.kv.revision, before)

    def test_load_after_restart_returns_stored_values(self):
        self.kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")
        again = self.loaded()
        self.assertTrue(self.is_found)
        self.assertEqual(again.of_namespace("ORDER_TOPIC_CONFIG"), {"T": "broker-a:4;broker-b:4"})

    def test_file_has_apaches_format(self):
        self.kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
        self.assertEqual(
            self.path.read_text(),
            '{\n\t"configTable":{\n\t\t"ORDER_TOPIC_CONFIG":{\n\t\t\t"T":"broker-a:4"\n\t\t}\n\t}\n}',
        )

    def test_put_keeps_previous_file_as_backup(self):
        self.kv.put("N", "k", "1")
        self.kv.put("N", "k", "2")
        backup = json.loads(self.path.with_name("kvConfig.json.bak").read_text())
        self.assertEqual(backup, {"configTable": {"N": {"k": "1"}}})
        self.assertFalse(self.path.with_name("kvConfig.json.tmp").exists())

    def test_load_of_broken_file_reads_backup(self):
        self.kv.put("N", "k", "1")
        self.kv.put("N", "k", "2")
        for broken in ('{"configTable":{"N":', "", '["no", "object"]'):
            self.path.write_text(broken)
            self.assertEqual(self.loaded().get("N", "k"), "1")
            self.assertTrue(self.is_found)

    def test_load_of_broken_file_without_backup_fails(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_text('{"configTable":{"N":')
        error = self.assertRaises(KVConfigError, self.loaded)
        self.assertIn("repair it, or move it away", str(error))
        self.assertEqual(self.path.read_text(), '{"configTable":{"N":')

    def test_load_accepts_lenient_json(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_text("{'configTable': {'N': {'port': 9876, 'on': true,},},}\n")
        kv = self.loaded()
        self.assertEqual(kv.of_namespace("N"), {"port": "9876", "on": "true"})

    def test_put_with_failed_write_keeps_value(self):
        kv = KVConfigManager(str(self.path), FullDisk())
        kv.put("N", "k", "v")
        self.assertEqual(kv.get("N", "k"), "v")
        self.assertFalse(self.path.exists())
