"""rocketd.testing.simulated.memory_disk: the data left after a kill and after a power cut."""

import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreLockedError
from rocketd.store.format.message import PutStatus
from rocketd.store.format.record import decode_message
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, make_message, small_config
from rocketd.testing.simulated.memory_disk import MemoryDisk
from rocketd.testing.simulated.virtual_time import VirtualTime


def open_memory():
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum("/memfd:rocketd" in os.readlink(link) for link in links if os.path.islink(link))


def bodies(store):
    found = []
    while entries := store.queue_entries("TopicTest", 0, len(found), 1000):
        found += [bytes(decode_message(store.look_message(physical_offset)).body) for physical_offset, _, _ in entries]
    return found


class DiskTestCase(SynchronousTestCase):
    def setUp(self):
        self.disks = []
        self.disk = self.keep(MemoryDisk(VirtualTime()))

    def keep(self, disk):
        self.addCleanup(disk.close_all)
        return disk

    def written(self, path, data, size=None, sync=False):
        """Write into a file that stays open as long as it takes."""
        fd = self.disk.open(path, size)
        self.disk.pwrite(fd, data, 0)
        if sync:
            self.disk.fdatasync(fd)
        self.disk.close(fd)

    def after(self, power_cut):
        return self.keep(self.disk.survivors(power_cut=power_cut))


class NamesTests(DiskTestCase):
    def test_directories(self):
        self.disk.makedirs("/a/b/c")
        self.written("/a/b/file", b"x", 1)
        self.assertTrue(all(map(self.disk.exists, ("/", "/a", "/a/b", "/a/b/c", "/a/b/file"))))
        self.assertEqual(self.disk.listdir("/a/b"), ["c", "file"])
        self.assertEqual(self.disk.listdir("/nowhere"), [])
        self.disk.rmdir("/a/b")
        self.assertTrue(self.disk.exists("/a/b"))
        self.disk.remove("/a/b/file")
        self.disk.remove("/a/b/file")
        self.disk.rmdir("/a/b/c")
        self.disk.rmdir("/a/b")
        self.assertEqual(self.disk.listdir("/a"), [])

    def test_missing_files_raise(self):
        for call in (
            lambda: self.disk.open("/none"),
            lambda: self.disk.read_file("/none"),
            lambda: self.disk.file_size("/none"),
            lambda: self.disk.rename("/none", "/other"),
            lambda: self.disk.open("/no/directory", 4),
            lambda: self.disk.write_file("/no/directory", b""),
        ):
            self.assertRaises(FileNotFoundError, call)

    def test_rename_replaces(self):
        self.disk.write_file("/old", b"old")
        self.disk.write_file("/new", b"new")
        self.disk.rename("/new", "/old")
        self.assertEqual(self.disk.listdir("/"), ["old"])
        self.assertEqual(self.disk.read_file("/old"), b"new")

    def test_lock(self):
        fd = self.disk.lock("/lock", b"lock")
        self.assertRaises(StoreLockedError, self.disk.lock, "/lock", b"lock")
        self.assertEqual(self.disk.read_file("/lock"), b"lock")
        self.disk.unlock(fd)
        self.disk.unlock(self.disk.lock("/lock", b"lock"))

    def test_identity_lasts_until_the_power_is_cut(self):
        self.disk.write_file("/one", b"")
        self.disk.write_file("/two", b"")
        self.disk.sync_dir("/")
        self.assertNotEqual(self.disk.identity("/one"), self.disk.identity("/two"))
        self.assertEqual(self.after(power_cut=False).identity("/one"), self.disk.identity("/one"))
        self.assertNotEqual(self.after(power_cut=True).identity("/one"), self.disk.identity("/one"))


class BytesTests(DiskTestCase):
    def test_mappings_and_writes_see_each_other(self):
        fd = self.disk.open("/file", 8192)
        mapping = self.disk.map(fd, 8192, True)
        self.disk.pwrite(fd, b"written", 0)
        mapping[4096:4102] = b"mapped"
        self.disk.close(fd)
        self.assertEqual(mapping[:7], b"written")
        self.assertEqual(self.disk.read_file("/file")[4096:4102], b"mapped")
        self.assertEqual(self.disk.file_size("/file"), 8192)
        mapping.close()

    def test_holes(self):
        fd = self.disk.open("/file", 1 << 20)
        self.disk.pwrite(fd, b"x", 5 * 4096)
        self.assertEqual(self.disk.data_ranges("/file", 0), [(5 * 4096, 6 * 4096)])
        self.disk.clear_from(fd, 0)
        self.disk.close(fd)
        self.assertEqual(self.disk.read_file("/file"), bytes(1 << 20))

    def test_a_file_made_longer_and_shorter(self):
        self.written("/file", b"abcdef", 6)
        self.disk.close(self.disk.open("/file", 3))
        self.assertEqual(self.disk.read_file("/file"), b"abc")
        self.disk.close(self.disk.open("/file", 5))
        self.assertEqual(self.disk.read_file("/file"), b"abc\0\0")

    def test_times_are_those_of_the_cluster(self):
        virtual = VirtualTime()
        disk = self.keep(MemoryDisk(virtual))
        disk.write_file("/file", b"")
        before = disk.modified("/file")
        with virtual.standing():
            virtual.jump_to(virtual.seconds() + 3600)
        disk.write_file("/file", b"")
        self.assertLess(abs(disk.modified("/file") - before - 3_600_000), 60_000)

    def test_memory_is_given_back(self):
        before = open_memory()
        disk = MemoryDisk(VirtualTime())
        for number in range(5):
            disk.write_file(f"/{number}", b"x")
        disk.sync_dir("/")
        disk.remove("/0")
        disk.rename("/1", "/2")
        after = disk.survivors(power_cut=False)
        disk.sync_dir("/")
        disk.close_all()
        after.close_all()
        self.assertEqual(open_memory(), before)


class KillTests(DiskTestCase):
    def test_kill_keeps_all_writes(self):
        self.written("/file", b"abc", 100)
        after = self.after(power_cut=False)
        self.assertEqual(after.read_file("/file"), b"abc".ljust(100, b"\0"))
        self.written("/file", b"xyz")
        self.assertEqual(after.read_file("/file")[:3], b"abc")  # writes of the killed process do not arrive

    def test_power_cut_loses_unsynced_writes(self):
        self.written("/synced", b"abc", 10, sync=True)
        self.written("/synced", b"ABC")
        self.written("/unsynced", b"abc", 10)
        self.disk.sync_dir("/")
        self.written("/no_name", b"abc", 10, sync=True)
        self.disk.write_file("/small", b"whole")
        after = self.after(power_cut=True)
        self.assertEqual(after.listdir("/"), ["synced", "unsynced"])
        self.assertEqual(after.read_file("/synced"), b"abc".ljust(10, b"\0"))
        self.assertEqual(after.read_file("/unsynced"), bytes(10))

    def test_power_cut_after_kill_loses_unsynced_writes(self):
        self.written("/file", b"abc", 10, sync=True)
        self.disk.sync_dir("/")
        self.written("/file", b"xyz")
        killed = self.after(power_cut=False)
        self.assertEqual(killed.read_file("/file")[:3], b"xyz")
        self.assertEqual(self.keep(killed.survivors(power_cut=True)).read_file("/file")[:3], b"abc")

    def test_names_removed_without_sync_return_after_power_cut(self):
        self.disk.write_file("/removed", b"1")
        self.disk.write_file("/replaced", b"2")
        self.disk.sync_dir("/")
        self.disk.remove("/removed")
        self.disk.write_file("/new", b"3")
        self.disk.rename("/new", "/replaced")
        after = self.after(power_cut=True)
        self.assertEqual([after.read_file("/removed"), after.read_file("/replaced")], [b"1", b"2"])
        self.disk.sync_dir("/")
        after = self.after(power_cut=True)
        self.assertEqual(after.listdir("/"), ["replaced"])
        self.assertEqual(after.read_file("/replaced"), b"3")

    def test_mapped_writes_survive_kill_and_after_sync_power_cut(self):
        fd = self.disk.open("/file", 4096)
        self.disk.sync_dir("/")
        mapping = self.disk.map(fd, 4096, True)
        mapping[:3] = b"one"
        self.disk.fdatasync(fd)
        mapping[:3] = b"two"
        self.assertEqual(self.after(power_cut=True).read_file("/file")[:3], b"one")
        self.assertEqual(self.after(power_cut=False).read_file("/file")[:3], b"two")
        self.disk.close(fd)
        mapping.close()

    def test_stores_recover_from_both(self):
        for power_cut in (False, True):
            disk = self.keep(MemoryDisk(VirtualTime()))
            kept = 0
            for _ in range(3):
                store = MessageStore(small_config("/store"), STORE_HOST, fs=disk)
                store.start()
                found = bodies(store)
                self.assertEqual(found[:kept], [b"%d" % number for number in range(kept)])
                for number in range(len(found), len(found) + 30):
                    (result,) = store.put_messages([make_message(b"%d" % number, key=f"k{number}")])
                    self.assertIs(result.status, PutStatus.PUT_OK)
                    kept = number + 1
                if power_cut:
                    self.assertTrue(store.wait_until_flushed(store.max_physical_offset()))
                store.put_messages([make_message(b"%d" % kept)])
                disk, before = self.keep(disk.survivors(power_cut=power_cut)), disk
                self.assertIsNot(disk, before)
                store.stop()
            self.assertGreaterEqual(kept, 90)
