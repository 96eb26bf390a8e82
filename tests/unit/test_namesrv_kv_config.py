"""The name server's KV configuration and the file it is kept in."""

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.namesrv.kv_config import KVConfigError, KVConfigManager
from rocketd.store.filesystem import RealFileSystem


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

    def test_begins_empty(self):
        self.assertFalse(self.is_found)
        self.assertIsNone(self.kv.get("N", "k"))
        self.assertIsNone(self.kv.of_namespace("N"))
        self.assertFalse(self.path.exists())

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

    def test_a_restart_keeps_it(self):
        self.kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")
        again = self.loaded()
        self.assertTrue(self.is_found)
        self.assertEqual(again.of_namespace("ORDER_TOPIC_CONFIG"), {"T": "broker-a:4;broker-b:4"})

    def test_the_file_is_apaches(self):
        self.kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
        self.assertEqual(
            self.path.read_text(),
            '{\n\t"configTable":{\n\t\t"ORDER_TOPIC_CONFIG":{\n\t\t\t"T":"broker-a:4"\n\t\t}\n\t}\n}',
        )

    def test_the_last_file_is_kept_as_backup(self):
        self.kv.put("N", "k", "1")
        self.kv.put("N", "k", "2")
        backup = json.loads(self.path.with_name("kvConfig.json.bak").read_text())
        self.assertEqual(backup, {"configTable": {"N": {"k": "1"}}})
        self.assertFalse(self.path.with_name("kvConfig.json.tmp").exists())

    def test_a_broken_file_falls_back_to_the_backup(self):
        self.kv.put("N", "k", "1")
        self.kv.put("N", "k", "2")
        for broken in ('{"configTable":{"N":', "", '["no", "object"]'):
            self.path.write_text(broken)
            self.assertEqual(self.loaded().get("N", "k"), "1")
            self.assertTrue(self.is_found)

    def test_what_cannot_be_read_is_not_written_over(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_text('{"configTable":{"N":')
        error = self.assertRaises(KVConfigError, self.loaded)
        self.assertIn("mend it, or move it away", str(error))
        self.assertEqual(self.path.read_text(), '{"configTable":{"N":')

    def test_a_hand_written_file_may_be_sloppy(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_text("{'configTable': {'N': {'port': 9876, 'on': true,},},}\n")
        kv = self.loaded()
        self.assertEqual(kv.of_namespace("N"), {"port": "9876", "on": "true"})

    def test_a_file_that_cannot_be_written_is_logged_and_the_value_counts(self):
        kv = KVConfigManager(str(self.path), FullDisk())
        kv.put("N", "k", "v")
        self.assertEqual(kv.get("N", "k"), "v")
        self.assertFalse(self.path.exists())
