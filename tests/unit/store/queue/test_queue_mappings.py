"""How many queue files are mapped at a time, and what that changes for their users: nothing."""

import contextlib
import errno
import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.message import DispatchRequest
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.testing import FaultyFileSystem

FILE_SIZE = 200


def entry(topic, queue_offset):
    return DispatchRequest(topic, 0, 1000 + queue_offset, 100, 7, 0, queue_offset, (), 0, 0, b"")


def open_files():
    """Return what the descriptors of this process lead to."""
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # other threads may close theirs meanwhile
            yield os.readlink(f"/proc/self/fd/{number}")


class QueueMappingTests(SynchronousTestCase):
    limit = 5
    topics = [f"T{number}" for number in range(20)]

    def setUp(self):
        self.fs = FaultyFileSystem()
        self.directory = self.mktemp()
        self.table = self.make()

    def make(self):
        table = ConsumeQueueTable(self.fs, self.directory, FILE_SIZE, max_mapped=self.limit)
        table.load()
        return table

    def put(self, topic, queue_offset):
        self.table.find_or_create(topic, 0).put([entry(topic, queue_offset)])

    def fill(self, rounds):
        for number in range(rounds):
            for topic in self.topics:
                self.put(topic, number)

    def file(self, topic):
        return self.table.find(topic, 0).files.last

    def offsets(self, table, topic):
        return [offset for offset, _, _ in table.find(topic, 0).read(0)]

    def test_more_queues_than_mappings_keep_all_entries(self):
        self.fill(3)
        self.assertLessEqual(self.table.mappings.count, self.limit)
        for topic in self.topics:
            self.assertEqual(self.offsets(self.table, topic), [1000, 1001, 1002])

    def test_entries_of_given_up_mappings_are_found_by_the_next_start(self):
        self.fill(3)
        again = self.make()
        again.recover(True)
        self.assertLessEqual(again.mappings.count, self.limit)
        for topic in self.topics:
            self.assertEqual(self.offsets(again, topic), [1000, 1001, 1002])

    def test_view_stays_valid_when_its_mapping_is_given_up(self):
        self.put("T0", 0)
        view = self.file("T0").view[:20]
        before = bytes(view)
        self.fill(2)
        self.assertIsNone(self.file("T0")._view)
        self.assertEqual(bytes(view), before)

    def test_file_in_use_keeps_its_mapping(self):
        self.fill(1)
        self.put("T0", 1)
        kept = self.file("T0")._view
        for topic in self.topics[1:]:
            self.offsets(self.table, "T0")
            self.put(topic, 1)
        self.assertIs(self.file("T0")._view, kept)

    def test_removed_file_stays_readable_without_mapping(self):
        self.fill(1)
        file = self.file("T0")
        self.assertIsNone(file._view)
        self.table.remove([("T0", 0)])
        self.assertFalse(os.path.exists(file.path))
        for topic in self.topics[1:]:
            self.offsets(self.table, topic)
        self.assertEqual(bytes(file.view[:8]), (1000).to_bytes(8, "big"))

    def test_missing_file_without_mapping_is_removed_with_the_others(self):
        self.fill(1)
        os.remove(self.file("T0").path)
        for topic in self.topics:
            self.table.remove_topic(topic)
        self.assertEqual(os.listdir(self.directory), [])

    def test_file_that_cannot_be_removed_stays_counted_and_readable(self):
        self.fill(1)
        file = self.file("T19")
        before = self.table.mappings.count
        self.fs.fail("remove", OSError(errno.EACCES, "refused"))
        self.assertRaises(OSError, file.remove_name)
        self.assertEqual(self.table.mappings.count, before)
        self.assertEqual(self.offsets(self.table, "T19"), [1000])

    def test_reader_that_maps_while_the_file_is_removed_gets_the_kept_mapping(self):
        self.fill(1)
        file = self.file("T0")
        self.assertIsNone(file._view)
        opened = self.fs.open

        def removed_meanwhile(path, size=None):
            self.patch(self.fs, "open", opened)
            file.remove_name()
            return opened(path, size)

        self.patch(self.fs, "open", removed_meanwhile)
        self.assertEqual(bytes(file.view[:8]), (1000).to_bytes(8, "big"))
        self.assertFalse(os.path.exists(file.path))

    def test_removed_files_are_not_counted(self):
        self.fill(1)
        for topic in self.topics:
            self.table.remove_topic(topic)
        self.assertEqual(self.table.mappings.count, 0)

    def test_queue_holds_no_descriptor(self):
        self.fill(1)
        self.assertEqual([path for path in open_files() if os.path.abspath(self.directory) in path], [])

    def test_mapping_that_fails_raises_the_systems_error(self):
        directory = self.mktemp()
        os.mkdir(directory)
        fd = os.open(directory, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        self.assertRaises(OSError, self.fs.map_for_stores, fd, FILE_SIZE)
