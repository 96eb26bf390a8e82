"""The files of one directory as one run of bytes, their deletion and warming; the flags of the store."""

import os
import queue
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import CreateMappedFileError, StoreFileSizeError
from rocketd.store.base.filesystem import DiskUsage, RealFileSystem
from rocketd.store.base.running_flags import DISK_FULL, NOT_READABLE, WRITE_LOGICS_QUEUE_ERROR, RunningFlags
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.mapped_file import PAGE_SIZE, WARM_STEP, LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.log.queue_file import QueueMappings
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, small_config

WAIT = 60
SIZE = 8192


class MappedFileQueueTests(SynchronousTestCase):
    def setUp(self):
        self.fs = FaultyFileSystem()
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.queue = self.make()

    def make(self, size=SIZE):
        queue = MappedFileQueue(self.fs, self.directory, size, LogFile)
        queue.load()
        self.addCleanup(queue.close)
        return queue

    def add(self, offset, data=b""):
        file = self.queue.open_file(offset)
        self.queue.add(file)
        if data:
            file.append(data)
        return file

    def test_empty_queue_has_no_files(self):
        self.assertEqual((self.queue.min_offset, self.queue.max_offset), (-1, 0))
        self.assertIsNone(self.queue.last)
        self.assertIsNone(self.queue.find(0))
        self.assertTrue(self.queue.flush(0))

    def test_new_file_has_full_length(self):
        for make, name in ((LogFile, "log"), (QueueMappings().open_file, "queue")):
            path = os.path.join(self.directory, name)
            self.addCleanup(make(self.fs, path, 0, SIZE).close)
            self.assertEqual(os.path.getsize(path), SIZE)

    def test_find_returns_file_of_offset(self):
        files = [self.add(SIZE * number) for number in (2, 3, 4)]
        for offset, expected in (
            (2 * SIZE - 1, None),
            (2 * SIZE, files[0]),
            (3 * SIZE - 1, files[0]),
            (3 * SIZE, files[1]),
            (5 * SIZE - 1, files[2]),
            (5 * SIZE, None),
            (-1, None),
        ):
            self.assertIs(self.queue.find(offset), expected, offset)

    def test_find_offset_of_missing_file_returns_none(self):
        for number in (0, 1, 3):
            self.add(SIZE * number)
        again = self.make()
        self.assertEqual(again.find(3 * SIZE).file_from_offset, 3 * SIZE)
        self.assertIsNone(again.find(2 * SIZE))

    def test_load_takes_only_mapped_files(self):
        self.add(0)
        for name in ("notes.txt", "1", "x" * 20):
            with open(os.path.join(self.directory, name), "wb"):
                pass
        self.assertEqual([file.file_from_offset for file in self.make().files], [0])

    def test_load_refuses_file_of_other_size(self):
        self.add(0)
        with self.assertRaises(StoreFileSizeError):
            self.make(4096)

    def test_select_is_limited_to_appended_bytes(self):
        file = self.add(0, b"abc")
        self.assertEqual(bytes(file.select(1, 2)), b"bc")
        for position, size in ((1, 3), (3, 1), (0, -1)):
            self.assertIsNone(file.select(position, size))

    def test_truncation_removes_bytes_and_files(self):
        for number in range(3):
            self.add(SIZE * number, b"x" * SIZE)
        self.queue.flush(0)
        self.queue.truncate(SIZE + 5, clear=True)
        self.assertEqual((self.queue.max_offset, self.queue.flushed_where), (SIZE + 5, SIZE + 5))
        self.assertEqual(len(os.listdir(self.directory)), 2)
        self.assertEqual(bytes(self.queue.files[1].view), b"x" * 5 + bytes(SIZE - 5))

    def test_flush_waits_for_least_pages(self):
        file = self.add(0, b"x" * 4000)
        self.assertFalse(self.queue.flush(1))
        file.append(b"x" * 200)
        self.assertTrue(self.queue.flush(1))
        self.assertEqual((self.queue.flushed_where, self.fs.calls["fdatasync"]), (4200, 1))

    def test_failed_flush_does_not_count(self):
        self.add(0, b"x" * SIZE)
        self.add(SIZE, b"x")
        self.fs.fail("fdatasync", OSError("input/output error"), nth=2)
        with self.assertRaises(OSError):
            self.queue.flush(0)
        self.assertEqual(self.queue.flushed_where, SIZE)
        self.assertTrue(self.queue.flush(0))
        self.assertEqual(self.queue.flushed_where, SIZE + 1)

    def test_truncation_removes_files_from_the_end(self):
        for number in range(4):
            self.add(SIZE * number, b"x" * SIZE)
        self.fs.fail("remove", OSError("input/output error"), nth=2)
        with self.assertRaises(OSError):
            self.queue.truncate(5, clear=False)
        self.assertEqual([int(name) for name in sorted(os.listdir(self.directory))], [0, SIZE, 2 * SIZE])

    def filled(self, count):
        """That many full files on the disk."""
        files = [self.add(SIZE * number, b"x" * SIZE) for number in range(count)]
        self.queue.flush(0)
        return files

    def test_delete_first_removes_first_file(self):
        files = self.filled(3)
        self.assertTrue(self.queue.delete_first(files[0]))
        self.assertEqual((self.queue.files, self.queue.min_offset), (files[1:], SIZE))
        self.assertIsNone(files[0].select(0, 1))
        self.assertFalse(os.path.exists(files[0].path))
        self.assertEqual((self.fs.calls["remove"], self.fs.calls["sync_dir"]), (1, 1))
        # Its descriptor went with it.
        with self.assertRaises(OSError):
            os.fstat(files[0]._fd)

    def test_delete_first_refuses_later_and_last_files(self):
        files = self.filled(3)
        for file in files[1:]:
            self.assertFalse(self.queue.delete_first(file))
        for file in files[:2]:
            self.assertTrue(self.queue.delete_first(file))
            self.assertFalse(self.queue.delete_first(file))
        self.assertFalse(self.queue.delete_first(files[2]))
        self.assertEqual(self.queue.files, files[2:])

    def test_delete_first_refuses_file_being_flushed(self):
        first = self.add(0, b"x" * SIZE)
        self.add(SIZE, b"x")
        gate = self.fs.block("fdatasync")
        flush = threading.Thread(target=self.queue.flush, args=(0,))
        flush.start()
        self.assertFalse(self.queue.delete_first(first))
        gate.set()
        flush.join()
        self.assertTrue(self.queue.delete_first(first))

    def test_delete_first_failure_keeps_file_usable(self):
        files = self.filled(2)
        self.fs.fail("remove", OSError("read-only file system"))
        with self.assertRaises(OSError):
            self.queue.delete_first(files[0])
        self.assertEqual(bytes(self.queue.find(0).select(0, 1)), b"x")
        self.assertTrue(self.queue.delete_first(files[0]))

    def test_append_during_deletion_is_kept(self):
        files = self.filled(2)
        remove = self.fs.remove

        def removed(path):
            # As the storage thread would in the middle of a long removal.
            files.append(self.add(2 * SIZE, b"y"))
            remove(path)

        self.fs.remove = removed
        self.assertTrue(self.queue.delete_first(files[0]))
        self.assertEqual(self.queue.files, files[1:])

    def test_destroy_keeps_file_of_recreated_queue(self):
        files = self.filled(2)
        self.queue.destroy()
        os.makedirs(self.directory)
        self.make().add(self.queue.open_file(0))
        self.assertFalse(self.queue.delete_first(files[0]))
        self.assertTrue(os.path.exists(files[0].path))

    def test_mapping_lives_as_long_as_its_readers(self):
        files = self.filled(2)
        mapping = files[0].mapping()
        view = files[0].select(5, 3)
        self.queue.delete_first(files.pop(0))
        self.assertEqual((bytes(view), mapping() is None), (b"xxx", False))
        del view
        self.assertIsNone(mapping())

    def test_view_of_a_removed_file_stays(self):
        view = self.add(0, b"abc").select(0, 3)
        self.queue.destroy()
        self.assertEqual((bytes(view), os.path.exists(self.directory)), (b"abc", False))


class WarmTests(SynchronousTestCase):
    """Files made ahead, with their room reserved and their pages in memory."""

    SIZE = 4 * WARM_STEP + PAGE_SIZE

    def setUp(self):
        self.fs = FaultyFileSystem()
        self.log = CommitLog(self.fs, self.mktemp(), self.SIZE)
        self.log.load()
        self.steps = queue.SimpleQueue()
        self.go_on = threading.Semaphore(0)
        self.addCleanup(self.log.queue.close)

    def start(self, flush_bytes=0):
        def warm(file, hurry):
            def asked():
                self.steps.put(file.file_from_offset)
                self.go_on.acquire()
                return hurry()

            file.warm(asked, flush_bytes)

        self.log.allocate.warm = warm
        self.log.allocate.start()
        self.addCleanup(self.log.allocate.stop)
        # A cleanup that runs first.
        self.addCleanup(self.go_on.release, 100)

    def blocks(self, offset):
        return os.stat(self.log.queue.path_of(offset)).st_blocks * 512

    def test_next_file_is_warmed_step_by_step(self):
        self.start()
        self.go_on.release()
        first = self.log.next_file()
        # A caller waited for the file: its room is reserved, but it is not warmed.
        self.assertEqual(self.steps.get(timeout=WAIT), 0)
        self.assertGreaterEqual(self.blocks(0), self.SIZE)
        self.assertEqual(self.fs.calls["pwrite"], 0)
        self.go_on.release(5)
        for _ in range(5):
            self.assertEqual(self.steps.get(timeout=WAIT), self.SIZE)
        first.append(b"x" * self.SIZE)
        second = self.log.next_file()
        self.assertEqual((self.fs.calls["pwrite"], self.fs.calls["fdatasync"]), (6, 0))
        self.assertEqual((second.file_from_offset, second.wrote_position), (self.SIZE, 0))
        self.assertEqual(bytes(second.view), bytes(self.SIZE))

    def test_warming_ends_if_file_is_wanted(self):
        self.start()
        self.go_on.release(2)
        first = self.log.next_file()
        for offset in (0, self.SIZE, self.SIZE):
            self.assertEqual(self.steps.get(timeout=WAIT), offset)
        first.append(b"x" * self.SIZE)
        # One page step is done; before the next it is found that the file is wanted.
        got = queue.SimpleQueue()
        thread = threading.Thread(target=lambda: got.put(self.log.next_file()))
        thread.start()
        while not self.log.allocate._requests[self.SIZE].wanted:
            self.assertTrue(thread.is_alive())
        self.go_on.release()
        second = got.get(timeout=WAIT)
        thread.join()
        second.append(b"y" * 100)
        self.assertEqual(bytes(second.view[:101]), b"y" * 100 + b"\0")
        # One of warming, one of each append.
        self.assertEqual(self.fs.calls["pwrite"], 3)

    def test_warm_flushes_zeros(self):
        file = self.log.queue.open_file(0)
        self.addCleanup(file.close)
        file.warm(lambda: False, 2 * WARM_STEP)
        self.assertEqual((self.fs.calls["pwrite"], self.fs.calls["fdatasync"]), (5, 3))

    def test_next_file_on_full_disk_fails_and_leaves_no_file(self):
        self.go_on.release(100)
        self.start()
        self.fs.fail("allocate", OSError(28, "No space left on device"))
        with self.assertRaises(CreateMappedFileError) as raised:
            self.log.next_file()
        self.assertIn("No space left on device", str(raised.exception))
        self.assertFalse(os.path.exists(self.log.queue.path_of(0)))
        self.assertEqual(self.log.next_file().file_from_offset, 0)

    def test_stop_ends_warming_and_removes_the_file(self):
        self.start()
        self.go_on.release()
        self.log.next_file()
        for offset in (0, self.SIZE):
            self.assertEqual(self.steps.get(timeout=WAIT), offset)
        stop = threading.Thread(target=self.log.allocate.stop)
        stop.start()
        while not self.log.allocate._stopping:
            self.assertTrue(stop.is_alive())
        self.go_on.release()
        stop.join()
        self.assertEqual(self.fs.calls["pwrite"], 0)
        self.assertFalse(os.path.exists(self.log.queue.path_of(self.SIZE)))

    def test_store_warms_files_if_configured(self):
        for settings, syncs in (
            ({}, None),
            ({"warm_maped_file_enable": True}, 0),
            (
                {
                    "warm_maped_file_enable": True,
                    "flush_disk_type": "SYNC_FLUSH",
                    "flush_least_pages_when_warm_maped_file": 1,
                },
                1,
            ),
        ):
            fs = FaultyFileSystem()
            store = MessageStore(small_config(self.mktemp(), **settings), STORE_HOST, fs=fs)
            warm = store.commit_log.allocate.warm
            self.assertEqual(warm is None, syncs is None)
            if warm is not None:
                store.commit_log.load()
                file = store.commit_log.queue.open_file(0)
                self.addCleanup(file.close)
                warm(file, lambda: False)
                self.assertEqual((fs.calls["pwrite"], fs.calls["fdatasync"]), (1, syncs))


class RunningFlagsTests(SynchronousTestCase):
    def test_full_disk_stops_writers_only(self):
        flags = RunningFlags()
        self.assertTrue(flags.set(DISK_FULL, True))
        self.assertFalse(flags.set(DISK_FULL, True))
        self.assertEqual((flags.writable, flags.readable, flags.queue_writable), (False, True, True))
        self.assertEqual(flags.describe(), "the disk is full")
        self.assertTrue(flags.set(DISK_FULL, False))
        self.assertEqual((flags.writable, flags.describe()), (True, ""))

    def test_flags_by_cause(self):
        flags = RunningFlags()
        flags.set(NOT_READABLE, True)
        self.assertEqual((flags.writable, flags.readable), (True, False))
        flags.set(WRITE_LOGICS_QUEUE_ERROR, True)
        self.assertEqual((flags.writable, flags.queue_writable), (False, False))


class ClearTests(SynchronousTestCase):
    def test_clear_from_zeroes_bytes_behind_position(self):
        fs = RealFileSystem()
        size = 64 * 4096
        for offset in (0, 5, 4095, 4096, 4100, size - 1, size):
            for dirty in ((), (5,), (4097,), (4200, 40 * 4096), (size - 1,)):
                fd = fs.open(self.mktemp(), size)
                view = fs.map(fd, size, True)
                for position in (0, *dirty):
                    view[position] = 1
                fs.clear_from(fd, offset)
                expected = {position for position in (0, *dirty) if position < offset}
                self.assertEqual({n for n, byte in enumerate(view) if byte != b"\0"}, expected, (offset, dirty))
                self.assertEqual(os.fstat(fd).st_size, size)
                fs.close(fd)

    def test_clear_from_reserves_room_again(self):
        fs = FaultyFileSystem()
        file = QueueMappings().open_file(fs, os.path.join(self.mktemp(), "0" * 20), 0, 64 * 4096)
        file.append(b"x" * 40)
        file.append(b"x")
        self.assertEqual(fs.calls["allocate"], 1)
        file.clear_from(20)
        file.set_positions(20)
        file.append(b"y")
        self.assertEqual(fs.calls["allocate"], 2)
        self.assertEqual(bytes(file.view[:22]), b"x" * 20 + b"y\0")


class DiskUsageTests(SynchronousTestCase):
    def test_disk_usage_ratio(self):
        self.assertEqual(DiskUsage(3, 1).ratio, 0.75)
        self.assertEqual(DiskUsage(0, 0).ratio, 0.0)
        self.assertTrue(0 < RealFileSystem().disk_usage(".").ratio <= 1)
