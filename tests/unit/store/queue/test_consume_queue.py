"""One consume queue, and the table of all."""

import os
import struct

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreFileSizeError
from rocketd.store.format.message import DispatchRequest
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.testing import FaultyFileSystem

FILE_SIZE = 200
PER_FILE = 10


def request(queue_offset, physical_offset=None, size=100, tags_code=7, topic="T", queue_id=0):
    where = queue_offset * 100 if physical_offset is None else physical_offset
    return DispatchRequest(topic, queue_id, where, size, tags_code, 0, queue_offset, (), 0, 0, b"")


class ConsumeQueueTestCase(SynchronousTestCase):
    def setUp(self):
        self.fs = FaultyFileSystem()
        self.directory = os.path.join(self.mktemp(), "T", "0")
        self.queue = self.make()

    def make(self):
        queue = ConsumeQueue(self.fs, "T", 0, self.directory, FILE_SIZE)
        queue.load()
        return queue

    def reopen(self, abnormal=False):
        self.queue = self.make()
        self.queue.recover(not abnormal)

    def entries(self):
        found = []
        offset = self.queue.min_offset
        while (rest := self.queue.read(offset)) is not None:
            rest = list(rest)
            found += rest
            offset += len(rest)
        return found

    def raw(self, number=0):
        with open(os.path.join(self.directory, f"{number * FILE_SIZE:020d}"), "rb") as file:
            return file.read()

    def overwrite(self, entry, data, number=0):
        with open(os.path.join(self.directory, f"{number * FILE_SIZE:020d}"), "r+b") as file:
            file.seek(entry * 20)
            file.write(data)


class ConsumeQueueTests(ConsumeQueueTestCase):
    def test_entry_format(self):
        self.queue.put([request(0, 258, 3, -5)])
        self.assertEqual(self.raw()[:20], struct.pack(">qiq", 258, 3, -5))
        self.assertEqual((self.queue.min_offset, self.queue.max_offset), (0, 1))
        self.assertEqual(self.queue.max_physic_offset, 261)

    def test_group_over_several_files(self):
        self.queue.put([request(n) for n in range(25)])
        self.assertEqual(self.entries(), [(n * 100, 100, 7) for n in range(25)])
        self.assertEqual(len(os.listdir(self.directory)), 3)
        self.assertEqual(self.queue.entry(24), (2400, 100, 7))
        self.assertIsNone(self.queue.entry(25))
        self.assertEqual(self.queue.next_file_offset(13), 20)

    def test_recovery_skips_holes(self):
        """A full memory file system has no room for the zeros of a hole that is looked at."""
        self.queue.put([request(n) for n in range(15)])
        self.fs.data_ranges = lambda path, offset: [(0, 100)] if path.endswith("0200") else [(0, 200)]
        for clean in (True, False):
            self.reopen(abnormal=not clean)
            self.assertEqual(self.queue.max_offset, 15)
        self.fs.data_ranges = lambda path, offset: [] if path.endswith("0200") else [(0, 190)]
        for clean in (True, False):
            queue = self.make()
            self.assertEqual(queue.last_record(), (800, 900))
            queue.recover(clean)
            self.assertEqual(queue.max_offset, 9)

    def test_repeated_records_are_skipped(self):
        self.queue.put([request(n) for n in range(5)])
        self.queue.put([request(n) for n in range(3, 8)])
        self.assertEqual(self.entries(), [(n * 100, 100, 7) for n in range(8)])

    def test_first_entry_at_later_offset_pads_file(self):
        self.queue.put([request(23), request(24)])
        self.assertEqual((self.queue.min_offset, self.queue.max_offset), (23, 25))
        self.assertEqual(self.entries(), [(2300, 100, 7), (2400, 100, 7)])
        self.assertEqual(os.listdir(self.directory), [f"{2 * FILE_SIZE:020d}"])
        self.assertEqual(self.raw(2)[:20], struct.pack(">qiq", 0, 0x7FFFFFFF, 0))
        self.assertIsNone(self.queue.read(22))
        self.reopen()
        self.queue.correct_min_offset(0)
        self.assertEqual((self.queue.min_offset, self.queue.max_offset), (23, 25))

    def test_missing_entries_are_padded(self):
        self.queue.put([request(0)])
        self.queue.put([request(3)])
        self.assertEqual(self.queue.entry(3), (300, 100, 7))
        self.assertEqual(self.queue.entry(1), (0, 0x7FFFFFFF, 0))

    def test_put_on_full_disk_fails_and_is_repeatable(self):
        self.fs.fail("allocate", OSError(28, "No space left on device"))
        with self.assertRaises(OSError):
            self.queue.put([request(0)])
        self.queue.put([request(0)])
        self.assertEqual(self.entries(), [(0, 100, 7)])

    def test_recovery_finds_the_end(self):
        for count in (0, 1, 9, 10, 11, 20, 35):
            for abnormal in (False, True):
                self.directory = os.path.join(self.mktemp(), "T", "0")
                self.queue = self.make()
                if count:
                    self.queue.put([request(n) for n in range(count)])
                self.reopen(abnormal)
                self.assertEqual(self.queue.max_offset, count)
                self.assertEqual(self.queue.max_physic_offset, count * 100 if count else -1)
                self.queue.put([request(count)])
                self.assertEqual(len(self.entries()), count + 1)

    def test_recovery_after_crash_ends_at_hole(self):
        self.queue.put([request(n) for n in range(15)])
        self.overwrite(6, bytes(20))
        self.reopen(abnormal=True)
        self.assertEqual((self.queue.max_offset, self.queue.max_physic_offset), (6, 600))
        self.assertEqual(self.raw()[120:], bytes(80))
        self.assertEqual(os.listdir(self.directory), ["0" * 20])
        self.queue.put([request(n) for n in range(4, 20)])
        self.assertEqual(self.entries(), [(n * 100, 100, 7) for n in range(20)])

    def test_flush_after_kill_includes_files_before_empty_one(self):
        self.queue.put([request(n) for n in range(11)])
        self.queue = self.make()
        self.queue.recover(False, 1000)
        self.queue.forget_flushed(500)
        self.queue.put([request(10)])
        self.assertTrue(self.queue.flush(0))
        self.fs.lose_unsynced()
        self.reopen()
        self.assertEqual(self.entries(), [(n * 100, 100, 7) for n in range(11)])

    def test_recovery_ignores_second_part_of_torn_entry(self):
        for limit in (300, None):
            for lost in range(3, 8):
                self.directory = os.path.join(self.mktemp(), "T", "0")
                self.queue = self.make()
                self.queue.put([request(n) for n in range(10)])
                # The crash took a sector that ends within an entry.
                self.overwrite(3, bytes((lost - 3) * 20 + 8))
                self.queue = self.make()
                self.queue.recover(False, limit)
                self.assertEqual(self.queue.max_offset, 3, (limit, lost))
                self.assertEqual(self.raw()[60:], bytes(140))

    def test_truncation_by_physical_offset(self):
        for cut, left in ((0, 0), (100, 1), (950, 10), (1000, 10), (1050, 11), (5000, 15)):
            self.directory = os.path.join(self.mktemp(), "T", "0")
            self.queue = self.make()
            self.queue.put([request(n) for n in range(15)])
            self.queue.truncate_dirty(cut)
            self.assertEqual(self.queue.max_offset, left, cut)
            self.assertEqual(self.queue.max_physic_offset, left * 100 if left else -1)
            self.reopen()
            self.assertEqual(self.queue.max_offset, left, cut)

    def test_min_offset_follows_the_log(self):
        self.queue.put([request(n) for n in range(15)])
        for physical, expected in ((0, 0), (50, 1), (100, 1), (1001, 11), (1400, 14), (1401, 15), (9000, 15)):
            self.queue.correct_min_offset(physical)
            self.assertEqual(self.queue.min_offset, expected)

    def test_placeholder_or_damage_at_the_end_does_not_end_the_queue(self):
        """Neither tells whether the record before it has expired."""
        self.queue.put([request(n) for n in range(15)])
        for last in ((0, 0x7FFFFFFF, 0), (300, 100, 7)):
            self.overwrite(4, struct.pack(">qiq", *last), 1)
            self.queue.correct_min_offset(1300)
            self.assertEqual(self.queue.min_offset, 0, last)

    def test_load_refuses_file_of_other_size(self):
        self.queue.put([request(0)])
        with self.assertRaises(StoreFileSizeError) as caught:
            ConsumeQueue(self.fs, "T", 0, self.directory, 400).load()
        self.assertIn("has 200 bytes, but the settings say 400", str(caught.exception))

    def test_flush_by_pages(self):
        self.queue.put([request(0)])
        self.assertFalse(self.queue.flush(2))
        self.assertEqual(self.fs.calls["fdatasync"], 0)
        self.assertTrue(self.queue.flush(0))
        self.assertEqual(self.fs.calls["fdatasync"], 1)
        self.assertTrue(self.queue.flush(0))
        self.assertEqual(self.fs.calls["fdatasync"], 1)
        self.queue.put([request(n) for n in range(1, 11)])
        # A full file is flushed however small it is.
        self.assertTrue(self.queue.flush(2))
        self.assertEqual(self.fs.calls["fdatasync"], 3)

    def test_views_outlive_the_files(self):
        self.queue.put([request(0)])
        entries = self.queue.read(0)
        self.queue.destroy()
        self.assertEqual(list(entries), [(0, 100, 7)])
        self.assertFalse(os.path.exists(self.directory))


class TableTests(SynchronousTestCase):
    def setUp(self):
        self.fs = FaultyFileSystem()
        self.directory = self.mktemp()
        self.table = self.make()

    def make(self):
        table = ConsumeQueueTable(self.fs, self.directory, 195)
        table.load()
        return table

    def test_load_finds_queues_again(self):
        for topic, queue_id, offset in (("%RETRY%g", 0, 5), ("T", 3, 900)):
            self.table.find_or_create(topic, queue_id).put([request(0, offset, topic=topic, queue_id=queue_id)])
        os.mkdir(os.path.join(self.directory, "T", "not a number"))
        again = self.make()
        again.recover(True)
        self.assertEqual(sorted(again.queues), [("%RETRY%g", 0), ("T", 3)])
        self.assertEqual(again.max_physic_offset, 1000)

    def test_find_creates_no_queue(self):
        self.assertIsNone(self.table.find("T", 0))
        self.assertEqual((self.table.queues, os.listdir(self.directory)), ({}, []))

    def test_remove_topic_removes_all_queues(self):
        for topic in ("T", "T", "U"):
            queue = self.table.find_or_create(topic, 0)
            queue.put([request(queue.max_offset, topic=topic)])
            self.table.dirty.add(queue)
        self.table.remove_topic("T")
        self.assertEqual(list(self.table.queues), [("U", 0)])
        self.assertEqual({queue.topic for queue in self.table.dirty}, {"U"})
        self.assertEqual(os.listdir(self.directory), ["U"])
