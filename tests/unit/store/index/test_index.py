import errno
import json
import lzma
import os
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from zlib import crc32

from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import java_string_hash_unsigned
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.format.message import DispatchRequest
from rocketd.store.index.entries import index_key_hash
from rocketd.store.index.file import IndexFile
from rocketd.store.index.layout import index_file_size
from rocketd.store.index.service import IndexService, QueryOffsets, index_file_name
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.state.last_stop import LastStop
from tests.support.apache_stores import STORES, unpack_store
from tests.support.names_on_disk import NamesOnDisk

T0 = 1_700_000_000_000
ALWAYS = (0, 1 << 62)


def any_offset(_offset: int) -> bool:
    return True


def request(
    physical_offset: int,
    index_keys: tuple[str, ...],
    store_timestamp: int = T0,
    topic: str = "TopicTest",
    sys_flag: int = 0,
) -> DispatchRequest:
    return DispatchRequest(topic, 0, physical_offset, 100, 0, store_timestamp, 0, index_keys, sys_flag, 0, b"")


class FailingDisk(RealFileSystem):
    """The real disk, which can refuse to open or to reserve room."""

    def __init__(self) -> None:
        self.refuse_open = 0
        self.full = False
        self.opened = 0
        self.synced = 0

    def open(self, path: str, size: int | None = None) -> int:
        self.opened += 1
        if self.refuse_open:
            self.refuse_open -= 1
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, size)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        super().allocate(fd, offset, size)

    def fdatasync(self, fd: int) -> None:
        self.synced += 1
        super().fdatasync(fd)


def key_hash(topic: str, key: str) -> int:
    return index_key_hash(java_string_hash_unsigned(f"{topic}#{key}"))


class HashTests(SynchronousTestCase):
    def test_hash_is_absolute_value(self) -> None:
        self.assertEqual(key_hash("TopicTest", "key1"), 1655984460)
        self.assertEqual(index_key_hash(5), 5)
        self.assertEqual(index_key_hash(0xFFFFFFFB), 5)
        self.assertEqual(index_key_hash(0x7FFFFFFF), 0x7FFFFFFF)
        self.assertEqual(index_key_hash(0x80000001), 0x7FFFFFFF)

    def test_hash_of_lowest_number_is_zero(self) -> None:
        self.assertEqual(index_key_hash(0x80000000), 0)

    def test_size_of_a_default_file(self) -> None:
        self.assertEqual(index_file_size(5_000_000, 20_000_000), 420_000_040)


class IndexFileTests(SynchronousTestCase):
    def setUp(self) -> None:
        directory = self.mktemp()
        os.makedirs(directory)
        self.path = os.path.join(directory, "20260101000000000")
        self.disk = FailingDisk()

    def make(self, slots: int = 10, entries: int = 20, **after: int) -> IndexFile:
        file = IndexFile(self.path, slots, entries, self.disk, **after)
        self.addCleanup(file.close)
        return file

    def put(self, file: IndexFile, *group: tuple[int, int, int]) -> int:
        return file.put_group(group, 0)

    def entry(self, file: IndexFile, number: int) -> tuple[int, ...]:
        data = Path(self.path).read_bytes()
        return struct.unpack_from(">iqii", data, 40 + file.slots * 4 + number * 20)

    def header(self) -> tuple[int, ...]:
        return struct.unpack_from(">qqqqii", Path(self.path).read_bytes())

    def select(self, file: IndexFile, wanted: int, limit: int = 64, begin: int = 0, end: int = 1 << 62) -> list[int]:
        offsets: list[int] = []
        file.select(offsets, wanted, limit, begin, end, any_offset)
        return offsets

    def test_file_layout(self) -> None:
        file = self.make()
        self.put(file, (13, 100, T0), (23, 250, T0 + 2999), (7, 400, T0 + 3000))
        data = Path(self.path).read_bytes()
        self.assertEqual(len(data), 40 + 10 * 4 + 20 * 20)
        self.assertEqual(self.header(), (T0, T0 + 3000, 100, 400, 2, 4))
        self.assertEqual(struct.unpack_from(">10i", data, 40), (0, 0, 0, 2, 0, 0, 0, 3, 0, 0))
        self.assertEqual(self.entry(file, 0), (0, 0, 0, 0))
        self.assertEqual(self.entry(file, 1), (13, 100, 0, 0))
        self.assertEqual(self.entry(file, 2), (23, 250, 2, 1))
        self.assertEqual(self.entry(file, 3), (7, 400, 3, 0))
        self.assertEqual(data[40 + 40 + 4 * 20 :], bytes(16 * 20))

    def test_grouping_of_puts_does_not_change_bytes(self) -> None:
        group = [(number * 7919 % 101, number * 100, T0 + number * 700) for number in range(1, 19)]
        file = self.make()
        file.put_group(group, 0)
        at_once = Path(self.path).read_bytes()
        file.destroy()
        file = self.make()
        for position in range(len(group)):
            self.assertEqual(file.put_group(group[: position + 1], position), position + 1)
        self.assertEqual(Path(self.path).read_bytes(), at_once)

    def test_time_difference_is_clamped(self) -> None:
        file = self.make()
        self.put(file, (1, 1, T0), (2, 2, T0 - 5000), (3, 3, T0 - 1), (4, 4, T0 + (1 << 31) * 1000), (5, 5, T0 + 1999))
        self.assertEqual([self.entry(file, number)[2] for number in range(1, 6)], [0, 0, 0, 0x7FFFFFFF, 1])

    def test_file_is_full_at_entry_limit(self) -> None:
        file = self.make(entries=4)
        group = [(number, number, T0) for number in range(5)]
        self.assertFalse(file.is_write_full())
        self.assertEqual(file.put_group(group, 0), 3)
        self.assertTrue(file.is_write_full())
        self.assertEqual(file.put_group(group, 3), 3)
        self.assertEqual(self.header()[3:], (2, 3, 4))

    def test_next_file_begins_at_end_of_previous(self) -> None:
        file = self.make(end_physical_offset=5000, end_timestamp=T0)
        self.assertEqual(self.header(), (T0, T0, 5000, 5000, 0, 1))
        self.put(file, (1, 6000, T0 + 9000), (2, 7000, T0 + 10_000))
        self.assertEqual(self.header(), (T0 + 9000, T0 + 10_000, 6000, 7000, 2, 3))
        self.assertEqual([self.entry(file, number)[2] for number in (1, 2)], [9, 1])

    def test_slot_beyond_entries_reads_as_empty(self) -> None:
        for wrong in (-1, 2, 19):
            file = self.make()
            with open(self.path, "r+b") as raw:
                raw.seek(40 + 3 * 4)
                raw.write(struct.pack(">i", wrong))
            self.assertEqual(self.select(file, 3), [])
            self.put(file, (3, 100, T0))
            self.assertEqual(self.entry(file, 1), (3, 100, 0, 0))
            self.assertEqual(file.hash_slot_count, 1)
            file.destroy()

    def test_slot_of_entry_being_written_is_kept(self) -> None:
        # As in Apache, which compares with the count before the entry is in it; the search ends at such an entry.
        file = self.make()
        with open(self.path, "r+b") as raw:
            raw.seek(40 + 3 * 4)
            raw.write(struct.pack(">i", 1))
        self.put(file, (3, 100, T0))
        self.assertEqual((self.entry(file, 1), file.hash_slot_count), ((3, 100, 0, 1), 0))
        self.assertEqual(self.select(file, 3), [100])

    def test_select_returns_newest_first_up_to_limit(self) -> None:
        file = self.make()
        self.put(file, *((3 if number % 2 else 13, number, T0 + number) for number in range(1, 9)))
        self.assertEqual(self.select(file, 3), [7, 5, 3, 1])
        self.assertEqual(self.select(file, 13), [8, 6, 4, 2])
        self.assertEqual(self.select(file, 23), [])
        self.assertEqual(self.select(file, 3, limit=2), [7, 5])
        self.assertEqual(self.select(file, 3, limit=0), [])
        offsets = [99]
        file.select(offsets, 3, 2, *ALWAYS, any_offset)
        self.assertEqual(offsets, [99, 7])

    def test_messages_of_the_first_and_last_second_are_candidates(self) -> None:
        file = self.make()
        self.put(file, (3, 1, T0), (3, 2, T0 + 1500), (3, 3, T0 + 3000))
        self.assertEqual(self.select(file, 3, begin=T0, end=T0 + 3000), [3, 2, 1])
        for begin, end in ((1000, 1000), (1500, 1500), (1999, 2999)):
            self.assertEqual(self.select(file, 3, begin=T0 + begin, end=T0 + end), [2], (begin, end))
        self.assertEqual(self.select(file, 3, begin=T0 + 2000, end=T0 + 2999), [])
        self.assertEqual(self.select(file, 3, begin=T0, end=T0 + 2999), [2, 1])

    def test_refused_candidate_takes_no_place(self) -> None:
        file = self.make()
        self.put(file, *((3, number, T0 + number) for number in range(1, 5)))
        offsets: list[int] = []
        file.select(offsets, 3, 2, *ALWAYS, lambda offset: offset in (1, 3))
        self.assertEqual(offsets, [3, 1])

    def test_search_ends_at_first_too_old_entry(self) -> None:
        file = self.make()
        self.put(file, (3, 1, T0), (3, 2, T0 + 8000), (3, 3, T0 + 1000), (3, 4, T0 + 9000))
        self.assertEqual(self.select(file, 3, begin=T0 + 5000), [4])

    def test_damaged_chains_end(self) -> None:
        file = self.make()
        self.put(file, (3, 1, T0), (3, 2, T0), (3, 3, T0))
        first_entry = 40 + 10 * 4 + 20
        for field, value in ((16, 3), (16, 1), (16, 1 << 30), (12, -1)):
            with open(self.path, "r+b") as raw:
                raw.seek(first_entry + field)
                raw.write(struct.pack(">i", value))
            self.assertEqual(self.select(file, 3)[:2], [3, 2])
            self.assertTrue(len(self.select(file, 3)) <= 3)

    def test_count_beyond_the_file_is_reported_not_raised(self) -> None:
        file = self.make()
        with open(self.path, "r+b") as raw:
            raw.write(struct.pack(">qqqqii", T0, T0, 1, 1, 1, 1 << 20))
            raw.seek(40 + 3 * 4)
            raw.write(struct.pack(">i", 1000))
        file.load()
        self.assertEqual(self.select(file, 3), [])
        self.assertEqual(len(self.flushLoggedErrors(struct.error)), 1)
        self.assertEqual(self.put(file, (3, 5, T0)), 0)

    def test_load_reads_header_and_entries(self) -> None:
        file = self.make()
        self.put(file, (3, 100, T0), (4, 200, T0 + 5))
        file.close()
        again = self.make()
        self.assertEqual((again.begin_timestamp, again.index_count), (0, 1))
        again.load()
        self.assertEqual((again.begin_timestamp, again.end_timestamp), (T0, T0 + 5))
        self.assertEqual((again.begin_physical_offset, again.end_physical_offset), (100, 200))
        self.assertEqual((again.hash_slot_count, again.index_count), (2, 3))
        self.put(again, (3, 300, T0 + 6))
        self.assertEqual(self.select(again, 3), [300, 100])

    def test_load_of_an_empty_file_counts_from_one(self) -> None:
        file = self.make()
        file.load()
        self.assertEqual(file.index_count, 1)

    def test_longer_file_keeps_its_length(self) -> None:
        Path(self.path).write_bytes(bytes(10_000))
        self.make()
        self.assertEqual(os.path.getsize(self.path), 10_000)

    def test_time_range_matches_file_times(self) -> None:
        file = self.make()
        self.put(file, (1, 1, 1000), (1, 2, 2000))
        for begin, end, matched in (
            (0, 999, False),
            (0, 1000, True),
            (0, 5000, True),
            (1500, 1600, True),
            (2000, 9000, True),
            (2001, 9000, False),
        ):
            self.assertEqual(file.is_time_matched(begin, end), matched, (begin, end))

    def test_full_disk_stores_nothing(self) -> None:
        file = self.make()
        self.disk.full = True
        self.assertRaises(OSError, file.put_group, [(3, 1, T0)], 0)
        self.assertEqual((file.index_count, self.select(file, 3)), (1, []))
        self.disk.full = False
        self.put(file, (3, 1, T0), (3, 2, T0))
        self.assertEqual(self.select(file, 3), [2, 1])

    def test_flush_syncs_the_descriptor(self) -> None:
        file = self.make()
        self.put(file, (3, 1, T0))
        file.flush()
        self.assertEqual(self.disk.synced, 1)
        file.close()
        file.flush()
        self.assertEqual(self.disk.synced, 1)

    def test_flush_makes_the_names_of_file_and_directory_safe(self) -> None:
        disk = NamesOnDisk()
        directory = os.path.abspath(self.mktemp())
        index = IndexService(directory, 10, 20, file_system=disk)
        index.load(LastStop.CLEAN, StoreCheckpoint(os.path.join(self.mktemp(), "checkpoint")), 0)
        index.put([request(0, ("key",))])
        self.assertEqual(len(disk.unsafe(directory)), 2)
        index.flush()
        self.assertEqual(disk.unsafe(directory), set())
        index.close()

    def test_file_closed_while_held_is_unmapped_at_release(self) -> None:
        file = self.make()
        self.put(file, (3, 1, T0))
        self.assertTrue(file.hold())
        file.destroy()
        self.assertFalse(os.path.exists(self.path))
        self.assertFalse(file.hold())
        self.assertEqual(self.select(file, 3), [])
        self.assertFalse(file._map.closed)
        file.release()
        self.assertTrue(file._map.closed)
        file.destroy()


class ServiceCase(SynchronousTestCase):
    slots = 16
    entries = 5

    def setUp(self) -> None:
        self.root = self.mktemp()
        self.directory = os.path.join(self.root, "index")
        self.checkpoint = StoreCheckpoint(os.path.join(self.root, "checkpoint"))
        self.now = T0
        self.disk = FailingDisk()
        self.troubles = 0
        self.index = self.service()

    def service(self) -> IndexService:
        index = IndexService(
            self.directory,
            self.slots,
            self.entries,
            lambda: self.now,
            on_index_file_error=self.trouble,
            retry_seconds=0.0,
            file_system=self.disk,
        )
        self.addCleanup(index.close)
        self.assertTrue(index.load(LastStop.CLEAN, self.checkpoint, 1 << 62))
        return index

    def trouble(self) -> None:
        self.troubles += 1

    def find(
        self, key: str, limit: int = 64, begin: int = 0, end: int = 1 << 62, topic: str = "TopicTest"
    ) -> list[int]:
        return self.index.query(topic, key, limit, begin, end, any_offset).offsets

    def fill(self, files: int) -> None:
        """So many full files of four messages, a minute apart, and one message in the next."""
        for number in range(files * 4 + 1):
            self.now = T0 + number * 60_000
            self.index.put([request(number * 100, ("key",), self.now)])


class IndexServiceTests(ServiceCase):
    def test_file_name(self) -> None:
        os_zone = os.environ.get("TZ")
        self.addCleanup(self.set_zone, os_zone)
        self.set_zone("Asia/Shanghai")
        self.assertEqual(index_file_name(1_700_000_000_007), "20231115061320007")
        self.set_zone("UTC")
        self.assertEqual(index_file_name(1_700_000_000_007), "20231114221320007")

    def set_zone(self, zone: str | None) -> None:
        if zone is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = zone
        time.tzset()

    def test_empty_index_has_no_file(self) -> None:
        self.assertEqual(self.index.query("T", "k", 32, *ALWAYS, any_offset), QueryOffsets([], 0, 0))
        self.index.put([])
        self.index.flush()
        self.assertFalse(os.path.exists(self.directory))

    def test_first_message_creates_file(self) -> None:
        self.index.put([request(0, ("uniq", "a", "b"))])
        self.assertEqual(os.listdir(self.directory), [index_file_name(T0)])
        self.assertEqual(self.index.file_names, (index_file_name(T0),))
        for key in ("uniq", "a", "b"):
            self.assertEqual(self.find(key), [0])
        self.assertEqual(self.find("a", topic="Other"), [])
        self.assertEqual(self.index.query("TopicTest", "a", 32, *ALWAYS, any_offset), QueryOffsets([0], T0, 0))

    def test_topics_of_a_group(self) -> None:
        self.index.put([request(0, ("k",), topic="A"), request(10, ("k",), topic="B"), request(20, ("k",), topic="A")])
        self.assertEqual(self.find("k", topic="A"), [20, 0])
        self.assertEqual(self.find("k", topic="B"), [10])

    def test_messages_without_keys_or_rolled_back_are_not_indexed(self) -> None:
        self.index.put([request(0, ()), request(10, ("k",), sys_flag=0xC), request(20, ("k",), sys_flag=0x8)])
        self.index.put([request(30, ("k",), sys_flag=0x4), request(40, ("k",), sys_flag=0xD | 0x10)])
        self.assertEqual(self.find("k"), [30, 20])

    def test_already_indexed_messages_are_skipped(self) -> None:
        self.index.put([request(100, ("k",)), request(200, ("k",))])
        self.index.put([request(100, ("k",)), request(199, ("x",)), request(300, ("k",)), request(250, ("k",))])
        self.assertEqual(self.find("k"), [300, 200, 100])
        self.assertEqual(self.find("x"), [])

    def test_put_beyond_full_file_creates_next(self) -> None:
        self.index.put([request(number * 100, ("k",), T0 + number) for number in range(10)])
        self.assertEqual(len(self.index.file_names), 3)
        self.assertEqual(self.find("k"), [900, 800, 700, 600, 500, 400, 300, 200, 100, 0])
        self.assertEqual(self.find("k", limit=3), [900, 800, 700])
        self.assertEqual(self.find("k", limit=5), [900, 800, 700, 600, 500])
        self.assertEqual(list(self.index.file_names), sorted(os.listdir(self.directory)))

    def test_keys_of_message_may_span_two_files(self) -> None:
        self.index.put([request(50, tuple("abcdef"))])
        self.assertEqual(len(self.index.file_names), 2)
        for key in "abcdef":
            self.assertEqual(self.find(key), [50])

    def test_finished_file_is_flushed_and_the_checkpoint_advances(self) -> None:
        self.index.put([request(number, ("k",), T0 + number * 1000) for number in range(4)])
        self.assertEqual(self.checkpoint.index_msg_timestamp, 0)
        self.index.put([request(4, ("k",), T0 + 4000)])
        self.index.close()
        self.assertEqual(self.checkpoint.index_msg_timestamp, T0 + 3000)
        self.assertEqual(StoreCheckpoint(self.checkpoint.path).index_msg_timestamp, T0 + 3000)
        self.assertEqual(self.disk.synced, 1)

    def test_checkpoint_advances_to_last_full_file(self) -> None:
        self.fill(20)
        self.index.close()
        self.assertEqual(self.checkpoint.index_msg_timestamp, T0 + 79 * 60_000)
        self.assertEqual(self.disk.synced, 20)

    def test_failed_flush_keeps_checkpoint_before_its_file(self) -> None:
        """A later file that was flushed does not make the failed one durable."""
        self.fill(1)
        self.index._join_flusher()
        self.patch(self.disk, "fdatasync", self.refuse)
        self.index.put([request(1000 + number, ("k",), T0 + 600_000) for number in range(4)])
        self.index._join_flusher()
        self.disk.__dict__.pop("fdatasync")
        self.index.put([request(2000 + number, ("k",), T0 + 900_000) for number in range(4)])
        self.index.close()
        self.assertEqual(self.checkpoint.index_msg_timestamp, T0 + 3 * 60_000)

    @staticmethod
    def refuse(_descriptor: int) -> None:
        raise OSError("input/output error")

    def test_flush_of_partial_file_keeps_checkpoint(self) -> None:
        self.index.put([request(0, ("k",))])
        self.index.flush()
        self.assertEqual((self.disk.synced, self.checkpoint.index_msg_timestamp), (1, 0))

    def test_clock_set_back(self) -> None:
        self.fill(1)
        self.now = T0 - 3_600_000
        self.index.put([request(1000 + number, ("k",)) for number in range(4)])
        names = self.index.file_names
        self.assertEqual((len(names), sorted(names)), (3, list(names)))
        self.assertEqual(int(names[2]), int(names[1]) + 1)

    def test_query_is_limited_to_max_offsets(self) -> None:
        self.index.put([request(number, ("k",)) for number in range(100)])
        self.assertEqual(self.find("k", limit=1000), list(range(99, 35, -1)))
        self.index.max_msgs_num_batch = 2
        self.assertEqual(self.find("k", limit=1000), [99, 98])

    def test_query_by_time(self) -> None:
        self.fill(3)
        at = [T0 + number * 60_000 for number in range(13)]
        self.assertEqual(self.find("key", begin=at[5], end=at[7]), [700, 600, 500])
        self.assertEqual(self.find("key", begin=at[6], end=at[7]), [700, 600])
        self.assertEqual(self.find("key", end=at[0]), [0])
        self.assertEqual(self.find("key", begin=at[12]), [1200])
        self.assertEqual(self.find("key", begin=at[12] + 1), [])
        reached = self.index.query("TopicTest", "key", 32, at[1], at[2], any_offset)
        self.assertEqual(reached, QueryOffsets([200, 100], at[12], 1200))

    def test_first_message_of_later_file_has_its_own_time(self) -> None:
        """Its time difference is one to the file before. Apache reads it as one to its own time."""
        self.fill(1)
        self.assertEqual(self.find("key", begin=T0 + 240_000, end=T0 + 240_000), [400])
        self.assertEqual(self.find("key", begin=T0 + 241_000, end=T0 + 300_000), [])

    def test_query_ends_at_file_beginning_before_range(self) -> None:
        self.index.put([request(number, ("k",), T0 + 9000) for number in range(4)])
        self.index.put([request(number, ("k",), T0) for number in range(4, 8)])
        self.index.put([request(8, ("k",), T0 + 9000)])
        # The file in the middle begins before the wanted time, so the oldest is not looked at.
        self.assertEqual(self.find("k", begin=T0 + 5000), [8])

    def test_query_includes_keys_with_same_hash(self) -> None:
        self.index.put([request(0, ("Aa",)), request(10, ("BB",))])
        self.assertEqual(self.find("Aa"), [10, 0])

    def test_delete_expired(self) -> None:
        self.fill(3)
        names = self.index.file_names
        self.assertEqual(self.index.delete_expired(300), 0)
        self.assertEqual(self.index.delete_expired(301), 1)
        self.assertEqual(self.index.file_names, names[1:])
        self.assertEqual(self.find("key"), [1200, 1100, 1000, 900, 800, 700, 600, 500, 400])
        self.assertEqual(self.index.delete_expired(1 << 40), 2)
        self.assertEqual(os.listdir(self.directory), [names[3]])
        self.assertEqual(self.index.delete_expired(1 << 40), 0)
        self.assertEqual(self.find("key"), [1200])

    def test_load_reads_files_again(self) -> None:
        self.fill(2)
        names = self.index.file_names
        self.index.close()
        Path(self.directory, "notes.txt").write_text("not an index file")
        self.index = self.service()
        self.assertEqual(self.index.file_names, names)
        self.assertEqual(self.find("key"), [800, 700, 600, 500, 400, 300, 200, 100, 0])
        self.index.put([request(700, ("key",)), request(900, ("key",), T0 + 540_000)])
        self.assertEqual(self.index.file_names, names)
        self.assertEqual(self.find("key", limit=2), [900, 800])

    def test_load_after_crash_keeps_files_up_to_checkpoint(self) -> None:
        self.fill(3)
        names = self.index.file_names
        self.index.close()
        self.checkpoint.index_msg_timestamp = T0 + 7 * 60_000
        index = IndexService(self.directory, self.slots, self.entries, lambda: self.now)
        self.addCleanup(index.close)
        self.assertTrue(index.load(LastStop.CRASHED, self.checkpoint, 1 << 62))
        self.assertEqual(index.file_names, names[:2])
        self.assertEqual(sorted(os.listdir(self.directory)), list(names[:2]))

    def test_load_after_kill_flushes_unflushed_full_files(self) -> None:
        self.fill(3)
        self.index.close()
        self.checkpoint.index_msg_timestamp = T0 + 3 * 60_000
        self.disk.synced = 0
        index = IndexService(self.directory, self.slots, self.entries, lambda: self.now, file_system=self.disk)
        self.assertTrue(index.load(LastStop.KILLED, self.checkpoint, 1 << 62))
        index.close()
        self.assertEqual(self.disk.synced, 2)
        self.assertEqual(StoreCheckpoint(self.checkpoint.path).index_msg_timestamp, T0 + 11 * 60_000)

    def test_load_ignores_file_with_zero_count(self) -> None:
        self.fill(2)
        name = self.index.file_names[-1]
        indexed_to = self.index.indexed_to
        self.index.close()
        # Made by a process that was killed before it wrote the header.
        made = IndexFile(os.path.join(self.directory, f"{int(name) + 1}"), self.slots, self.entries, self.disk)
        made.close()
        index = IndexService(self.directory, self.slots, self.entries, lambda: self.now)
        self.addCleanup(index.close)
        self.assertTrue(index.load(LastStop.KILLED, self.checkpoint, 1 << 62))
        self.assertEqual((index.file_names[-1], index.indexed_to), (name, indexed_to))

    def test_load_after_crash_drops_files_behind_dropped_file(self) -> None:
        self.fill(4)
        names = self.index.file_names
        self.index.close()
        self.checkpoint.index_msg_timestamp = T0 + 15 * 60_000
        with open(os.path.join(self.directory, names[1]), "r+b") as file:
            file.seek(36)  # the count
            file.write(struct.pack(">i", 3))
        index = IndexService(self.directory, self.slots, self.entries, lambda: self.now)
        self.addCleanup(index.close)
        self.assertTrue(index.load(LastStop.CRASHED, self.checkpoint, 1 << 62))
        self.assertEqual(index.file_names, names[:1])

    def test_load_after_crash_drops_files_behind_lost_file(self) -> None:
        self.fill(4)
        names = self.index.file_names
        self.index.close()
        self.checkpoint.index_msg_timestamp = T0 + 15 * 60_000
        Path(self.directory, names[1]).write_bytes(bytes(index_file_size(self.slots, self.entries)))
        index = IndexService(self.directory, self.slots, self.entries, lambda: self.now)
        self.addCleanup(index.close)
        self.assertTrue(index.load(LastStop.CRASHED, self.checkpoint, 1 << 62))
        self.assertEqual((index.file_names, os.listdir(self.directory)), (names[:1], [names[0]]))

    def test_load_after_crash_keeps_one_of_files_ending_in_millisecond_of_checkpoint(self) -> None:
        self.index.put([request(offset, ("key",)) for offset in range(0, 1200, 100)])
        names = self.index.file_names
        self.index.close()
        self.checkpoint.index_msg_timestamp = T0
        index = IndexService(self.directory, self.slots, self.entries, lambda: self.now)
        self.addCleanup(index.close)
        self.assertTrue(index.load(LastStop.CRASHED, self.checkpoint, 1 << 62))
        self.assertEqual(index.file_names, names[:1])

    def test_load_after_kill_flushes_files_ending_in_millisecond_of_checkpoint(self) -> None:
        self.index.put([request(offset, ("key",)) for offset in range(0, 1200, 100)])
        self.index.close()
        self.checkpoint.index_msg_timestamp = T0
        self.disk.synced = 0
        index = IndexService(self.directory, self.slots, self.entries, lambda: self.now, file_system=self.disk)
        self.assertTrue(index.load(LastStop.KILLED, self.checkpoint, 1 << 62))
        full = sum(file.is_write_full() for file in index.files)
        index.close()
        # The checkpoint speaks of one of them.
        self.assertEqual((full, self.disk.synced), (3, 2))

    def test_load_with_other_settings_logs_warning(self) -> None:
        self.fill(2)
        first, *_ = self.index.file_names
        self.index.close()
        index = IndexService(self.directory, self.slots + 1, self.entries, lambda: self.now)
        self.addCleanup(index.close)
        with capturedLogs() as events:
            self.assertTrue(index.load(LastStop.CLEAN, self.checkpoint, 1 << 62))
        (warning,) = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
        self.assertIn(f"3 index files in {self.directory}, {first} the first, do not have the length", warning)
        self.assertIn(f"maxHashSlotNum={self.slots + 1}", warning)

    def test_load_after_crash_without_full_files(self) -> None:
        self.index.put([request(0, ("k",))])
        self.index.close()
        self.assertTrue(self.index.load(LastStop.CRASHED, self.checkpoint, 1 << 62))
        self.assertEqual(os.listdir(self.directory), [])
        self.index.put([request(0, ("k",))])
        self.assertEqual(self.find("k"), [0])

    def test_load_of_unopenable_file_fails(self) -> None:
        os.makedirs(os.path.join(self.directory, "20260101000000000"))
        self.assertFalse(self.index.load(LastStop.CLEAN, self.checkpoint, 1 << 62))

    def test_file_is_tried_three_times(self) -> None:
        self.disk.refuse_open = 2
        self.index.put([request(0, ("k",))])
        self.assertEqual((self.find("k"), self.troubles, self.disk.opened), ([0], 0, 3))

    def test_put_failure_is_reported_after_three_attempts(self) -> None:
        self.disk.refuse_open = 3
        self.index.put([request(0, ("k",)), request(10, ("k",))])
        self.assertEqual((self.find("k"), self.troubles, self.disk.opened), ([], 1, 3))

    def test_later_messages_wait_for_those_that_could_not_be_indexed(self) -> None:
        self.index.put([request(0, ("k",))])
        self.index.put([request(number * 100, ("key",), T0) for number in range(1, 4)])
        self.disk.refuse_open = 3
        self.assertFalse(self.index.put([request(1000, ("k",)), request(1010, ("k",))]))
        self.assertFalse(self.index.put([request(1020, ("k",))]))
        self.assertEqual((self.find("k"), self.troubles), ([0], 1))
        self.assertTrue(self.index.put([request(1000, ("k",)), request(1010, ("k",))]))
        self.assertTrue(self.index.put([request(1020, ("k",))]))
        self.assertEqual(self.find("k"), [1020, 1010, 1000, 0])

    def test_put_on_full_disk_is_reported(self) -> None:
        self.disk.full = True
        self.index.put([request(0, ("k",))])
        self.assertEqual((self.find("k"), self.troubles), ([], 1))

    def test_full_disk_makes_no_further_file(self) -> None:
        self.index.put([request(number * 100, ("key",), T0) for number in range(4)])
        self.disk.full = True
        self.index.put([request(1000, ("k",))])
        self.assertEqual((len(self.index.file_names), self.troubles), (1, 1))
        self.assertEqual(os.listdir(self.directory), list(self.index.file_names))
        self.disk.full = False
        self.index.put([request(1000, ("k",))])
        self.assertEqual((self.find("k"), len(self.index.file_names)), ([1000], 2))

    def test_destroy_removes_all_files(self) -> None:
        self.fill(2)
        self.index.destroy()
        self.assertEqual((os.listdir(self.directory), self.index.file_names), ([], ()))

    def test_query_while_another_thread_puts(self) -> None:
        index = IndexService(self.mktemp(), 64, 1000, lambda: self.now)
        index.put([request(0, ("wanted",))])
        failures: list[list[int]] = []
        done = threading.Event()

        def put() -> None:
            for group in range(200):
                start = 1 + group * 20
                index.put([request(start + number, (f"key-{group}-{number}",)) for number in range(20)])
                index.put([request(start + 19, ("wanted",))])
            done.set()

        writer = threading.Thread(target=put)
        writer.start()
        highest = 0
        while not done.is_set():
            offsets = index.query("TopicTest", "wanted", 64, *ALWAYS, any_offset).offsets
            if not offsets or offsets != sorted(offsets, reverse=True) or offsets[0] < highest:
                failures.append(offsets)
            highest = max(highest, *offsets, 0)
        writer.join()
        self.assertEqual(failures, [])
        self.assertEqual(index.query("TopicTest", "wanted", 1, *ALWAYS, any_offset).offsets, [4000])
        index.destroy()


class ApacheStoreTests(SynchronousTestCase):
    """Against the index file Apache 4.9.7 wrote with 2000 slots and 4000 entries, and the log it was made from."""

    def setUp(self) -> None:
        root = self.mktemp()
        unpack_store("store-clean", root)
        self.store = Path(root, "store-clean")
        (self.theirs,) = (self.store / "index").iterdir()

    def log_requests(self) -> list[DispatchRequest]:
        """Each record of the commit log as its index entry needs it."""
        requests = []
        for path in sorted((self.store / "commitlog").iterdir()):
            data = path.read_bytes()
            at = 0
            while at + 8 <= len(data):
                size, magic = struct.unpack_from(">Ii", data, at)
                if magic != -626843481:
                    break
                offset, sys_flag = struct.unpack_from(">qi", data, at + 28)
                self.assertEqual(sys_flag & 0x30, 0, "all hosts of this log are IPv4")
                (stored,) = struct.unpack_from(">q", data, at + 56)
                (body,) = struct.unpack_from(">i", data, at + 84)
                topic_at = at + 88 + body
                self.assertEqual(
                    struct.unpack_from(">I", data, at + 8)[0], crc32(data[at + 88 : topic_at]) & 0x7FFFFFFF
                )
                properties_at = topic_at + 1 + data[topic_at]
                topic = data[topic_at + 1 : properties_at].decode()
                (length,) = struct.unpack_from(">H", data, properties_at)
                text = data[properties_at + 2 : properties_at + 2 + length].decode()
                properties = dict(pair.split("\x01") for pair in text.split("\x02") if pair)
                keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
                keys += [key for key in properties.get("KEYS", "").split(" ") if key]
                requests.append(request(offset, tuple(keys), stored, topic, sys_flag))
                at += size
        return requests

    def test_indexing_apaches_log_gives_apaches_bytes(self) -> None:
        requests = self.log_requests()
        self.assertTrue(len(requests) > 1600)
        directory = self.mktemp()
        index = IndexService(directory, 2000, 4000, lambda: T0)
        for start in range(0, len(requests), 37):
            index.put(requests[start : start + 37])
        index.close()
        (ours,) = Path(directory).iterdir()
        self.assertEqual(ours.stat().st_size, self.theirs.stat().st_size)
        self.assertTrue(ours.read_bytes() == self.theirs.read_bytes(), "the files differ")

    def test_query_apaches_index_finds_all_messages(self) -> None:
        index = IndexService(str(self.store / "index"), 2000, 4000, lambda: T0, max_msgs_num_batch=100_000)
        self.addCleanup(index.close)
        self.assertTrue(index.load(LastStop.CLEAN, StoreCheckpoint(str(self.store / "checkpoint")), 1 << 62))
        found: Counter[str] = Counter()
        with lzma.open(STORES / "store-clean.manifest.jsonl.xz", "rt", encoding="utf-8") as manifest:
            for line in manifest:
                message = json.loads(line)
                if message["record"] != "message" or message["commitLogOffset"] is None:
                    continue
                kind = message["kind"].split()[0]
                topic = "SCHEDULE_TOPIC_XXXX" if kind == "delayed" else message["topic"]
                for key in [message["uniqKey"], *(message["keys"] or "").split()]:
                    offsets = index.query(topic, key, 100_000, *ALWAYS, any_offset).offsets
                    self.assertIn(message["commitLogOffset"], offsets, message)
                    found[kind] += 1
        self.assertTrue(found["normal"] > 1600, found)
        self.assertTrue({"normal", "delayed", "compressed", "batch"} <= found.keys(), found)

    def test_apaches_checkpoint_is_read(self) -> None:
        checkpoint = StoreCheckpoint(str(self.store / "checkpoint"))
        last = max(record.store_timestamp for record in self.log_requests())
        self.assertEqual(checkpoint.physic_msg_timestamp, last)
        self.assertTrue(0 < checkpoint.logics_msg_timestamp <= last)
        self.assertEqual(checkpoint.index_msg_timestamp, 0)
        raw = Path(checkpoint.path).read_bytes()
        checkpoint.flush()
        self.assertEqual(Path(checkpoint.path).read_bytes(), raw)
