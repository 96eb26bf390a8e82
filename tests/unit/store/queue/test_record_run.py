"""Runs of records: served as the loop of MessageReader serves them, and left to it if anything is unusual."""

import mmap
import random
import struct

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.java_hash import java_string_hash
from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, FILLER_SIZE, MESSAGE_MAGIC
from rocketd.store.queue import record_run
from rocketd.store.testing import make_message
from tests.support.store_reading import Filter, ReaderTestCase

SIZE = 200
QUEUE_ID = 3
FIRST = 70
"""Queue offset of the first record."""
LOG_FROM = 1 << 40
NEGATIVE = java_string_hash("negative hash")
TOPIC = b"\x05topic"
_HEAD = struct.Struct(">iIIiiq8xI")


class RecordRunTests(SynchronousTestCase):
    """Five records of one queue: two adjacent ones, a gap, then three adjacent ones."""

    third = 600
    """Position of the record after the gap."""

    def setUp(self):
        self.log = mmap.mmap(-1, 1 << 18)
        positions = [0, 200, self.third, self.third + 200, self.third + 400]
        for number, position in enumerate(positions):
            self.write(position, queue_offset=FIRST + number)
        self.entries = [(LOG_FROM + position, SIZE, 7) for position in positions]
        self.end = self.third + 600

    def write(
        self,
        position,
        size=SIZE,
        magic=MESSAGE_MAGIC & 0xFFFFFFFF,
        queue_id=QUEUE_ID,
        queue_offset=FIRST,
        topic=TOPIC,
        flags=0x8B,
        body_at=88,
    ):
        """Write a record with a body of 70 bytes."""
        self.log[position : position + SIZE] = bytes(SIZE)
        _HEAD.pack_into(self.log, position, size, magic, 0x89ABCDEF, queue_id, -1, queue_offset, flags)
        self.log[position + body_at - 4 : position + body_at] = (70).to_bytes(4, "big")
        self.log[position + body_at + 70 : position + body_at + 70 + len(topic)] = topic

    def run_of(self, max_messages=32, max_bytes=1 << 20, begin=0, end=None, tags_codes=None, left_out=None):
        entries = b"".join(CONSUME_QUEUE_ENTRY.pack(*entry) for entry in self.entries[: max_messages + 1])
        view = memoryview(self.log)
        found = record_run.record_run(
            entries,
            TOPIC,
            QUEUE_ID,
            FIRST,
            self.log,
            view,
            LOG_FROM,
            begin,
            self.end if end is None else end,
            max_messages,
            max_bytes,
            tags_codes,
            left_out,
        )
        if found is None:
            return None
        views, count, size, following = found
        self.assertEqual(following, FIRST + count if tags_codes is None else following)
        self.assertEqual(size, sum(map(len, views)))
        return [len(each) for each in views], count

    def test_run_joins_adjacent_records(self):
        self.assertEqual(self.run_of(), ([400, 600], 5))

    def test_run_of_few_messages_ends_at_the_limit(self):
        self.assertEqual(self.run_of(3), ([400, 200], 3))
        self.assertEqual(self.run_of(1), ([200], 1))

    def test_run_of_few_bytes_ends_before_the_limit(self):
        self.assertEqual(self.run_of(max_bytes=600), ([400, 200], 3))
        self.assertEqual(self.run_of(max_bytes=599), ([400], 2))

    def test_run_above_all_limits_has_one_record(self):
        self.assertEqual(self.run_of(max_messages=0), ([200], 1))
        self.assertEqual(self.run_of(max_bytes=1), ([200], 1))

    def test_record_outside_the_positions_is_left_to_the_caller(self):
        self.assertIsNone(self.run_of(end=self.end - 1))
        self.assertIsNone(self.run_of(begin=1))
        for physical_offset in (LOG_FROM - 1, 0, -1, LOG_FROM + (1 << 18), (1 << 63) - 1):
            self.entries[2] = (physical_offset, SIZE, 7)
            self.assertIsNone(self.run_of(), physical_offset)

    def test_record_beyond_the_limit_is_not_looked_at(self):
        self.assertEqual(self.run_of(2, end=400), ([400], 2))
        self.entries[2] = (LOG_FROM + self.third, 5, 7)
        self.assertEqual(self.run_of(2), ([400], 2))

    def test_filler_at_the_limit_is_left_to_the_caller(self):
        self.entries[2] = (0, FILLER_SIZE, 0)
        self.assertIsNone(self.run_of(2))
        self.assertEqual(self.run_of(1), ([200], 1))

    def test_entry_of_impossible_size_is_left_to_the_caller(self):
        for size in (0, -1, 27, 90, FILLER_SIZE, -(1 << 31)):
            self.entries[2] = (LOG_FROM + self.third, size, 7)
            self.assertIsNone(self.run_of(), size)
        self.entries[2] = (LOG_FROM + self.third, 90, 7)
        self.write(self.third, size=90, queue_offset=FIRST + 2)
        self.assertIsNone(self.run_of())

    def test_entry_of_huge_size_ends_the_run_as_above_the_limit(self):
        self.entries[2] = (LOG_FROM + self.third, 1 << 30, 7)
        self.assertEqual(self.run_of(), ([400], 2))
        self.entries[0] = (LOG_FROM, 1 << 30, 7)
        self.assertIsNone(self.run_of())

    def test_overlapping_records_are_left_to_the_caller(self):
        self.entries[1] = self.entries[0]
        self.assertIsNone(self.run_of())
        self.entries[1] = (LOG_FROM + 100, SIZE, 7)
        self.write(100, queue_offset=FIRST + 1)
        self.assertIsNone(self.run_of())

    def test_run_of_tags_leaves_others_out(self):
        for index, code in enumerate((5, -6, 7, -6, 8)):
            self.entries[index] = (*self.entries[index][:2], code)
        self.assertEqual(self.run_of(tags_codes=frozenset((5, 8))), ([200, 200], 2))
        self.assertEqual(self.run_of(tags_codes=frozenset((-6, 7, 8))), ([200, 600], 4))
        self.assertEqual(self.run_of(tags_codes=frozenset((9,))), ([], 0))

    def test_tag_that_is_not_proved_is_left_to_the_caller(self):
        for index, code in enumerate((5, -6, 7, -6, 8)):
            self.entries[index] = (*self.entries[index][:2], code)
        wanted = frozenset((5, 8))
        self.assertEqual(self.run_of(tags_codes=wanted, left_out={-6, 7}), ([200, 200], 2))
        for proved in (set(), {7}, {-6}):
            self.assertIsNone(self.run_of(tags_codes=wanted, left_out=proved), proved)

    def test_record_left_out_by_its_tag_is_not_read(self):
        self.write(self.third, magic=0, queue_offset=FIRST + 2)
        self.entries[2] = (LOG_FROM + self.third, SIZE, 8)
        self.assertEqual(self.run_of(tags_codes=frozenset((7,))), ([400, 400], 4))

    def test_tags_code_that_is_not_a_hash_is_left_to_the_caller(self):
        for code in (1 << 31, 1 << 32, (1 << 32) + 7, -(1 << 31) - 1, -1 << 40, 1_700_000_000_000):
            self.entries[2] = (LOG_FROM + self.third, SIZE, code)
            self.assertIsNone(self.run_of(tags_codes=frozenset((7,))), code)
            self.assertEqual(self.run_of(), ([400, 600], 5))

    def test_record_that_does_not_match_its_entry_is_left_to_the_caller(self):
        wrong = (
            {"size": SIZE + 1},
            {"magic": 0xCBD43194},
            {"queue_id": QUEUE_ID + 1},
            {"queue_id": QUEUE_ID - (1 << 31)},
            {"queue_offset": FIRST + 1},
            {"queue_offset": FIRST + 2 + (1 << 32)},
            {"queue_offset": -1},
            {"topic": b"\x05tropic"},
            {"topic": b"\x06topic"},
            {"flags": 16},
            {"body_at": 92},
        )
        for change in wrong:
            self.write(self.third, **{"queue_offset": FIRST + 2, **change})
            self.assertIsNone(self.run_of(), change)
        self.write(self.third, queue_offset=FIRST + 2)
        self.assertEqual(self.run_of(), ([400, 600], 5))

    def test_topic_is_found_behind_addresses_of_ipv6(self):
        for flags, body_at in ((16, 100), (32, 100), (48, 112)):
            self.write(self.third, queue_offset=FIRST + 2, flags=flags, body_at=body_at)
            self.assertEqual(self.run_of(), ([400, 600], 5))

    def test_topic_beyond_the_log_is_left_to_the_caller(self):
        for body_length in (1 << 18, (1 << 32) - 1):
            self.log[self.third + 84 : self.third + 88] = body_length.to_bytes(4, "big")
            self.assertIsNone(self.run_of())

    def test_head_beyond_the_log_is_left_to_the_caller(self):
        position = len(self.log) - 95
        self.log[position:] = bytes(95)
        _HEAD.pack_into(self.log, position, 95, MESSAGE_MAGIC & 0xFFFFFFFF, 0, QUEUE_ID, 0, FIRST, 48)
        self.entries = [(LOG_FROM + position, 95, 7)]
        self.assertIsNone(self.run_of(end=len(self.log)))
        self.assertIsNone(self.run_of(end=len(self.log), tags_codes=frozenset((7,))))


class SparseRecordRunTests(RecordRunTests):
    """The same with records too far apart for one copy of their heads."""

    third = 200_000


class SameAnswersTests(ReaderTestCase):
    """Reads with runs and with the loop alone give the same answers, on damaged stores as well."""

    def both(self, *arguments):
        answers = []
        for uses_runs in (True, False):
            self.patch(record_run, "COMPILED", uses_runs)
            result = self.get(*arguments)
            views = [bytes(view) for view in result.buffers]
            answers.append((result.status, result.next_begin_offset, result.min_offset, result.max_offset, views))
            answers[-1] += (result.size, result.count, result.suggest_pulling_from_slave)
        return answers

    def fill(self, chance):
        for _ in range(30):
            self.put(*[self.message(chance) for _ in range(chance.choice((1, 2, 5)))])

    def message(self, chance):
        tag = chance.choice(("A", "B", "negative hash"))
        return make_message(bytes(chance.randrange(300)), queue_id=chance.choice((0, 0, 1)), tag=tag)

    def damage(self, chance):
        """Overwrite an entry of queue 0, or some bytes of the log."""
        queue = self.store.queues.find("TopicTest", 0)
        if chance.random() < 0.5:
            file = chance.choice(self.store.commit_log.queue.files)
            position = chance.randrange(file.wrote_position)
            self.store._fs.pwrite(file._fd, chance.randbytes(chance.choice((1, 4, 30))), position)
            return
        file = chance.choice(queue.files.files)
        number = chance.randrange(file.wrote_position // 20)
        offset, size, code = CONSUME_QUEUE_ENTRY.unpack_from(file.view, number * 20)
        entry = chance.choice(
            (
                (0, FILLER_SIZE, 0),
                (offset, size + chance.choice((-1, 1)), code),
                (chance.randrange(self.store.max_physical_offset()), size, code),
                (-1, -1, 0),
                (offset, size, chance.choice((65, 1 << 32, 1 << 33 | 1, -1 << 31, (-1 << 31) - 1, -3 & 0xFFFFFFFF))),
            )
        )
        file.view[number * 20 : number * 20 + 20] = CONSUME_QUEUE_ENTRY.pack(*entry)

    def test_reads_with_runs_answer_as_the_loop(self):
        served_with_run = 0
        for seed in range(12):
            chance = random.Random(seed)
            self.start(
                memory=chance.choice((10_000, 1_000_000)),
                mapped_file_size_commit_log=chance.choice((4096, 65536)),
                mapped_file_size_consume_queue=chance.choice((200, 6000)),
                max_transfer_bytes_on_message_in_memory=chance.choice((1000, 1 << 18)),
            )
            self.fill(chance)
            for _ in range(4):
                end = self.store.get_max_offset("TopicTest", 0)
                for offset in range(end + 1):
                    wanted = chance.choice((None, None, Filter(), Filter({65}), Filter({66, NEGATIVE}), Filter({9})))
                    with_runs, without = self.both(offset, chance.choice((0, 1, 3, 32, 900)), wanted)
                    self.assertEqual(with_runs, without, (seed, offset))
                    served_with_run += with_runs[-2] > 0
                self.damage(chance)
            self.store.stop()
        self.assertGreater(served_with_run, 500)
