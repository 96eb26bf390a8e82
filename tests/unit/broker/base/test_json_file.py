import lzma
import os
import tarfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.json_file import JsonFile, JsonFileError
from rocketd.remoting.bodies.tables import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.store.base.filesystem import RealFileSystem
from tests.support.places import GOLDEN

STORES = GOLDEN / "stores"

OLD = DelayOffsetSerializeWrapper({1: 5})
NEW = DelayOffsetSerializeWrapper({1: 6, 3: 2})


class DiskFullAfter(RealFileSystem):
    """Fails at the nth change of the disk and at all later ones."""

    def __init__(self, changes):
        self.left = changes

    def _spend(self):
        if self.left == 0:
            raise OSError(28, "No space left on device")
        self.left -= 1

    def write_file(self, path, data):
        try:
            self._spend()
        except OSError:
            super().write_file(path, data[: len(data) // 2])
            raise
        super().write_file(path, data)

    def rename(self, source, target):
        self._spend()
        super().rename(source, target)


class JsonFileTests(SynchronousTestCase):
    def setUp(self):
        self.path = os.path.join(self.mktemp(), "config", "delayOffset.json")

    def file(self, file_system=None):
        return JsonFile(self.path, DelayOffsetSerializeWrapper, file_system or RealFileSystem())

    def save(self, *contents, file=None):
        file = file or self.file()
        for number, content in enumerate(contents):
            file.save(lambda number=number, content=content: (number, content))

    def damage(self, path, data=b'{"offsetTable":{1:'):
        Path(path).write_bytes(data)

    def test_load_without_file_returns_none(self):
        self.assertIsNone(self.file().load())

    def test_saved_content_is_loaded(self):
        self.save(OLD)
        self.assertEqual(self.file().load(), OLD)
        self.assertEqual(Path(self.path).read_text(), '{\n\t"offsetTable":{1:5\n\t}\n}')
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["delayOffset.json"])

    def test_save_keeps_previous_content_as_backup(self):
        self.save(OLD, NEW)
        self.assertEqual(self.file().load(), NEW)
        os.rename(self.path + ".bak", self.path)
        self.assertEqual(self.file().load(), OLD)

    def test_load_of_damaged_file_reads_backup(self):
        self.save(OLD, NEW)
        for data in (b'{"offsetTable":{1:', b"", b"[]", b"\x00" * 20):
            self.damage(self.path, data)
            self.assertEqual(self.file().load(), OLD, data)

    def test_load_of_missing_file_reads_backup(self):
        self.save(OLD, NEW)
        os.remove(self.path)
        self.assertEqual(self.file().load(), OLD)

    def test_load_of_damaged_file_and_backup_names_both(self):
        self.save(OLD, NEW)
        self.damage(self.path)
        self.damage(self.path + ".bak", b"")
        error = self.assertRaises(JsonFileError, self.file().load)
        self.assertIn(self.path + " (", str(error))
        self.assertIn(self.path + ".bak (it is empty)", str(error))
        self.assertNotIn("\n", str(error))

    def test_save_over_damaged_file_keeps_backup(self):
        self.save(OLD, NEW)
        self.damage(self.path)
        file = self.file()
        file.load()
        self.save(NEW, file=file)
        self.assertEqual(self.file().load(), NEW)
        self.damage(self.path)
        self.assertEqual(self.file().load(), OLD)

    def test_save_with_same_number_writes_nothing(self):
        file = self.file()
        file.save(lambda: (1, OLD))
        file.save(lambda: (1, NEW))
        self.assertEqual(self.file().load(), OLD)
        file.save(lambda: (2, NEW))
        self.assertEqual(self.file().load(), NEW)

    def test_failed_save_leaves_old_or_new_content(self):
        self.save(NEW, OLD)
        for steps in range(3):
            self.assertRaises(OSError, self.save, NEW, file=self.file(DiskFullAfter(steps)))
            self.assertEqual(self.file().load(), OLD, f"after {steps} steps")
            self.save(OLD, OLD)

    def test_failed_save_is_repeatable(self):
        disk = DiskFullAfter(0)
        file = self.file(disk)
        self.assertRaises(OSError, file.save, lambda: (1, NEW))
        disk.left = -1
        file.save(lambda: (1, NEW))
        self.assertEqual(self.file().load(), NEW)


class ApacheFilesTests(SynchronousTestCase):
    """The files of a broker that Apache's own code wrote."""

    def test_apaches_files_are_written_back_unchanged(self):
        types = {
            "topics.json": TopicConfigSerializeWrapper,
            "subscriptionGroup.json": SubscriptionGroupWrapper,
            "consumerOffset.json": ConsumerOffsetSerializeWrapper,
            "delayOffset.json": DelayOffsetSerializeWrapper,
        }
        directory = Path(self.mktemp())
        directory.mkdir()
        with lzma.open(STORES / "store-clean.tar.xz") as packed, tarfile.open(fileobj=packed) as archive:
            for name in types:
                (directory / name).write_bytes(archive.extractfile(f"store-clean/config/{name}").read())
        for name, content_type in types.items():
            original = (directory / name).read_bytes()
            file = JsonFile(str(directory / name), content_type, RealFileSystem())
            content = file.load()
            file.save(lambda content=content: (1, content))
            written = (directory / name).read_bytes()
            self.assertEqual(fastjson.loads(written), fastjson.loads(original), name)
            self.assertEqual(sorted(written.split(b"\n")), sorted(original.split(b"\n")), name)
