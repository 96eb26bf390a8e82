"""Reading by offset, time and key: every answer that Apache's store gives."""

from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_UNIT, FILLER_SIZE
from rocketd.store.format.message import GetStatus
from rocketd.store.format.record import decode_messages, encode_record
from rocketd.store.testing import STORE_HOST, make_message
from tests.support.store_reading import Filter, ReaderTestCase


class GetTests(ReaderTestCase):
    def check(self, result, status, following, minimum, maximum):
        self.assertIs(result.status, status)
        self.assertEqual(
            (result.next_begin_offset, result.min_offset, result.max_offset), (following, minimum, maximum)
        )
        if status is not GetStatus.FOUND:
            self.assertEqual((result.buffers, result.size, result.count), ([], 0, 0))

    def test_get_from_unknown_queue_is_as_from_empty_one(self):
        for offset in (0, 5, -1):
            self.check(self.get(offset), GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        self.assertEqual(self.store.queue_keys(), [])

    def test_offsets_at_the_borders(self):
        self.put(*[make_message(b"%d" % n) for n in range(3)])
        self.check(self.get(3), GetStatus.OFFSET_OVERFLOW_ONE, 3, 0, 3)
        self.check(self.get(4), GetStatus.OFFSET_OVERFLOW_BADLY, 3, 0, 3)
        self.check(self.get(-1), GetStatus.OFFSET_TOO_SMALL, 0, 0, 3)
        self.check(self.get(2), GetStatus.FOUND, 3, 0, 3)

    def test_get_at_slave_returns_wrong_offsets_unchanged(self):
        self.put(make_message())
        self.store.config.broker_role = "SLAVE"
        self.check(self.get(9), GetStatus.OFFSET_OVERFLOW_BADLY, 9, 0, 1)
        self.check(self.get(9, queue_id=5), GetStatus.NO_MESSAGE_IN_QUEUE, 9, 0, 0)
        self.store.config.offset_check_in_slave = True
        self.check(self.get(9), GetStatus.OFFSET_OVERFLOW_BADLY, 1, 0, 1)

    def test_get_before_min_offset_is_too_small(self):
        self.start(mapped_file_size_commit_log=4096)
        self.put(*[make_message(bytes(900)) for _ in range(10)])
        self.store.queues.correct_min_offset(4096)
        self.check(self.get(1), GetStatus.OFFSET_TOO_SMALL, 4, 4, 10)

    def test_messages_of_removed_files_are_skipped(self):
        self.start(mapped_file_size_commit_log=4096)
        self.put(*[make_message(bytes(900)) for _ in range(10)])
        self.store.commit_log.queue.files[0].destroy()
        self.check(self.get(0, 4), GetStatus.FOUND, 8, 0, 10)
        for file in self.store.commit_log.queue.files[1:]:
            file.available = False
        self.check(self.get(0), GetStatus.MESSAGE_WAS_REMOVING, 10, 0, 10)

    def test_view_outlives_its_file(self):
        self.put(make_message(b"kept"))
        result = self.get()
        self.store.commit_log.queue.files[0].destroy()
        self.assertEqual(self.bodies(result), [b"kept"])

    def test_adjacent_records_are_one_view(self):
        self.put(*[make_message(b"%d" % n) for n in range(5)], make_message(queue_id=1), make_message(b"5"))
        result = self.get()
        self.assertEqual([view.nbytes for view in result.buffers], [5 * len(result.buffers[1]), len(result.buffers[1])])
        self.assertEqual(self.bodies(result), [b"%d" % n for n in range(6)])
        self.assertEqual((result.count, result.size), (6, sum(view.nbytes for view in result.buffers)))

    def test_records_at_the_border_of_two_files_are_two_views(self):
        self.start(mapped_file_size_commit_log=4096)
        size = len(encode_record(make_message(b""), STORE_HOST, 0, 0, 0))
        first = make_message(bytes(4096 - 8 - size))
        self.put(first, make_message(b"second"))
        self.assertEqual([view.nbytes for view in self.get().buffers], [4088, size + 6])

    def test_count_limit(self):
        self.put(*[make_message(b"%d" % n) for n in range(50)])
        # The queue's files have ten entries: no read goes beyond one.
        self.check(self.get(0, 7), GetStatus.FOUND, 7, 0, 50)
        self.check(self.get(3, 32), GetStatus.FOUND, 10, 0, 50)
        self.start(mapped_file_size_consume_queue=6000)
        self.put(*[make_message(b"%d" % n) for n in range(50)])
        self.check(self.get(3, 100), GetStatus.FOUND, 35, 0, 50)
        self.check(self.get(0, 0), GetStatus.FOUND, 1, 0, 50)

    def test_get_returns_one_message_above_bytes_limit(self):
        self.start(max_transfer_bytes_on_message_in_memory=1000)
        self.put(make_message(bytes(5000)), *[make_message(bytes(300)) for _ in range(5)])
        self.check(self.get(0), GetStatus.FOUND, 1, 0, 6)
        self.check(self.get(1), GetStatus.FOUND, 3, 0, 6)

    def test_get_from_disk_has_smaller_limits_and_hint(self):
        self.start(memory=10_000, mapped_file_size_consume_queue=6000)
        self.put(*[make_message(bytes(400)) for _ in range(40)])
        old = self.get(0)
        self.assertEqual((old.count, old.suggest_pulling_from_slave), (8, True))
        new = self.get(35)
        self.assertEqual((new.count, new.suggest_pulling_from_slave), (5, False))
        self.assertTrue(self.store.is_on_disk("TopicTest", 0, 0))
        self.assertFalse(self.store.is_on_disk("TopicTest", 0, 39))
        self.assertFalse(self.store.is_on_disk("TopicTest", 0, 40))
        self.store.config.max_transfer_bytes_on_message_in_disk = 999
        self.assertEqual(self.get(0).count, 1)

    def test_get_filters_by_tags(self):
        self.put(*[make_message(b"%d" % n, tag="ABC"[n % 3]) for n in range(9)])
        result = self.get(message_filter=Filter({66}))
        self.assertEqual(self.bodies(result), [b"1", b"4", b"7"])
        self.check(result, GetStatus.FOUND, 9, 0, 9)
        self.assertEqual(self.bodies(self.get(message_filter=Filter({66, 67}))), [b"1", b"2", b"4", b"5", b"7", b"8"])
        self.check(self.get(2, message_filter=Filter({99})), GetStatus.NO_MATCHED_MESSAGE, 9, 0, 9)
        self.check(self.get(message_filter=Filter({66}), max_messages=2), GetStatus.FOUND, 5, 0, 9)
        self.assertEqual(self.get(message_filter=Filter()).count, 9)

    def test_filtering_ends_after_800_entries(self):
        self.start(mapped_file_size_consume_queue=60000)
        self.put(*[make_message(b"", tag="A") for _ in range(500)])
        self.put(*[make_message(b"", tag="A") for _ in range(400)])
        self.check(self.get(message_filter=Filter({2})), GetStatus.NO_MATCHED_MESSAGE, 800, 0, 900)

    def test_get_filters_by_properties(self):
        self.put(
            *[
                make_message(b"%d" % n, properties=b"n\x01%d\x02TAGS\x01%c" % (n, 65 + n % 2), tags_code=65 + n % 2)
                for n in range(6)
            ]
        )
        wanted = Filter({65}, lambda properties: b"n\x010" not in properties)
        self.assertEqual(self.bodies(self.get(message_filter=wanted)), [b"2", b"4"])
        self.check(self.get(message_filter=Filter(None, lambda _: False)), GetStatus.NO_MATCHED_MESSAGE, 6, 0, 6)


class EntryTests(ReaderTestCase):
    def test_entries_of_a_queue(self):
        results = self.put(*[make_message(tags_code=n) for n in range(5)])
        expected = [(r.physical_offset, r.size, n) for n, r in enumerate(results)]
        self.assertEqual(self.store.queue_entries("TopicTest", 0, 1, 3), expected[1:4])
        self.assertEqual(self.store.queue_entries("TopicTest", 0, 3, 9), expected[3:])
        self.assertEqual(self.store.queue_entries("TopicTest", 0, 5, 9), [])
        self.assertEqual(self.store.queue_entries("TopicTest", 9, 0, 9), [])


class TimeTests(ReaderTestCase):
    def fill(self, count):
        for number in range(count):
            self.put(make_message(b"%d" % number))
            self.now += 10

    def at(self, seconds):
        return self.store.get_offset_by_time("TopicTest", 0, 1_700_000_000_000 + round(seconds * 1000))

    def test_time_returns_first_message_since(self):
        self.fill(8)
        for seconds, expected in ((0, 0), (30, 3), (30.001, 4), (36, 4), (-100, 0), (70, 7), (70.001, 8), (1e6, 8)):
            self.assertEqual(self.at(seconds), expected, seconds)

    def test_time_of_several_messages_returns_first_of_them(self):
        self.fill(3)
        self.put(*[make_message(b"%d" % number) for number in range(31)])
        self.assertEqual((self.at(20.001), self.at(30)), (3, 3))
        self.assertEqual(self.at(30.001), 34)

    def test_time_search_passes_over_placeholders_and_damage(self):
        self.fill(8)
        queue = self.store.consume_queue("TopicTest", 0)
        view = queue.files.files[0].view
        for wrong in ((0, FILLER_SIZE, 0), (1 << 40, 200, 0)):
            for offset in range(1, 5):
                CONSUME_QUEUE_ENTRY.pack_into(view, offset * CONSUME_QUEUE_UNIT, *wrong)
            self.assertEqual([self.at(seconds) for seconds in (0, 50, 60, 1e6)], [0, 1, 6, 8], wrong)

    def test_over_several_queue_files(self):
        self.fill(25)
        for number in range(25):
            self.assertEqual(self.at(number * 10), number)
        self.assertEqual(self.at(91), 10)
        self.assertEqual(self.at(1e6), 25)

    def test_times_of_empty_queue(self):
        self.assertEqual(self.at(0), 0)
        self.assertEqual(self.store.get_earliest_time("TopicTest", 0), -1)

    def test_times_of_messages(self):
        self.fill(3)
        self.assertEqual(self.store.get_earliest_time("TopicTest", 0), 1_700_000_000_000)
        self.assertEqual(self.store.get_store_time("TopicTest", 0, 2), 1_700_000_020_000)
        self.assertEqual(self.store.get_store_time("TopicTest", 0, 3), -1)

    def test_expired_messages_are_not_found(self):
        self.start(mapped_file_size_commit_log=4096)
        for _ in range(9):
            self.put(make_message(bytes(900)))
            self.now += 10
        gone = self.store.commit_log.queue.files[0]
        self.store.commit_log.queue.files = self.store.commit_log.queue.files[1:]
        gone.destroy()
        self.assertEqual(self.at(0), 4)


class LookTests(ReaderTestCase):
    def test_only_beginnings_of_records_are_found(self):
        results = self.put(make_message(b"one"), make_message(b"two"))
        wanted = {result.physical_offset for result in results}
        for offset in range(-5, self.store.max_physical_offset() + 5):
            record = self.store.look_message(offset)
            self.assertEqual(record is not None, offset in wanted, offset)
        self.assertEqual(decode_messages(self.store.look_message(results[1].physical_offset))[0].body, b"two")

    def test_query_by_key_and_time(self):
        for number in range(4):
            self.put(make_message(b"%d" % number, key="same"), make_message(b"other", key="other"))
            self.now += 100
        found = self.store.query_messages("TopicTest", "same", 32, 0, 2**62)
        self.assertEqual(self.bodies(found), [b"0", b"1", b"2", b"3"])
        self.assertEqual(found.index_last_update_timestamp, 1_700_000_300_000)
        self.assertGreater(found.index_last_update_phyoffset, 0)
        begin = 1_700_000_100_000
        self.assertEqual(
            self.bodies(self.store.query_messages("TopicTest", "same", 32, begin, begin + 150_000)), [b"1", b"2"]
        )
        self.assertEqual(self.bodies(self.store.query_messages("TopicTest", "same", 2, 0, 2**62)), [b"2", b"3"])
        self.assertEqual(self.store.query_messages("TopicTest", "none", 32, 0, 2**62).buffers, [])

    def test_query_from_or_to_own_store_time_finds_message(self):
        """The index has whole seconds, the query and the messages milliseconds."""
        for number in range(24):
            self.put(make_message(b"%d" % number, key="same"))
            self.now += 0.13
        times = {bytes(each.body): each.store_timestamp for each in self.all_of("same", 0, 2**62)}
        for body, at in times.items():
            self.assertEqual([each.body for each in self.all_of("same", at, at)], [body])
            self.assertEqual(len(self.all_of("same", at, 2**62)), 24 - int(body))
            self.assertEqual(len(self.all_of("same", 0, at)), int(body) + 1)
        self.assertEqual(self.bodies(self.store.query_messages("TopicTest", "same", 1, 0, times[b"5"])), [b"5"])

    def all_of(self, key, begin, end):
        buffers = self.store.query_messages("TopicTest", key, 64, begin, end).buffers
        return [record for buffer in buffers for record in decode_messages(buffer)]

    def test_query_without_an_index(self):
        self.start(message_index_enable=False)
        self.put(make_message(key="k"))
        self.assertEqual(self.store.query_messages("TopicTest", "k", 32, 0, 2**62).buffers, [])
