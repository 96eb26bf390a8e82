"""The files of one directory as one run of bytes; the flags of the store."""

import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.errors import StoreFileSizeError
from rocketd.store.filesystem import DiskUsage, RealFileSystem
from rocketd.store.mapped_file import LogFile
from rocketd.store.mapped_file_queue import MappedFileQueue
from rocketd.store.running_flags import DISK_FULL, NOT_READABLE, WRITE_LOGICS_QUEUE_ERROR, RunningFlags
from rocketd.store.testing import FaultyFileSystem

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

    def test_empty(self):
        self.assertEqual((self.queue.min_offset, self.queue.max_offset), (-1, 0))
        self.assertIsNone(self.queue.last)
        self.assertIsNone(self.queue.find(0))
        self.assertTrue(self.queue.flush(0))

    def test_find(self):
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

    def test_find_where_a_file_is_missing(self):
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

    def test_load_refuses_another_size(self):
        self.add(0)
        with self.assertRaises(StoreFileSizeError):
            self.make(4096)

    def test_only_what_was_appended_is_given_out(self):
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

    def test_least_pages(self):
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

    def test_view_of_a_removed_file_stays(self):
        view = self.add(0, b"abc").select(0, 3)
        self.queue.destroy()
        self.assertEqual((bytes(view), os.path.exists(self.directory)), (b"abc", False))


class RunningFlagsTests(SynchronousTestCase):
    def test_full_disk_stops_writers_only(self):
        flags = RunningFlags()
        self.assertTrue(flags.set(DISK_FULL, True))
        self.assertFalse(flags.set(DISK_FULL, True))
        self.assertEqual((flags.writable, flags.readable, flags.queue_writable), (False, True, True))
        self.assertEqual(flags.describe(), "the disk is full")
        self.assertTrue(flags.set(DISK_FULL, False))
        self.assertEqual((flags.writable, flags.describe()), (True, ""))

    def test_others(self):
        flags = RunningFlags()
        flags.set(NOT_READABLE, True)
        self.assertEqual((flags.writable, flags.readable), (True, False))
        flags.set(WRITE_LOGICS_QUEUE_ERROR, True)
        self.assertEqual((flags.writable, flags.queue_writable), (False, False))


class ClearTests(SynchronousTestCase):
    def test_everything_behind_a_position_is_zero_wherever_it_was(self):
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


class DiskUsageTests(SynchronousTestCase):
    def test_ratio(self):
        self.assertEqual(DiskUsage(3, 1).ratio, 0.75)
        self.assertEqual(DiskUsage(0, 0).ratio, 0.0)
        self.assertTrue(0 < RealFileSystem().disk_usage(".").ratio <= 1)
