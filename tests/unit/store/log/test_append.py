"""Group append: records, ends of files, batches, refusals, failing writes."""

import os
import struct
import sys

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.message import PutStatus
from rocketd.store.format.record import decode_message, encode_record
from rocketd.store.log.append import GroupAppender
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message

FILE_SIZE = 4096
NOW = 1_700_000_000.5


class AppendTestCase(SynchronousTestCase):
    def setUp(self):
        self.fs = FaultyFileSystem()
        self.directory = os.path.join(self.mktemp(), "commitlog")
        self.log = CommitLog(self.fs, self.directory, FILE_SIZE)
        self.log.load()
        self.now = NOW
        self.appender = GroupAppender(self.log, STORE_HOST, 2000, lambda: self.now)
        self.addCleanup(self.log.queue.close)

    def bodies(self):
        """Bodies of all records, read from the files."""
        found = []
        offset = 0
        while (record := self.log.record_at(offset)) is not None or offset < self.log.max_offset:
            if record is None:
                offset = self.log.roll(offset)
            else:
                found.append(decode_message(record).body)
                offset += len(record)
        return found


class AppendTests(AppendTestCase):
    def test_appended_records_equal_plain_encoder(self):
        messages = [
            make_message(b"one", properties=b"A\x01b", flag=3, reconsume_times=4, prepared_transaction_offset=5),
            make_message(b"two", topic="Thème", queue_id=7, born_host=bytes(range(20)), sys_flag=1),
            make_message(b""),
        ]
        results, group = self.appender.append(messages)
        for message, result in zip(messages, results, strict=True):
            self.assertIs(result.status, PutStatus.PUT_OK)
            self.assertEqual(result.store_timestamp, int(NOW * 1000))
            expected = encode_record(
                message, STORE_HOST, result.queue_offset, result.physical_offset, result.store_timestamp
            )
            self.assertEqual(bytes(self.log.record_at(result.physical_offset)), expected)
            self.assertEqual(result.size, len(expected))
        self.assertEqual([r.queue_offset for r in results], [0, 0, 1])
        self.assertEqual((group.start_offset, group.end_offset), (0, self.log.max_offset))
        self.assertEqual([r.physical_offset for r in group.requests], [r.physical_offset for r in results])

    def test_group_append_uses_one_write(self):
        self.appender.append([make_message()] * 20)
        self.assertEqual(self.fs.calls["pwrite"], 1)

    def test_queue_offsets_count_by_topic_and_queue(self):
        kinds = [("a", 0), ("a", 1), ("b", 0), ("a", 0), ("a", 1), ("a", 0)]
        results, _ = self.appender.append([make_message(topic=topic, queue_id=queue) for topic, queue in kinds])
        self.assertEqual([r.queue_offset for r in results], [0, 0, 0, 1, 1, 2])

    def test_prepared_and_rollback_take_no_queue_offset(self):
        results, group = self.appender.append(
            [make_message(sys_flag=flag, key="k") for flag in (0, 4, 12, 8, 4, 0)],
        )
        self.assertEqual([r.queue_offset for r in results], [0, 0, 0, 1, 0, 2])
        self.assertEqual([r.index_keys for r in group.requests], [("k",), ("k",), (), ("k",), ("k",), ("k",)])

    def test_store_time_never_goes_back(self):
        first = self.appender.append([make_message()])[0][0]
        self.now -= 100
        second = self.appender.append([make_message()])[0][0]
        self.assertEqual(second.store_timestamp, first.store_timestamp)

    def test_end_of_file(self):
        size = len(encode_record(make_message(bytes(900)), STORE_HOST, 0, 0, 0))
        results, group = self.appender.append([make_message(bytes([n]) * 900) for n in range(9)])
        per_file = FILE_SIZE // size
        self.assertEqual(results[per_file].physical_offset, FILE_SIZE)
        self.assertEqual(results[2 * per_file].physical_offset, 2 * FILE_SIZE)
        self.assertEqual(self.bodies(), [bytes([n]) * 900 for n in range(9)])
        left = FILE_SIZE - per_file * size
        blank = bytes(self.log.select(per_file * size, 8))
        self.assertEqual(blank, struct.pack(">iI", left, 0xCBD43194))
        self.assertEqual(group.end_offset, self.log.max_offset)
        self.assertEqual(sorted(os.listdir(self.directory)), ["0" * 20, "0" * 16 + "4096", "0" * 16 + "8192"])

    def test_record_fits_when_eight_bytes_are_left(self):
        overhead = len(encode_record(make_message(b""), STORE_HOST, 0, 0, 0))
        for spare, offset in ((8, 0), (7, FILE_SIZE)):
            log = CommitLog(self.fs, os.path.join(self.mktemp(), "log"), FILE_SIZE)
            log.load()
            appender = GroupAppender(log, STORE_HOST, FILE_SIZE, lambda: NOW)
            appender.append([make_message(b"")])
            body = bytes(FILE_SIZE - 2 * overhead - spare)
            self.assertEqual(appender.append([make_message(body)])[0][0].physical_offset, offset or overhead)
            log.queue.close()

    def test_illegal_messages_are_refused_individually(self):
        results, group = self.appender.append(
            [
                make_message(b"good"),
                make_message(bytes(2001)),
                make_message(properties=b"p" * 32768),
                make_message(properties="é".encode() * 17000),
                make_message(topic="t" * 128),
                make_message(topic="é" * 64),
                make_message(b"good too"),
            ]
        )
        illegal = PutStatus.MESSAGE_ILLEGAL
        self.assertEqual(
            [r.status for r in results],
            [
                PutStatus.PUT_OK,
                illegal,
                PutStatus.PROPERTIES_SIZE_EXCEEDED,
                PutStatus.PROPERTIES_SIZE_EXCEEDED,
                illegal,
                illegal,
                PutStatus.PUT_OK,
            ],
        )
        self.assertEqual([r.queue_offset for r in results], [0, -1, -1, -1, -1, -1, 1])
        self.assertEqual(len(group.requests), 2)
        self.assertEqual(self.bodies(), [b"good", b"good too"])
        self.assertIn("2001 bytes, more than maxMessageSize=2000", results[1].cause)

    def test_record_longer_than_a_file_is_refused(self):
        self.appender.max_message_size = 10_000
        results, group = self.appender.append([make_message(bytes(FILE_SIZE))])
        self.assertIs(results[0].status, PutStatus.MESSAGE_ILLEGAL)
        self.assertIsNone(group)

    def test_append_keeps_no_reference_to_bodies(self):
        message = make_message(bytes(1000))
        before = sys.getrefcount(message.body)
        self.appender.append([message])
        self.assertEqual(sys.getrefcount(message.body), before)


class BatchTests(AppendTestCase):
    def test_batch_moves_to_next_file_as_a_whole(self):
        self.appender.append([make_message(bytes(1500))])
        results, group = self.appender.append_batch([make_message(bytes(1000)) for _ in range(3)])
        # The first would have fitted where the first file ended.
        self.assertEqual(results[0].physical_offset, FILE_SIZE)
        self.assertEqual([r.queue_offset for r in results], [1, 2, 3])
        self.assertLess(group.start_offset, FILE_SIZE)

    def test_batch_with_illegal_message_is_refused_as_a_whole(self):
        results, group = self.appender.append_batch([make_message(), make_message(bytes(2001))])
        self.assertEqual([r.status for r in results], [PutStatus.MESSAGE_ILLEGAL] * 2)
        self.assertIsNone(group)
        self.assertEqual(self.log.max_offset, 0)

    def test_batch_longer_than_a_file(self):
        results, _ = self.appender.append_batch([make_message(bytes(1500))] * 3)
        self.assertEqual([r.status for r in results], [PutStatus.MESSAGE_ILLEGAL] * 3)


class FailureTests(AppendTestCase):
    def test_failed_write_refuses_messages_and_uses_no_offsets(self):
        self.appender.append([make_message(b"before")])
        self.fs.fail("pwrite", OSError(28, "No space left on device"))
        results, group = self.appender.append([make_message(b"lost"), make_message(b"lost", queue_id=1)])
        self.assertEqual([r.status for r in results], [PutStatus.SERVICE_NOT_AVAILABLE] * 2)
        self.assertIn("No space left", results[0].cause)
        self.assertIsNone(group)
        results, _ = self.appender.append([make_message(b"after"), make_message(b"after", queue_id=1)])
        self.assertEqual([r.queue_offset for r in results], [1, 0])
        self.assertEqual(self.bodies(), [b"before", b"after", b"after"])
        self.assertEqual(len(self.flushLoggedErrors()), 0)

    def test_failed_write_keeps_messages_of_earlier_file(self):
        self.fs.fail("pwrite", OSError("refused"), nth=3)
        results, group = self.appender.append([make_message(bytes(1500)) for _ in range(4)])
        ok = [r.status is PutStatus.PUT_OK for r in results]
        self.assertEqual(ok, [True, True, False, False])
        self.assertEqual(len(group.requests), 2)
        again, _ = self.appender.append([make_message(b"next")])
        self.assertEqual((again[0].queue_offset, again[0].physical_offset), (2, FILE_SIZE))

    def test_half_written_group_is_removed(self):
        first = self.appender.append([make_message(b"a" * 100)])[0][0]
        real = self.fs.pwrite
        # The disk takes the first of two records and a half, then refuses.
        takes = [first.size + first.size // 2, OSError("full")]

        def partly(fd, data, offset):
            take = takes.pop(0)
            if isinstance(take, OSError):
                raise take
            return real(fd, data[:take], offset)

        self.log.queue.last._pwrite = partly
        self.appender.append([make_message(b"b" * 100), make_message(b"c" * 100)])
        raw = bytes(self.log.queue.last.view)
        self.assertEqual(raw[first.size :].strip(b"\0"), b"")

    def test_short_writes_are_continued(self):
        real = self.fs.pwrite
        self.appender.append([make_message(b"first")])
        self.log.queue.last._pwrite = lambda fd, data, offset: real(fd, data[:7], offset)
        results, _ = self.appender.append([make_message(b"second"), make_message(b"third")])
        self.assertEqual([r.status for r in results], [PutStatus.PUT_OK] * 2)
        self.assertEqual(self.bodies(), [b"first", b"second", b"third"])

    def test_append_with_failed_next_file_refuses_later_messages(self):
        self.appender.append([make_message(bytes(1500))] * 2)
        self.fs.fail("open", OSError("too many open files"))
        results, group = self.appender.append([make_message(b"x"), *[make_message(bytes(1500))] * 2])
        self.assertEqual(
            [r.status for r in results],
            [PutStatus.PUT_OK, PutStatus.CREATE_MAPEDFILE_FAILED, PutStatus.CREATE_MAPEDFILE_FAILED],
        )
        self.assertEqual(len(group.requests), 1)
        results, _ = self.appender.append([make_message(bytes(1500))])
        self.assertEqual((results[0].physical_offset, results[0].queue_offset), (FILE_SIZE, 3))

    def test_append_with_failed_first_file_is_refused(self):
        self.fs.fail("open", OSError("read-only file system"))
        results, group = self.appender.append([make_message()])
        self.assertIs(results[0].status, PutStatus.CREATE_MAPEDFILE_FAILED)
        self.assertIn("read-only file system", results[0].cause)
        self.assertIsNone(group)


class AllocateTests(AppendTestCase):
    def test_next_file_is_preallocated_and_removed_at_stop(self):
        self.log.allocate.start()
        self.appender.append([make_message(bytes(1500))] * 3)
        self.assertEqual(len(self.log.queue.files), 2)
        self.log.allocate.stop()
        self.assertEqual(sorted(os.listdir(self.directory)), ["0" * 20, "0" * 16 + "4096"])
        self.assertGreaterEqual(self.fs.calls["sync_dir"], 2)

    def test_failed_preallocation_is_retried_at_next_append(self):
        self.fs.fail("open", OSError("no"), times=2)
        self.log.allocate.start()
        self.assertIs(self.appender.append([make_message()])[0][0].status, PutStatus.CREATE_MAPEDFILE_FAILED)
        self.assertIs(self.appender.append([make_message()])[0][0].status, PutStatus.PUT_OK)
        self.log.allocate.stop()
