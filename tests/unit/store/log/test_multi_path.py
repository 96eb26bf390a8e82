"""A commit log in several directories: placement of new files, lookup of all files, missing disks."""

import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings.declaration import ConfigError
from rocketd.store.base.errors import (
    StoreBeginLostError,
    StoreEndMissingError,
    StoreFileMissingError,
    StoreFileTwiceError,
    StoreLogMissingError,
)
from rocketd.store.base.filesystem import DiskUsage
from rocketd.store.base.running_flags import RunningFlags
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.log.log_paths import LogPaths, log_paths, named_paths
from rocketd.store.offline.stopped_store import StoppedStore
from rocketd.store.testing import FaultyFileSystem
from rocketd.store.upkeep.disk_watch import DiskWatch
from rocketd.tools.cli import main
from tests.support.killed_stores import copy_of_killed
from tests.support.names_on_disk import NamesOnDisk
from tests.support.several_log_paths import COUNT, FILE, MultiPathTestCase


class LogPathsTests(SynchronousTestCase):
    def paths(self, text, read_only=None, **changes):
        return log_paths(
            MessageStoreConfig(
                store_path_root_dir="/s",
                store_path_commit_log=text,
                read_only_commit_log_store_paths=read_only,
                **changes,
            )
        )

    def test_single_path_is_unchanged(self):
        self.assertEqual(self.paths("/c"), LogPaths("/c", ("/c",)))
        self.assertEqual(self.paths("/c", "/old").all, ("/c",))
        self.assertEqual(self.paths("").all, ("/s/commitlog",))

    def test_default_below_a_root_with_a_comma_is_one_path(self):
        config = MessageStoreConfig(store_path_root_dir="/a,b")
        self.assertEqual(log_paths(config).all, ("/a,b/commitlog",))

    def test_multiple_paths_are_sorted_and_deduplicated(self):
        paths = self.paths(" /c2 , /c1,,/c2/,", "/old,/c2")
        self.assertEqual((paths.writable, paths.read_only), (("/c1",), ("/old", "/c2")))
        self.assertEqual(self.paths("/c2,/c1").writable, ("/c1", "/c2"))

    def test_splitter_of_the_settings_separates(self):
        paths = self.paths("/a,b|/c", "/d|/e", multi_path_splitter="|")
        self.assertEqual(paths.all, ("/a,b", "/c", "/d", "/e"))

    def test_named_paths_keep_order_and_read_only_paths(self):
        config = MessageStoreConfig(store_path_commit_log="/c2,/c1", read_only_commit_log_store_paths="/c1,/old")
        self.assertEqual(named_paths(config), ("/c2", "/c1"))

    def test_files_rotate_over_directories_with_room(self):
        paths = LogPaths("", ("/a", "/b", "/c"))
        self.assertEqual([paths.place(number) for number in range(4)], ["/a", "/b", "/c", "/a"])
        self.assertEqual([paths.place(number, {"/b"}) for number in range(3)], ["/a", "/c", "/a"])
        self.assertEqual(paths.place(1, {"/a", "/b", "/c"}), "/b")

    def load(self, text):
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("storePathRootDir=/s\n" + text)
        return BrokerSettings.load(path)

    def test_broker_without_a_directory_for_new_files_is_refused(self):
        error = self.assertRaises(
            ConfigError, self.load, "storePathCommitLog=/a,/b\nreadOnlyCommitLogStorePaths=/b,/a,/c\n"
        )
        self.assertIn("storePathCommitLog = /a,/b: there is no directory for new files", str(error))

    def test_broker_with_read_only_paths_beside_one_path_warns(self):
        _, warnings = self.load("storePathCommitLog=/a\nreadOnlyCommitLogStorePaths=/b\n")
        (warning,) = [text for text in warnings if "readOnlyCommitLogStorePaths" in text]
        self.assertIn("write it as /a, to have both", warning)


class MultiPathStoreTests(MultiPathTestCase):
    def test_files_alternate_between_directories_and_are_read_again(self):
        self.fill()
        files = self.files()
        self.assertEqual([files[self.first][:3], files[self.second][:2]], [[0, 2, 4], [1, 3]])
        store = self.open()
        self.assertEqual(self.bodies(store), self.expected())
        self.fill(store, 20)
        store.stop()
        self.assertEqual(self.bodies(self.open()), self.expected(COUNT + 20))
        self.assertFalse(os.path.exists(self.settings["store_path_commit_log"]))

    def test_names_of_directories_are_safe_after_a_start(self):
        self.fs = NamesOnDisk()
        base = os.path.dirname(self.root)
        self.settings = {"store_path_commit_log": f"{base}/a/b/one,{base}/c/two"}
        os.makedirs(f"{base}/c")  # by a process that was killed before it could sync the name
        self.open()
        unsafe = {path for top in ("a", "c") for path in self.fs.unsafe(os.path.join(base, top))}
        self.assertEqual(unsafe, set())

    def test_adding_a_directory_loses_nothing(self):
        self.settings = {"store_path_commit_log": self.first}
        self.fill()
        before = self.files()[self.first]
        self.settings = {"store_path_commit_log": f"{self.first},{self.second}"}
        self.fill()
        self.assertEqual(self.files()[self.first][: len(before)], before)
        self.assertTrue(self.files()[self.second])
        self.assertEqual(self.bodies(self.open()), self.expected(2 * COUNT))

    def test_read_only_directory_gets_no_new_file(self):
        self.settings = {"store_path_commit_log": self.old}
        self.fill()
        before = self.files()[self.old]
        for named in (f"{self.first},{self.second}", f"{self.first},{self.second},{self.old}"):
            self.settings = {"store_path_commit_log": named, "read_only_commit_log_store_paths": self.old}
            self.fill()
            self.assertEqual(self.files()[self.old], before)
        self.assertTrue(self.files()[self.first])
        self.assertTrue(self.files()[self.second])
        self.assertEqual(self.bodies(self.open()), self.expected(3 * COUNT))

    def test_full_directory_gets_no_new_file_until_all_are_full(self):
        ratios = {self.first: 0.5, self.second: 0.97}
        self.fs.disk_usage = lambda path: DiskUsage(
            int(ratios.get(path, 0.1) * 100), 100 - int(ratios.get(path, 0.1) * 100)
        )
        self.settings |= {"disk_space_warning_level_ratio": 0.99, "disk_space_clean_forcibly_ratio": 0.85}
        store = self.open()
        self.fill(store)
        self.assertEqual(self.files()[self.second], [])
        self.assertIsNone(store.refusal())
        ratios[self.first] = 0.9
        store.disk_watch.check()
        self.fill(store)
        self.assertTrue(self.files()[self.second])
        self.assertEqual(self.bodies(store), self.expected(2 * COUNT))

    def test_recovery_after_kill_reads_both_directories(self):
        store = self.open()
        self.fill(store)
        copy = copy_of_killed(store, os.path.abspath(self.mktemp()), os.path.dirname(self.root))
        self.root, self.first, self.second = (
            os.path.join(copy, os.path.basename(path)) for path in (self.root, self.first, self.second)
        )
        self.settings = {"store_path_commit_log": f"{self.second},{self.first}"}
        self.assertEqual(self.bodies(self.open()), self.expected())

    def test_oldest_files_expire_in_either_directory(self):
        store = self.open(file_reserved_time=0)
        self.fill(store)
        self.assertTrue(store.commit_log.queue.flush(0))
        queue = store.commit_log.queue
        for number in (0, 1, 2):
            self.assertTrue(queue.delete_first(queue.files[0]), number)
        self.assertEqual((self.files()[self.first][0], self.files()[self.second][0]), (4, 3))
        store.stop()
        self.assertEqual(self.open().min_physical_offset(), 3 * FILE)

    def test_slave_log_uses_directories_of_slave(self):
        master = self.open(store_path_root_dir=f"{self.root}-master", store_path_commit_log="")
        self.fill(master)
        slave = self.open(broker_role="SLAVE")
        self.assertEqual(slave.begin_replica(), 0)
        offset = 0
        while (data := master.commit_log.data_from(offset)) is not None and len(data):
            slave.append_replica(offset, bytes(data))
            offset += len(data)
        self.settle(slave)
        self.assertEqual(self.files()[self.second][:2], [1, 3])
        self.assertEqual(self.bodies(slave), self.expected())

    def test_unused_preallocated_file_is_removed_at_stop(self):
        self.fill()
        files = self.files()
        used = self.open().max_physical_offset() // FILE
        self.assertEqual(max(files[self.first] + files[self.second]), used)


class MissingDirectoryTests(MultiPathTestCase):
    def gone(self, directory):
        aside = os.path.abspath(self.mktemp())
        os.rename(directory, aside)
        return aside

    def back(self, aside, directory):
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(aside, directory)

    def test_start_without_files_of_one_directory_fails(self):
        self.fill()
        for directory in (self.first, self.second):
            aside = self.gone(directory)
            error = self.assertRaises((StoreFileMissingError, StoreEndMissingError, StoreBeginLostError), self.open)
            self.assertIn("missing", str(error))
            self.back(aside, directory)
        self.assertEqual(self.bodies(self.open()), self.expected())

    def test_start_without_files_of_both_directories_names_both(self):
        self.fill()
        asides = [self.gone(directory) for directory in (self.first, self.second)]
        error = self.assertRaises(StoreLogMissingError, self.open)
        for directory in (self.first, self.second):
            self.assertIn(f"{directory} (does not exist)", str(error))
            self.assertFalse(os.path.exists(directory))
        for aside, directory in zip(asides, (self.first, self.second), strict=True):
            self.back(aside, directory)
        self.assertEqual(self.bodies(self.open()), self.expected())


class FileTwiceTests(MultiPathTestCase):
    def test_start_with_same_file_in_both_directories_fails(self):
        self.fill()
        shutil.copy(self.path(self.first, 2), self.path(self.second, 2))
        for act in (self.open, lambda: StoppedStore(self.root, (self.first, self.second))):
            error = self.assertRaises(StoreFileTwiceError, act)
            self.assertIn(self.path(self.first, 2), str(error))
            self.assertIn(self.path(self.second, 2), str(error))
        os.unlink(self.path(self.second, 2))
        self.assertEqual(self.bodies(self.open()), self.expected())

    def test_unused_duplicate_file_is_removed(self):
        """Apache's broker leaves one if a directory gets full between the making of a file and its use."""
        self.fill()
        for content, number in ((b"", 1), (bytes(FILE), 3)):
            with open(self.path(self.first, number), "wb") as file:
                file.write(content)
            os.truncate(self.path(self.first, number), FILE)
        with open(self.path(self.second, 0), "wb"):
            pass
        self.assertEqual(self.bodies(self.open()), self.expected())
        self.assertNotIn(1, self.files()[self.first])
        self.assertNotIn(3, self.files()[self.first])
        self.assertNotIn(0, self.files()[self.second])


class MultiPathToolTests(MultiPathTestCase):
    def tool(self, *arguments):
        config = os.path.abspath(self.mktemp())
        with open(config, "w") as file:
            file.write(
                f"storePathCommitLog={self.first},{self.second}\nmappedFileSizeCommitLog={FILE}\n"
                "mappedFileSizeConsumeQueue=200\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
            )
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(("store", arguments[0], "-c", config, *arguments[1:], self.root))
        return status, out.getvalue(), err.getvalue()

    def test_verify_and_inspect_read_both_directories(self):
        self.fill()
        status, out, _ = self.tool("verify")
        self.assertEqual(status, 0, out)
        self.assertIn(f"no damage; {COUNT} records", out)
        status, out, _ = self.tool("inspect")
        self.assertEqual(status, 0)
        self.assertIn(str(sum(map(len, self.files().values()))), out)

    def test_repair_mends_a_record_in_the_second_directory(self):
        self.fill()
        with open(self.path(self.second, 1), "r+b") as file:
            file.seek(200)
            file.write(b"\xff" * 600)
        status, out, _ = self.tool("verify")
        self.assertEqual(status, 1)
        self.assertIn(f"c2{os.sep}{FILE:020d}", out)
        status, out, _ = self.tool("repair", "--write", "--replace-damaged")
        self.assertEqual(status, 0, out)
        bodies = self.bodies(self.open())
        self.assertEqual(len(bodies), COUNT)
        self.assertGreater(len(set(bodies) & set(self.expected())), COUNT - 6)

    def test_repair_without_log_directories_fails(self):
        self.fill()
        for directory in (self.first, self.second):
            os.rename(directory, directory + "-away")
        status, _, err = self.tool("repair", "--write")
        self.assertEqual(status, 1)
        self.assertIn(f"looked in {self.first} (does not exist), {self.second} (does not exist)", err)


class MultiPathDiskTests(SynchronousTestCase):
    def setUp(self):
        self.usage = {"/c1": 0.5, "/c2": 0.95, "/q": 0.2}
        fs = FaultyFileSystem()
        fs.disk_usage = lambda path: DiskUsage(round(self.usage[path] * 100), 100 - round(self.usage[path] * 100))
        self.avoided = []
        self.flags = RunningFlags()
        config = MessageStoreConfig(store_path_root_dir="/s")
        self.watch = DiskWatch(config, fs, ["/c1", "/c2"], "/q", self.flags, self.avoided.append)

    def test_disk_watch_uses_emptiest_directory_and_avoids_full_ones(self):
        self.watch.check()
        self.assertEqual((self.watch.ratio, self.flags.writable), (0.5, True))
        self.assertEqual(self.avoided[-1], {"/c2"})
        self.usage["/c1"] = 0.92
        self.watch.check()
        self.assertEqual((self.watch.ratio, self.flags.writable), (0.92, False))
        self.assertIn("disk of /c1", self.watch.describe())
        self.assertEqual(self.avoided[-1], {"/c1", "/c2"})
        self.usage.update({"/c1": 0.1, "/c2": 0.1})
        self.watch.check()
        self.assertEqual((self.flags.writable, self.avoided[-1]), (True, set()))
