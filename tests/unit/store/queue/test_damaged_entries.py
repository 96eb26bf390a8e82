"""Damaged queue entries and records under an open store: whole messages are served, damage is logged, none is skipped
silently.
"""

import os
import random

from twisted.logger import globalLogPublisher

from rocketd.common.java_hash import java_string_hash
from rocketd.store.base.errors import RecordSoughtError
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_UNIT, FILLER_SIZE, MESSAGE_MAGIC
from rocketd.store.format.message import GetStatus
from rocketd.store.format.record import decode_message
from rocketd.store.queue import consume_queue, entry_finder, record_run
from rocketd.store.testing import make_message
from tests.support.store_reading import Filter, ReaderTestCase

COUNT = 60
TAGS = ("red", "sky", "tan")
CODES = [java_string_hash(tag) for tag in TAGS]


class DamagedEntryTests(ReaderTestCase):
    def setUp(self):
        self.start(mapped_file_size_consume_queue=20 * CONSUME_QUEUE_UNIT)
        self.lines = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)
        # Two queues take turns, so that records of one are not adjacent.
        self.results = self.put(*[make_message(b"%d" % n, queue_id=n % 2, tag=TAGS[n % 3]) for n in range(COUNT)])
        self.wanted = [b"%d" % n for n in range(0, COUNT, 2)]

    def observe(self, event):
        if str(event.get("log_namespace", "")).endswith("entry_finder"):
            self.lines.append(event["log_format"].format(**event))

    def patch_entry(self, index, data):
        name, position = divmod(index * CONSUME_QUEUE_UNIT, 20 * CONSUME_QUEUE_UNIT)
        path = os.path.join(self.root, "consumequeue", "TopicTest", "0", f"{name * 20 * CONSUME_QUEUE_UNIT:020d}")
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(data)

    def patch_log(self, offset, data):
        with open(os.path.join(self.root, "commitlog", f"{0:020d}"), "r+b") as file:
            file.seek(offset)
            file.write(data)

    def all(self, message_filter=None, max_messages=32):
        """Bodies from the first offset on, as a client asks for them, with the statuses of the answers."""
        found, offset = [], 0
        while (result := self.get(offset, max_messages, message_filter)).status is not GetStatus.OFFSET_OVERFLOW_ONE:
            self.assertGreater(result.next_begin_offset, offset)
            found += self.bodies(result)
            self.assertEqual(len(self.bodies(result)), result.count)
            self.assertEqual(sum(map(len, result.buffers)), result.size)
            offset = result.next_begin_offset
        return found

    def test_randomized_entry_file_loses_no_message(self):
        rnd = random.Random(5)
        self.patch_entry(0, rnd.randbytes(20 * CONSUME_QUEUE_UNIT))
        for size in (32, 1):
            self.assertEqual(self.all(max_messages=size), self.wanted)
        self.assertEqual(len(self.lines), 1)
        self.assertIn("queue TopicTest-0: entry 0 has offset", self.lines[0])
        self.assertIn("was found at 0 and is served; stop the broker", self.lines[0])

    def test_flipped_bit_of_offset_or_size_loses_no_message(self):
        for index in (0, 7, 29):
            record = self.results[index * 2]
            entry = CONSUME_QUEUE_ENTRY.pack(record.physical_offset, record.size, CODES[index * 2 % 3])
            for bit in range(12 * 8):
                flipped = bytearray(entry)
                flipped[bit // 8] ^= 1 << bit % 8
                self.patch_entry(index, flipped)
                for size in (32, 1):
                    self.assertEqual(self.all(max_messages=size), self.wanted, (index, bit))
            self.patch_entry(index, entry)

    def test_flipped_bit_of_tags_code_hides_no_message_from_filter(self):
        for index in (0, 7, 29):
            record, tag = self.results[index * 2], index * 2 % 3
            entry = CONSUME_QUEUE_ENTRY.pack(record.physical_offset, record.size, CODES[tag])
            for bit in range(12 * 8, CONSUME_QUEUE_UNIT * 8):
                flipped = bytearray(entry)
                flipped[bit // 8] ^= 1 << bit % 8
                self.patch_entry(index, flipped)
                self.assertEqual(self.tagged(tag), self.wanted_of(tag), (index, bit))
            self.patch_entry(index, entry)
        self.assertEqual(len(self.lines), 1)
        self.assertIn("queue TopicTest-0: entry 0 has tags code", self.lines[0])

    def tagged(self, tag):
        return self.all(Filter([CODES[tag]]))

    def wanted_of(self, tag):
        return [b"%d" % n for n in range(0, COUNT, 2) if n % 3 == tag]

    def test_one_record_is_read_for_each_tag(self):
        """The records of other messages that a filter leaves out are not read."""
        read = []
        tags_code = self.store._finder.tags_code
        self.store._finder.tags_code = lambda queue, index, *given: (
            read.append(index) or tags_code(queue, index, *given)
        )
        for _ in range(2):
            self.assertEqual(self.tagged(0), self.wanted_of(0))
        self.assertEqual(read, [1, 2])

    def test_codes_of_queue_with_many_tags_are_not_compared(self):
        self.patch(consume_queue, "MAX_PROVED_TAGS", 1)
        self.tagged(0)
        self.assertIsNone(self.store.consume_queue("TopicTest", 0).proved_tags)
        self.assertEqual(self.tagged(0), self.wanted_of(0))

    def test_entry_leading_to_other_record_is_corrected(self):
        # All records have one size but for the number of digits; the next one is of queue 1, the next but one of queue 0.
        for other in (21, 22):
            entry = self.results[20]
            wrong = self.results[other]
            self.assertEqual(wrong.size, entry.size)
            self.patch_entry(10, CONSUME_QUEUE_ENTRY.pack(wrong.physical_offset, wrong.size, 2))
            for size in (32, 1):
                self.assertEqual(self.all(max_messages=size), self.wanted)
            self.assertIn("entry 10 has offset", self.lines[0])

    def test_entry_leading_to_record_of_other_topic_is_corrected(self):
        """Size, queue id and number of both records are equal, and only their topics differ."""
        own, other = [], []
        for n in range(8):
            own += self.put(make_message(b"own %d" % n, topic="RightTopic"))
            other += self.put(make_message(b"not %d" % n, topic="WrongTopic"))
        self.assertEqual(own[3].size, other[3].size)
        file = self.store.queues.find("RightTopic", 0).files.files[0]
        entry = CONSUME_QUEUE_ENTRY.pack(other[3].physical_offset, other[3].size, 0)
        file.view[3 * CONSUME_QUEUE_UNIT : 4 * CONSUME_QUEUE_UNIT] = entry
        for uses_runs in (False, True):
            self.patch(record_run, "COMPILED", uses_runs)
            for message_filter in (None, Filter([0])):
                result = self.store.get_messages("RightTopic", 0, 0, 8, message_filter)
                self.assertEqual(self.bodies(result), [b"own %d" % n for n in range(8)])
        self.assertIn("queue RightTopic-0: entry 3 has offset", self.lines[0])
        wrong = other[3].physical_offset, other[3].size, 0
        right, record = self.store.message_of("RightTopic", 0, 3, wrong)
        self.assertEqual((right[0], decode_message(record).body), (own[3].physical_offset, b"own 3"))

    def test_records_with_addresses_of_ipv6_are_served_as_they_are(self):
        host = bytes(range(16)) + bytes(4)
        self.put(*[make_message(b"%d" % n, topic="Six", sys_flag=16, born_host=host) for n in range(4)])
        self.store._finder.find = None
        for uses_runs in (False, True):
            self.patch(record_run, "COMPILED", uses_runs)
            result = self.store.get_messages("Six", 0, 0, 32, None)
            self.assertEqual(self.bodies(result), [b"%d" % n for n in range(4)])
        entry = self.store.queue_entries("Six", 0, 2, 1)[0]
        self.assertEqual(self.store.message_of("Six", 0, 2, entry)[0], entry)

    def test_message_of_filler_or_expired_record_is_none_without_log(self):
        store = self.store
        entries = store.queue_entries("TopicTest", 0, 0, 9)
        self.assertEqual(store.message_of("TopicTest", 0, 3, entries[3])[0], entries[3])
        self.assertIsNone(store.message_of("TopicTest", 0, 3, (0, FILLER_SIZE, 0)))
        self.put(make_message(bytes(60_000)), make_message(b"in the next file"))
        log = store.commit_log.queue
        self.assertTrue(log.flush(0))
        self.assertTrue(log.delete_first(log.files[0]))
        self.assertIsNone(store.message_of("TopicTest", 0, 3, entries[3]))
        store.queues.correct_min_offset(store.commit_log.min_offset)
        self.assertIsNone(store.message_of("TopicTest", 0, 3, (1 << 40, 200, 0)))
        self.assertEqual(self.lines, [])

    def test_randomized_entries_hide_no_message_from_filter(self):
        self.patch_entry(4, b"\xff" * 2 * CONSUME_QUEUE_UNIT)
        for tag in range(3):
            self.assertEqual(self.tagged(tag), self.wanted_of(tag))

    def test_zeroed_record_is_skipped_and_neighbours_are_served(self):
        first, last = self.results[20].physical_offset, self.results[28].physical_offset
        self.patch_log(first, bytes(last - first))
        gone = [b"20", b"22", b"24", b"26"]
        for size in (32, 1):
            self.assertEqual(self.all(max_messages=size), [body for body in self.wanted if body not in gone])
        self.assertEqual(len(self.lines), 1)
        self.assertIn("entry 10 has offset", self.lines[0])
        self.assertIn("so the message is skipped", self.lines[0])
        result = self.get(10, 1)
        self.assertEqual((result.status, result.next_begin_offset), (GetStatus.FOUND, 15))

    def test_pull_of_damaged_records_only_returns_next_offset(self):
        self.patch_log(0, bytes(self.store.max_physical_offset()))
        result = self.get(0)
        self.assertIs(result.status, GetStatus.NO_MATCHED_MESSAGE)
        self.assertEqual((result.next_begin_offset, result.buffers), (20, []))

    def search_in_parts_of(self, size):
        self.patch(entry_finder, "STEP_BYTES", size)
        self.patch(entry_finder, "SCANNED_RECORDS", 1)

    def test_record_far_behind_is_found_in_steps(self):
        """Each read searches a part of the log, and no read skips the message."""
        self.search_in_parts_of(5_000)
        self.put(make_message(b"before", topic="Far"))
        self.put(*[make_message(bytes(1_000)) for _ in range(100)])
        (own,) = self.put(make_message(b"far", topic="Far"))
        self.put(*[make_message(bytes(1_000)) for _ in range(20)])
        self.put(make_message(b"behind", topic="Far"))
        self.assertGreater(len(self.store.commit_log.queue.files), 1)
        file = self.store.queues.find("Far", 0).files.files[0]
        file.view[CONSUME_QUEUE_UNIT : 2 * CONSUME_QUEUE_UNIT] = CONSUME_QUEUE_ENTRY.pack(7, 100, 0)
        result = self.store.get_messages("Far", 0, 0, 32, None)
        self.assertEqual((self.bodies(result), result.next_begin_offset), ([b"before"], 1))
        reads = 1
        while (result := self.store.get_messages("Far", 0, 1, 32, None)).count == 0:
            self.assertEqual((result.status, result.next_begin_offset), (GetStatus.NO_MATCHED_MESSAGE, 1))
            reads += 1
        self.assertEqual((self.bodies(result), result.next_begin_offset), ([b"far", b"behind"], 3))
        self.assertGreater(reads, own.physical_offset // 5_000 // 4)
        self.assertLess(reads, own.physical_offset // 5_000 + 2)
        self.assertEqual(len(self.lines), 1)
        self.assertIn(f"was found at {own.physical_offset} and is served", self.lines[0])

    def test_search_of_many_steps_passes_damaged_bytes(self):
        records = self.put(*[make_message(bytes(1_000), topic="Other") for _ in range(40)])
        (own,) = self.put(make_message(b"own", topic="Far"))
        begin, end = records[2].physical_offset, own.physical_offset
        self.patch_log(begin, (MESSAGE_MAGIC.to_bytes(4, "big", signed=True) * (end - begin))[: end - begin])
        # The first part ends at each place near the record's magic.
        for step in (*range(end - 2, end + 12), 977):
            self.search_in_parts_of(step)
            self.store._finder._known.clear()
            wrong = 7, 100, 0
            for _ in range(end // step + 3):
                try:
                    found = self.store.message_of("Far", 0, 0, wrong)
                    break
                except RecordSoughtError as error:
                    self.assertIn("the log is searched for the record with number 0 of queue Far-0", str(error))
            self.assertEqual(found[0][0], own.physical_offset, step)

    def test_lost_records_in_a_row_are_searched_for_once(self):
        first, last = self.results[20].physical_offset, self.results[28].physical_offset
        self.patch_log(first, bytes(last - first))
        searched = []
        search = self.store._finder._search
        self.store._finder._search = lambda queue, index: searched.append(index) or search(queue, index)
        self.assertEqual(self.all(), self.wanted[:10] + self.wanted[14:])
        self.assertEqual(searched, [10])

    def test_search_for_lost_record_ends_with_the_log_of_its_begin(self):
        self.search_in_parts_of(5_000)
        (own,) = self.put(make_message(b"own", topic="Far"))
        self.put(*[make_message(bytes(1_000)) for _ in range(20)])
        self.patch_log(own.physical_offset, bytes(own.size))
        steps = 0
        while (result := self.store.get_messages("Far", 0, 0, 32, None)).next_begin_offset == 0:
            # The log grows faster than it is searched.
            self.put(*[make_message(bytes(1_000)) for _ in range(10)])
            steps += 1
        self.assertEqual((result.status, result.next_begin_offset), (GetStatus.NO_MATCHED_MESSAGE, 1))
        self.assertTrue(2 <= steps <= 8, steps)
        self.assertIn("so the message is skipped", self.lines[-1])

    def test_corrected_entries_are_cached(self):
        self.patch_entry(0, bytes(15 * CONSUME_QUEUE_UNIT))
        self.all()
        searches = []
        self.store._finder._search = lambda *_: searches.append(1)
        self.assertEqual(self.all(), self.wanted)
        self.assertEqual(searches, [])
