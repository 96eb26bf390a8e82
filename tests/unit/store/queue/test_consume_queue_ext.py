"""The extension of a consume queue: bytes as Apache's, addresses that mean one unit for ever, ends found again."""

import os
import shutil
import struct
import threading
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import java_string_hash
from rocketd.store.base.errors import StoreFileSizeError
from rocketd.store.base.layout import MAX_EXT_ADDRESS, consume_queue_ext_dir, offset_to_file_name, queue_dir
from rocketd.store.format.record import decode_messages, store_timestamp_of
from rocketd.store.message_store import MessageStore
from rocketd.store.queue import consume_queue_ext
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.queue.consume_queue_ext import (
    ADDRESS_BASE,
    END_BLANK_SIZE,
    MAX_UNIT_SIZE,
    MIN_UNIT_SIZE,
    ConsumeQueueExt,
    CqExtUnit,
    is_ext_address,
)
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config
from tests.support.apache_stores import unpack_store
from tests.support.examples import examples
from tests.support.killed_stores import copy_of_killed
from tests.support.names_on_disk import NamesOnDisk

WAIT = 60

SIZE = 200
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UNITS = st.builds(CqExtUnit, INT64, st.integers(1, (1 << 63) - 1), st.none() | st.binary(min_size=1, max_size=SIZE))


def unit(number, bitmap=None):
    return CqExtUnit(number, 1_700_000_000_000 + number, bitmap)


def laid_out(units, file_size):
    """Files of these units, and the offset of each, by Apache's rule.

    A unit that leaves less than four bytes of its file goes to the next file. The short -1 stands in its former place.
    """
    files = []
    offsets = []
    for item in units:
        bitmap = item.bitmap or b""
        data = struct.pack(">hqqh", 20 + len(bitmap), item.tags_code, item.store_timestamp, len(bitmap)) + bitmap
        if files and len(data) > file_size - len(files[-1]) - 4:
            files[-1] = (files[-1] + b"\xff\xff").ljust(file_size, b"\0")
        if not files or len(files[-1]) == file_size:
            files.append(b"")
        offsets.append(file_size * (len(files) - 1) + len(files[-1]))
        files[-1] += data
    return [data.ljust(file_size, b"\0") for data in files], offsets


class ExtTestCase(SynchronousTestCase):
    def setUp(self):
        self.lines = []
        for level in ("warn", "error"):
            self.patch(consume_queue_ext._log, level, lambda text, **fields: self.lines.append(text.format(**fields)))
        self.begin()

    def begin(self, size=SIZE):
        self.fs = FaultyFileSystem()
        self.directory = os.path.join(os.path.abspath(self.mktemp()), "T", "0")
        self.open(size)

    def open(self, size=SIZE, max_address=None):
        self.ext = ConsumeQueueExt(self.fs, "T", 0, self.directory, size)
        self.ext.load()
        self.ext.recover(max_address)
        return self.ext

    def contents(self):
        names = sorted(os.listdir(self.directory)) if os.path.exists(self.directory) else []
        found = []
        for name in names:
            with open(os.path.join(self.directory, name), "rb") as file:
                found.append(file.read())
        return found

    def put(self, *numbers):
        """Put units without bitmap; nine of them fit into a file. Returns their addresses."""
        return [self.ext.put(unit(number)) for number in numbers]

    def file_names(self):
        return [int(name) // SIZE for name in sorted(os.listdir(self.directory))]


class UnitTests(ExtTestCase):
    def test_addresses_are_not_tags_codes(self):
        self.assertEqual(MAX_EXT_ADDRESS, -2147483649)
        for number, expected in (
            (MAX_EXT_ADDRESS, True),
            (MAX_EXT_ADDRESS + 1, False),
            (-1, False),
            (0, False),
            ((1 << 63) - 1, False),
            (-(1 << 63), True),
        ):
            self.assertEqual(is_ext_address(number), expected, number)

    def test_unit_bytes_equal_apaches(self):
        address = self.ext.put(CqExtUnit(0x0102030405060708, 0x1112131415161718, b"\xaa\xbb"))
        self.assertEqual(address, ADDRESS_BASE)
        self.assertEqual(
            self.contents(),
            [bytes.fromhex("0016 0102030405060708 1112131415161718 0002 aabb").ljust(SIZE, b"\0")],
        )
        self.assertEqual(self.ext.put(unit(1)), ADDRESS_BASE + 22)
        self.assertEqual((self.ext.min_address, self.ext.max_address), (ADDRESS_BASE, ADDRESS_BASE + 42))

    def test_empty_extension_has_no_units(self):
        self.assertEqual((self.ext.min_address, self.ext.max_address), (ADDRESS_BASE, ADDRESS_BASE))
        for address in (ADDRESS_BASE, MAX_EXT_ADDRESS, 0, 5):
            self.assertIsNone(self.ext.get(address))
        self.assertFalse(os.path.exists(self.directory))

    @settings(max_examples=examples(60), deadline=None)
    @given(units=st.lists(UNITS, max_size=30), size=st.integers(24, SIZE))
    def test_units_are_read_back_and_lie_as_apaches(self, units, size):
        self.begin(size)
        good = [item for item in units if MIN_UNIT_SIZE + len(item.bitmap or b"") + END_BLANK_SIZE <= size]
        addresses = [self.ext.put(item) for item in units]
        files, offsets = laid_out(good, size)
        self.assertEqual(
            [address for address in addresses if address is not None], [ADDRESS_BASE + offset for offset in offsets]
        )
        self.assertEqual(self.contents(), files)
        for ext in (self.ext, self.open(size, ADDRESS_BASE + offsets[-1] if offsets else None), self.open(size)):
            for item, offset in zip(good, offsets, strict=True):
                self.assertEqual(ext.get(ADDRESS_BASE + offset), item)
            self.assertIsNone(ext.get(ext.max_address))
            self.assertEqual(self.contents(), files)
            self.assertEqual(ext.put(unit(1)) is None, False)
            self.begin_again(size, files)

    def begin_again(self, size, files):
        """Files as they were, in a new directory."""
        self.begin(size)
        os.makedirs(self.directory)
        for number, data in enumerate(files):
            with open(os.path.join(self.directory, f"{number * size:020d}"), "wb") as file:
                file.write(data)

    def test_oversized_units_are_refused(self):
        self.assertIsNone(self.ext.put(unit(1, bytes(SIZE - MIN_UNIT_SIZE - END_BLANK_SIZE + 1))))
        self.assertIsNotNone(self.ext.put(unit(1, bytes(SIZE - MIN_UNIT_SIZE - END_BLANK_SIZE))))
        self.begin(1 << 20)
        self.assertIsNone(self.ext.put(unit(1, bytes(MAX_UNIT_SIZE - MIN_UNIT_SIZE + 1))))
        self.assertEqual(self.contents(), [])
        longest = unit(2, b"\x55" * (MAX_UNIT_SIZE - MIN_UNIT_SIZE))
        self.assertEqual(self.ext.get(self.ext.put(longest)), longest)

    def test_full_disk_logs_one_line_until_room(self):
        self.fs.fail("allocate", OSError(28, "No space left on device"), times=3)
        self.assertEqual(self.put(1, 2, 3, 4), [None, None, None, ADDRESS_BASE])
        self.assertEqual(len(self.lines), 1)
        self.assertIn("queue T-0: ", self.lines[0])

    def test_addresses_are_limited(self):
        last = (MAX_EXT_ADDRESS - ADDRESS_BASE) // SIZE * SIZE
        self.open(max_address=ADDRESS_BASE + last - SIZE)
        self.assertIsNone(self.ext.put(unit(1)))
        self.open(max_address=ADDRESS_BASE + last - 2 * SIZE)
        self.assertEqual(self.ext.put(unit(1)), ADDRESS_BASE + last - SIZE)

    def test_flush_waits_for_least_pages(self):
        self.put(1)
        self.assertFalse(self.ext.flush(1))
        self.assertTrue(self.ext.flush(0))
        self.assertEqual(self.fs.calls["fdatasync"], 1)

    def test_destroy_removes_directory(self):
        self.put(*range(20))
        self.ext.destroy()
        self.assertFalse(os.path.exists(self.directory))
        self.assertEqual(self.put(1), [ADDRESS_BASE])

    def test_load_refuses_file_of_other_size(self):
        self.put(1)
        with self.assertRaises(StoreFileSizeError):
            self.open(SIZE + 1)


class NamesTests(SynchronousTestCase):
    def test_flush_makes_the_names_of_file_and_directories_safe(self):
        disk = NamesOnDisk()
        top = os.path.abspath(self.mktemp())
        ext = ConsumeQueueExt(disk, "T", 0, os.path.join(top, "T", "0"), SIZE)
        ext.put(unit(1))
        self.assertEqual(len(disk.unsafe(top)), 4)
        ext.flush(0)
        self.assertEqual(disk.unsafe(top), set())


class RecoverTests(ExtTestCase):
    def damage(self, begin, end, file=0):
        """Make bytes of a file zero, as a page that was never written."""
        with open(os.path.join(self.directory, f"{file * SIZE:020d}"), "r+b") as out:
            out.seek(begin)
            out.write(bytes(end - begin))

    def test_recovery_drops_units_behind_max_address(self):
        addresses = self.put(*range(25))
        before = self.contents()
        self.open(max_address=addresses[11])
        self.assertEqual((self.ext.get(addresses[11]), self.ext.get(addresses[12])), (unit(11), None))
        self.assertEqual(self.file_names(), [0, 1])
        self.assertEqual(self.put(*range(12, 25)), addresses[12:])
        self.assertEqual(self.contents(), before)

    def test_recovery_without_entries_walks_units(self):
        addresses = self.put(*range(13))
        self.open()
        self.assertEqual([self.ext.get(address) for address in addresses], [unit(n) for n in range(13)])
        self.assertEqual(self.ext.max_address, addresses[-1] + 20)
        self.assertEqual(self.lines, [])

    def test_torn_unit_at_the_end_is_cleared(self):
        addresses = self.put(0, 1, 2)
        self.damage(45, 60)
        self.open(max_address=addresses[1])
        self.assertEqual(self.contents()[0][40:], bytes(SIZE - 40))
        self.assertEqual(self.put(2), [addresses[2]])

    def test_address_of_lost_unit_is_never_reused(self):
        addresses = self.put(*range(6))
        self.damage(40, SIZE)
        self.open(max_address=addresses[5])
        self.assertIn("lacks units from", self.lines[0])
        found = [self.ext.get(address) for address in addresses]
        self.assertEqual(found, [unit(0), unit(1), None, None, None, None])
        # As Apache ends a file; the next unit begins another.
        self.assertEqual(self.contents()[0][40:], b"\xff\xff".ljust(SIZE - 40, b"\0"))
        self.assertEqual(self.put(7), [ADDRESS_BASE + SIZE])
        self.open(max_address=ADDRESS_BASE + SIZE)
        self.assertEqual(len(self.lines), 1)
        self.assertEqual(self.ext.get(ADDRESS_BASE + SIZE), unit(7))

    def test_hole_loses_its_own_units_only(self):
        addresses = self.put(*range(6))
        self.damage(40, 80)
        self.open(max_address=addresses[5])
        found = [self.ext.get(address) for address in addresses]
        self.assertEqual(found, [unit(0), unit(1), None, None, unit(4), unit(5)])
        self.assertEqual(self.put(6), [addresses[5] + 20])

    def test_units_between_lost_units_stay(self):
        addresses = self.put(*range(6))
        self.damage(40, 80)
        self.damage(100, SIZE)
        self.open(max_address=addresses[5])
        found = [self.ext.get(address) for address in addresses]
        self.assertEqual(found, [unit(0), unit(1), None, None, unit(4), None])
        self.assertEqual(self.put(6), [ADDRESS_BASE + SIZE])

    def test_offsets_of_lost_files_are_not_reused(self):
        addresses = self.put(*range(20))
        for kept in ((0,), ()):
            for name in os.listdir(self.directory):
                if int(name) // SIZE not in kept:
                    os.unlink(os.path.join(self.directory, name))
            self.open(max_address=addresses[-1])
            self.assertIsNone(self.ext.get(addresses[-1]))
            self.assertEqual(self.put(1), [ADDRESS_BASE + 3 * SIZE])
            self.assertEqual(self.ext.get(addresses[0]), unit(0) if kept else None)

    def test_ended_file_can_be_flushed_and_deleted(self):
        addresses = self.put(*range(6))
        self.damage(40, SIZE)
        self.open(max_address=addresses[5])
        self.put(7)
        self.assertTrue(self.ext.flush(0))
        self.ext.truncate_by_min_address(ADDRESS_BASE + SIZE)
        self.assertEqual(self.file_names(), [1])

    def test_unit_with_contradicting_lengths_is_ignored(self):
        self.put(0)
        for data in ("0014 0000000000000001 0000000000000001 0001", "7fff 0000000000000001 0000000000000001 7feb"):
            with open(os.path.join(self.directory, "0" * 20), "r+b") as file:
                file.write(bytes.fromhex(data))
            self.assertIsNone(self.ext.get(ADDRESS_BASE))

    @settings(max_examples=examples(60), deadline=None)
    @given(
        rounds=st.lists(
            st.tuples(st.lists(UNITS, max_size=12), st.integers(0, 9), st.integers(-SIZE, SIZE)), max_size=6
        )
    )
    def test_crashes_never_mix_units(self, rounds):
        # Each round: puts; with the crash, the last entries are lost and a page at either end of the last file; a start.
        self.begin()
        entries = {}
        for units, lost_entries, cut in rounds:
            for item in units:
                address = self.ext.put(item)
                if address is not None:
                    self.assertNotIn(address, entries)
                    entries[address] = item
            for address in sorted(entries)[max(0, len(entries) - lost_entries) :]:
                del entries[address]
            if os.path.exists(self.directory):
                self.damage(*((cut, SIZE) if cut >= 0 else (0, -cut)), file=self.file_names()[-1])
            self.open(max_address=max(entries, default=None))
            for address, item in entries.items():
                found = self.ext.get(address)
                if found is not None:
                    self.assertEqual(found.tags_code, item.tags_code)


class TruncateTests(ExtTestCase):
    def test_truncate_by_min_address_removes_older_files(self):
        addresses = self.put(*range(40))
        self.ext.flush(0)
        for address, files in (
            (5, [0, 1, 2, 3, 4]),
            (addresses[8], [0, 1, 2, 3, 4]),
            (addresses[9], [1, 2, 3, 4]),
            (addresses[35], [3, 4]),
            (MAX_EXT_ADDRESS, [4]),
        ):
            self.ext.truncate_by_min_address(address)
            self.assertEqual(self.file_names(), files, address)
        self.assertEqual(self.ext.min_address, ADDRESS_BASE + 4 * SIZE)
        self.assertEqual(self.ext.get(addresses[39]), unit(39))
        self.assertIsNone(self.ext.get(addresses[35]))
        self.assertEqual(self.open(max_address=addresses[39]).get(addresses[39]), unit(39))

    def test_truncate_by_min_address_keeps_undeletable_file(self):
        addresses = self.put(*range(30))
        self.ext.flush(0)
        self.fs.fail("remove", OSError("read-only file system"))
        self.ext.truncate_by_min_address(addresses[29])
        self.assertEqual(self.file_names(), [0, 1, 2, 3])
        self.assertIn("read-only file system", self.lines[0])
        self.ext.truncate_by_min_address(addresses[29])
        self.assertEqual(self.file_names(), [3])

    def test_truncate_by_max_address_drops_later_units(self):
        addresses = self.put(*range(30))
        self.ext.truncate_by_max_address(5)
        self.ext.truncate_by_max_address(addresses[29] + 20)
        self.assertEqual(len(self.file_names()), 4)
        self.ext.truncate_by_max_address(addresses[10])
        self.assertEqual((self.file_names(), self.ext.max_address), ([0, 1], addresses[11]))
        self.assertEqual(self.put(11), [addresses[11]])


class ApacheTests(ExtTestCase):
    """A store of Apache's broker 4.9.7 with 120 messages in two queues, 60 of each of two tags, and a restart between."""

    def setUp(self):
        super().setUp()
        directory = os.path.abspath(self.mktemp())
        unpack_store("store-ext", directory)
        self.root = os.path.join(directory, "store-ext")

    def read(self, *directory):
        """Files of a directory as one run of bytes."""
        path = Path(*directory)
        return b"".join(file.read_bytes() for file in sorted(path.iterdir()))

    def test_bytes_and_addresses_are_apaches(self):
        log = self.read(self.root, "commitlog")
        for queue_id in (0, 1):
            entries = list(struct.iter_unpack(">qiq", self.read(queue_dir(self.root, "LoadTopic", queue_id))))
            self.assertEqual(len(entries), 60)
            self.directory = os.path.join(consume_queue_ext_dir(self.root), "LoadTopic", str(queue_id))
            before = self.contents()
            ext = self.open(1024, max_address=entries[-1][2])
            self.assertEqual((self.contents(), self.lines), (before, []))
            units = [ext.get(address) for _, _, address in entries]
            for number, (found, (offset, size, _)) in enumerate(zip(units, entries, strict=True)):
                tag = "abc" if number < 30 else "tagB"
                stored = store_timestamp_of(memoryview(log)[offset : offset + size])
                self.assertEqual(found, CqExtUnit(java_string_hash(tag), stored))
            self.begin(1024)
            self.assertEqual([self.ext.put(found) for found in units], [address for _, _, address in entries])
            self.assertEqual(self.contents(), before)


def code_of(tag):
    """The tags code of a number as a tag."""
    return java_string_hash(str(tag))


def tagged(tag, topic):
    """A message with this tag, which is found again in the log too."""
    return make_message(topic=topic, tags_code=code_of(tag), properties=b"TAGS\x01" + str(tag).encode())


class Tagged:
    """Wants messages of these tags."""

    matches_unit = None
    matches = None

    def __init__(self, *tags):
        self.tags_codes = frozenset(map(code_of, tags))


class StoreTestCase(SynchronousTestCase):
    """A store whose queues are extended."""

    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.fs = FaultyFileSystem()
        self.start()
        self.addCleanup(lambda: self.store.stop())

    def start(self, **changes):
        settings = {
            "enable_consume_queue_ext": True,
            "mapped_file_size_consume_queue_ext": SIZE,
            "mapped_file_size_commit_log": 16384,
        }
        self.store = MessageStore(small_config(self.root, **{**settings, **changes}), STORE_HOST, fs=self.fs)
        self.store.start()
        return self.store

    def put(self, *codes, topic="TopicTest"):
        results = self.store.put_messages([tagged(code, topic) for code in codes])
        done = threading.Event()
        self.store._reput.call(done.set)
        self.assertTrue(done.wait(WAIT))
        return results

    def offsets(self, *codes, topic="TopicTest", queue_id=0):
        """Queue offsets of the messages that a pull for these tags returns."""
        found = []
        offset = self.store.get_min_offset(topic, queue_id)
        while offset < self.store.get_max_offset(topic, queue_id):
            result = self.store.get_messages(topic, queue_id, offset, 32, Tagged(*codes))
            for view in result.buffers:
                found += [message.queue_offset for message in decode_messages(view)]
            offset = result.next_begin_offset
        return found

    def entries(self, topic="TopicTest"):
        """Tags codes as the entries themselves hold them."""
        queue = self.store.queues.find(topic, 0)
        return [queue.entry(offset)[2] for offset in range(queue.min_offset, queue.max_offset)]

    def ext_files(self, topic="TopicTest", queue_id=0):
        directory = os.path.join(consume_queue_ext_dir(self.root), topic, str(queue_id))
        return sorted(os.listdir(directory)) if os.path.exists(directory) else []


class StoreTests(StoreTestCase):
    """Entries lead to units, readers see tags codes."""

    def test_entries_hold_addresses_and_readers_see_tags_codes(self):
        stored = self.put(5, 6, -5, 5)
        self.assertEqual(self.entries(), [ADDRESS_BASE + 20 * number for number in range(4)])
        self.assertEqual(self.offsets(5), [0, 3])
        self.assertEqual(self.offsets(-5, 6), [1, 2])
        self.assertEqual(self.offsets(7), [])
        seen = self.store.queue_entries("TopicTest", 0, 1, 2)
        self.assertEqual(seen, [(stored[n].physical_offset, stored[n].size, code_of((6, -5)[n - 1])) for n in (1, 2)])
        ext = self.store.queues.find("TopicTest", 0).ext
        self.assertEqual(ext.get(ADDRESS_BASE), CqExtUnit(code_of(5), stored[0].store_timestamp))

    def test_stop_and_start(self):
        self.put(*range(25))
        self.store.stop()
        self.start()
        self.assertEqual(self.offsets(3, 24), [3, 24])
        self.put(3)
        self.assertEqual(self.offsets(3, 24), [3, 24, 25])
        self.assertEqual(self.entries()[-1], ADDRESS_BASE + 2 * SIZE + 7 * 20)

    def test_crash_and_start(self):
        self.put(*range(25))
        self.store._flush_queues.flush_all()
        self.put(*range(100, 125))
        self.store.commit_log.queue.flush(0)
        self.root = copy = copy_of_killed(self.store, self.root + "-copy")
        # Unflushed bytes of queue and extension are lost, except the last page of the extension.
        for name in ("consumequeue", "consumequeue_ext"):
            for file in sorted(Path(copy, name, "TopicTest", "0").iterdir())[3:-1]:
                file.write_bytes(bytes(file.stat().st_size))
        self.store.stop()
        self.fs = FaultyFileSystem()
        self.start()
        self.assertEqual(self.store.get_max_offset("TopicTest", 0), 50)
        for code, offset in ((3, 3), (24, 24), (100, 25), (124, 49)):
            self.assertIn(offset, self.offsets(code))

    def test_disabled_extension_stays_readable(self):
        self.put(1, 2)
        self.store.stop()
        self.start(enable_consume_queue_ext=False)
        self.put(2, 3)
        self.put(2, topic="Other")
        self.assertEqual(self.entries(), [ADDRESS_BASE, ADDRESS_BASE + 20, code_of(2), code_of(3)])
        self.assertEqual(self.offsets(2), [1, 2])
        self.assertEqual(self.entries("Other"), [code_of(2)])
        self.assertEqual(self.ext_files("Other"), [])
        self.store.stop()
        self.start()
        self.put(2)
        self.assertEqual(self.entries(), [ADDRESS_BASE, ADDRESS_BASE + 20, code_of(2), code_of(3), ADDRESS_BASE + 40])
        self.assertEqual(self.offsets(2), [1, 2, 4])

    def test_message_with_lost_unit_passes_any_filter(self):
        self.put(1, 2, 3)
        self.store.stop()
        shutil.rmtree(consume_queue_ext_dir(self.root))
        self.start()
        self.assertEqual(self.offsets(9), [0, 1, 2])
        self.assertEqual([tag for _, _, tag in self.store.queue_entries("TopicTest", 0, 0, 9)], self.entries())
        self.put(4)
        # Not where another unit was.
        self.assertEqual(self.entries()[3], ADDRESS_BASE + SIZE)
        self.assertEqual(self.offsets(9), [0, 1, 2])

    def test_full_disk_stores_tags_code_in_entry(self):
        self.put(1)
        queue = self.store.queues.find("TopicTest", 0)
        queue.ext.put = lambda unit: None
        self.put(2)
        self.assertEqual(self.entries(), [ADDRESS_BASE, code_of(2)])

    def test_truncated_entries_drop_their_units(self):
        self.put(*range(12))
        queue = self.store.queues.find("TopicTest", 0)
        queue.truncate_dirty(queue.entry(5)[0])
        self.assertEqual((queue.max_offset, queue.ext.max_address), (5, ADDRESS_BASE + 100))
        self.assertEqual(len(self.ext_files()), 1)

    def test_expired_entries_drop_their_units(self):
        self.put(*range(60))
        self.store._flush_queues.flush_all()
        queue = self.store.queues.find("TopicTest", 0)
        self.assertEqual(len(self.ext_files()), 7)
        queue.correct_min_offset(queue.entry(30)[0])
        self.assertEqual(self.ext_files()[0], offset_to_file_name(3 * SIZE))
        self.assertEqual(self.offsets(30, 59), [30, 59])

    def test_deleted_topic(self):
        self.put(1, 2)
        self.store.delete_topic("TopicTest")
        self.put(3, topic="Other")
        self.assertEqual(os.listdir(consume_queue_ext_dir(self.root)), ["Other"])
        self.put(7)
        self.assertEqual((self.entries(), self.offsets(7)), ([ADDRESS_BASE], [0]))

    def test_queue_without_entries_drops_its_units(self):
        self.put(*range(12))
        self.store.stop()
        directory = queue_dir(self.root, "TopicTest", 0)
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        queue = ConsumeQueue(
            self.fs,
            "TopicTest",
            0,
            directory,
            SIZE,
            ConsumeQueueExt(
                self.fs, "TopicTest", 0, os.path.join(consume_queue_ext_dir(self.root), "TopicTest", "0"), SIZE
            ),
        )
        queue.load()
        queue.recover(clean=True)
        self.assertEqual(self.ext_files(), [])

    def test_forget_flushed_includes_last_extension_file(self):
        self.put(*range(40))
        self.store._flush_queues.flush_all()
        queue = self.store.queues.find("TopicTest", 0)
        self.assertEqual(queue.ext.files.flushed_where, queue.ext.files.max_offset)
        queue.forget_flushed(queue.max_physic_offset)
        self.assertEqual(queue.ext.files.flushed_where, 3 * SIZE)
        self.assertTrue(queue.flush(0))
        self.assertEqual(queue.ext.files.flushed_where, queue.ext.files.max_offset)

    def test_extension_is_flushed_before_checkpoint(self):
        self.put(1)
        self.fs.fail("fdatasync", OSError("input/output error"))
        self.store._flush_queues.flush_all()
        self.assertEqual(len(self.store.queues.dirty), 1)
        self.store._flush_queues.flush_all()
        self.assertEqual(len(self.store.queues.dirty), 0)
        queue = self.store.queues.find("TopicTest", 0)
        self.assertEqual((queue.files.flushed_where, queue.ext.files.flushed_where), (20, 20))


class ApacheStoreTests(StoreTestCase):
    """The same store of Apache's, opened as a whole."""

    def setUp(self):
        directory = os.path.abspath(self.mktemp())
        unpack_store("store-ext", directory)
        self.root = os.path.join(directory, "store-ext")
        self.fs = FaultyFileSystem()
        self.store = None
        self.addCleanup(lambda: self.store and self.store.stop())

    def test_apaches_store_is_read_and_continued(self):
        settings = {
            "mapped_file_size_consume_queue": 400,
            "mapped_file_size_consume_queue_ext": 1024,
            "max_index_num": 500,
        }
        for extended in (True, False):
            self.start(enable_consume_queue_ext=extended, **settings)
            for queue_id in (0, 1):
                self.assertEqual(self.offsets("tagB", topic="LoadTopic", queue_id=queue_id), list(range(30, 60)))
            self.store.stop()
        self.start(**settings)
        self.put(77, topic="LoadTopic")
        self.assertEqual(self.offsets(77, topic="LoadTopic"), [60])
        # A file has 51 units of 20 bytes, and the four bytes of its end.
        self.assertEqual(self.entries("LoadTopic")[-1], ADDRESS_BASE + 1024 + 9 * 20)
