"""Messages as bytes: properties, batches, unique keys."""

import struct
import tracemalloc
import zlib
from datetime import datetime

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.instance.identity import key_head
from rocketd.client.messages import received
from rocketd.client.messages.received import unpack
from rocketd.common.message_properties import decode_properties
from rocketd.protocol.batch import ENTRY_OVERHEAD, batch_entry, batch_properties
from rocketd.protocol.compression import algorithm_of, compress
from rocketd.protocol.errors import IllegalMessageError
from rocketd.protocol.message import property_table, property_text
from rocketd.protocol.unique_keys import UniqueKeys
from tests.support.lacking import need_package


class PropertyTests(SynchronousTestCase):
    def test_property_text_of_any_values_is_read_back(self):
        for table in ({}, {"a": "1"}, {"a": "1", "b": "\0"}, {"a": "ä\0b", "b": "x"}):
            self.assertEqual(decode_properties(property_text(table)), table)

    def test_property_text_with_separator_in_value_is_refused(self):
        for value in ("x\x01y", "x\x02y", "x\x02", "x\x02c\x01d", "\x02\x01"):
            for table in ({"a": value}, {"a": value, "b": "1"}, {"a": value, "b": "1\0"}):
                self.assertRaises(IllegalMessageError, property_text, table)

    def test_property_text_above_limit_is_refused(self):
        self.assertEqual(len(property_text({"a": "x" * 32765})), 32767)
        error = self.assertRaises(IllegalMessageError, property_text, {"a": "x" * 32766})
        self.assertIn("32768 bytes together, more than 32767", str(error))

    def test_property_table_without_labels_is_the_given_one(self):
        self.assertEqual(property_table({"a": "1"}, None, "", 0), {"a": "1"})
        self.assertEqual(
            property_table({"TAGS": "old"}, "new", "k1 k2", 3), {"TAGS": "new", "KEYS": "k1 k2", "DELAY": "3"}
        )


class BatchTests(SynchronousTestCase):
    def test_batch_entry_has_sizes_flag_body_and_properties(self):
        entry = batch_entry(b"body", b"a\x011", 7)
        self.assertEqual(struct.unpack_from(">iiiii", entry), (ENTRY_OVERHEAD + 4 + 3, 0, 0, 7, 4))
        self.assertEqual(entry[20:], b"body" + struct.pack(">h", 3) + b"a\x011")

    def test_batch_properties_say_whether_to_wait(self):
        self.assertEqual(batch_properties(True), "WAIT\x01true")
        self.assertEqual(batch_properties(False), "WAIT\x01false")


class CompressionTests(SynchronousTestCase):
    def test_compressed_body_is_zlib_with_its_flags(self):
        body, flags = compress(b"x" * 1000)
        self.assertEqual((zlib.decompress(body), flags), (b"x" * 1000, 0x301))

    def test_other_algorithms_have_their_flags_and_are_read_back(self):
        for algorithm, package, flags in (("lz4", "lz4", 0x101), ("zstd", "zstandard", 0x201)):
            with self.subTest(algorithm=algorithm):
                need_package(package)
                body, found = compress(b"x" * 1000, algorithm)
                self.assertEqual((found, unpack(body, found)), (flags, b"x" * 1000))
                self.assertLess(len(body), 100)

    def test_body_that_ends_too_early_is_refused(self):
        for algorithm, package in (("zlib", "zlib"), ("lz4", "lz4"), ("zstd", "zstandard")):
            with self.subTest(algorithm=algorithm):
                need_package(package)
                body, flags = compress(bytes(range(256)) * 10, algorithm)
                error = self.assertRaises(IllegalMessageError, unpack, body[:-1], flags)
                self.assertIn("cannot be unpacked", str(error))

    def test_body_above_limit_is_refused_before_it_fills_the_memory(self):
        self.patch(received, "UNPACKED_LIMIT", 100_000)
        for algorithm, package in (("zlib", "zlib"), ("lz4", "lz4"), ("zstd", "zstandard")):
            with self.subTest(algorithm=algorithm):
                need_package(package)
                self.assertEqual(len(unpack(*compress(bytes(100_000), algorithm))), 100_000)
                tracemalloc.start()
                self.addCleanup(tracemalloc.stop)
                packed, flags = compress(bytes(200_000_000), algorithm)
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                error = self.assertRaises(IllegalMessageError, unpack, packed, flags)
                self.assertIn("the unpacked body has more than 100000 bytes", str(error))
                self.assertLess(tracemalloc.get_traced_memory()[1] - before, 100_000_000)

    def test_algorithm_without_bits_is_zlib(self):
        self.assertEqual([algorithm_of(flags) for flags in (0x1, 0x301, 0x101, 0x205)], [0x300, 0x300, 0x100, 0x200])


class UniqueKeysTests(SynchronousTestCase):
    def setUp(self):
        self.now = datetime(2026, 1, 2, 0, 0, 1).timestamp() * 1000
        self.keys = UniqueKeys(key_head("10.1.2.3", 0x1234, b"\xaa\xbb\xcc\xdd"), lambda: self.now)

    def test_key_of_one_process_has_head_time_and_counter(self):
        day = 24 * 3600 * 1000
        self.assertEqual(self.keys.next_key(), f"0A0102031234AABBCCDD{day + 1000:08X}0000")
        self.assertEqual(self.keys.next_key()[-4:], "0001")

    def test_key_with_ipv6_address_has_56_digits(self):
        keys = UniqueKeys(key_head("fd00::1", 1, bytes(4)), lambda: self.now)
        self.assertEqual(len(keys.next_key()), 56)

    def test_time_in_new_month_begins_at_zero(self):
        self.keys.next_key()
        self.now = datetime(2026, 2, 1, 0, 0, 0, 5000).timestamp() * 1000
        self.assertEqual(self.keys.next_key()[20:28], "00000005")
        self.now = datetime(2026, 12, 31, 23, 59, 59).timestamp() * 1000
        self.keys.next_key()
        self.now = datetime(2027, 1, 1).timestamp() * 1000
        self.assertEqual(self.keys.next_key()[20:28], "00000000")

    def test_time_after_small_step_back_is_zero(self):
        self.now = datetime(2026, 2, 1).timestamp() * 1000
        self.keys.next_key()
        self.now -= 5000
        self.assertEqual(self.keys.next_key()[20:28], "00000000")

    def test_counter_after_65536_keys_begins_anew(self):
        seen = {self.keys.next_key()[-4:] for _ in range(0x10000)}
        self.assertEqual(len(seen), 0x10000)
        self.assertEqual(self.keys.next_key()[-4:], "0000")

    def test_keys_made_together_are_all_different(self):
        keys = self.keys.next_keys(70_000)
        self.now += 2  # the milliseconds that the keys above have
        keys += [*self.keys.next_keys(3), self.keys.next_key()]
        self.assertEqual(len(set(keys)), 70_004)
        self.assertEqual({key[:20] for key in keys}, {"0A0102031234AABBCCDD"})
