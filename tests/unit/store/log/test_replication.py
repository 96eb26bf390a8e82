"""Replication into a slave's store, and answers to sends that wait for slaves."""

import os
import queue
import random
import threading

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreError
from rocketd.store.base.layout import SCHEDULE_TOPIC
from rocketd.store.format.message import GetStatus, PutStatus
from rocketd.store.format.record import decode_messages
from rocketd.store.log.replica_log import ReplicaError
from rocketd.store.log.replicated import ReplicatedOffset
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config

WAIT = 60
FILE_SIZE = 4096


def log_bytes(store):
    return b"".join(bytes(file.view[: file.wrote_position]) for file in store.commit_log.queue.files)


class PairTestCase(SynchronousTestCase):
    def setUp(self):
        self.fs = FaultyFileSystem()
        self.master = self.open("ASYNC_MASTER")
        self.directory = os.path.abspath(self.mktemp())
        self.use(self.open("SLAVE", self.directory))

    def use(self, slave):
        """Take this slave, which begins."""
        self.slave = slave
        self.next = slave.begin_replica()

    def open(self, role, directory=None, **changes):
        config = small_config(directory or os.path.abspath(self.mktemp()), broker_role=role, **changes)
        store = MessageStore(
            config, STORE_HOST, fs=self.fs if role == "SLAVE" else None, delay_time_of=lambda level, time: time + level
        )
        store.start()
        self.addCleanup(store.stop)
        return store

    def reopen(self):
        """Stop the slave and start it again."""
        self.slave.stop()
        self.assertNotIn("abort", os.listdir(self.directory))
        self.use(self.open("SLAVE", self.directory))

    def fill(self, count=60, **changes):
        messages = [
            make_message(b"%d" % n * (n % 50 + 1), queue_id=n % 3, key=f"k{n}", tags_code=n, **changes)
            for n in range(count)
        ]
        results = self.master.put_messages(messages)
        self.assertTrue(all(result.status is PutStatus.PUT_OK for result in results))
        return results

    def send(self, size=None, end=None):
        """Send the missing bytes to the slave, in pieces of at most `size` bytes within one file."""
        end = self.master.max_physical_offset() if end is None else end
        while self.next < end:
            data = bytes(self.master.commit_log.data_from(self.next)[: min(size or FILE_SIZE, end - self.next)])
            confirmed = self.slave.append_replica(self.next, data)
            self.next += len(data)
            self.assertLessEqual(confirmed, self.next)

    def settle(self):
        """Wait until all that was handed to dispatch has gone through."""
        for store in (self.master, self.slave):
            done = threading.Event()
            store._reput.call(done.set)
            self.assertTrue(done.wait(WAIT))

    def bodies(self, store, queue_id):
        found = []
        offset = 0
        while (result := store.get_messages("TopicTest", queue_id, offset, 32, None)).status is GetStatus.FOUND:
            for view in result.buffers:
                found += [message.body for message in decode_messages(view)]
            offset = result.next_begin_offset
        return found


class AppendTests(PairTestCase):
    def assert_same(self):
        self.settle()
        self.assertEqual(log_bytes(self.slave), log_bytes(self.master))
        for queue_id in range(3):
            self.assertEqual(self.bodies(self.slave, queue_id), self.bodies(self.master, queue_id))
        found, wanted = (store.query_messages("TopicTest", "k7", 32, 0, 2**62) for store in (self.slave, self.master))
        self.assertEqual(list(map(bytes, found.buffers)), list(map(bytes, wanted.buffers)))
        self.assertGreater(len(wanted.buffers), 0)

    def test_append_whole_files(self):
        self.fill()
        self.send()
        self.assertGreater(len(self.slave.commit_log.queue.files), 2)
        self.assert_same()

    def test_append_bodies_cutting_records(self):
        self.fill()
        for size in (1, 7, 100, 333):
            with self.subTest(size=size):
                self.use(self.open("SLAVE"))
                self.send(size)
                self.assert_same()

    def test_pieces_of_a_record_are_not_scanned_again_and_again(self):
        self.fill(1)
        scans = []
        scanner = self.slave._replica._scanner
        scan = scanner.scan
        self.patch(scanner, "scan", lambda *arguments, **more: scans.append(1) or scan(*arguments, **more))
        self.send(1)
        self.assertGreater(self.slave.max_physical_offset(), 50)
        self.assertLessEqual(len(scans), 10)

    def test_appends_until_release_share_a_dispatch(self):
        arrivals = []
        self.slave.holds_dispatch = True
        self.slave.add_arrival_listener(lambda group: arrivals.append(len(group)))
        self.fill()
        self.send(333)
        self.assertEqual(arrivals, [])
        self.slave.release_dispatch(True)
        self.settle()
        self.assertEqual(arrivals, [60])
        self.assert_same()

    def test_append_body_across_files(self):
        self.fill()
        data = log_bytes(self.master)
        self.slave.append_replica(0, data)
        self.assert_same()

    def lose_end(self, begin):
        """Stop the slave, and have its log be gone from an offset on, as if that had never been written."""
        self.slave.stop()
        end = self.master.max_physical_offset()
        for number in range(begin // FILE_SIZE, end // FILE_SIZE + 1):
            path = os.path.join(self.directory, "commitlog", f"{number * FILE_SIZE:020}")
            if number * FILE_SIZE >= begin:
                os.unlink(path)
            else:
                with open(path, "r+b") as log:
                    log.seek(begin % FILE_SIZE)
                    log.write(bytes(FILE_SIZE - begin % FILE_SIZE))

    def test_lost_end_of_slave_log_is_replicated_again(self):
        results = self.fill()
        self.send()
        for count in (1, 2, 10, 25, 40):
            with self.subTest(count=count):
                begin = results[-count].physical_offset
                self.lose_end(begin)
                self.use(self.open("SLAVE", self.directory))
                self.assertLessEqual(self.slave.max_physical_offset(), begin)
                self.send()
                self.assert_same()
                results += self.fill(3)
                self.send()
                self.assert_same()

    def test_lost_part_of_record_is_replicated_again(self):
        results = self.fill()
        self.send()
        self.lose_end(results[-1].physical_offset + 6)
        self.use(self.open("SLAVE", self.directory))
        self.send()
        self.assert_same()

    def test_lost_end_of_master_log_fails_start(self):
        results = self.fill()
        self.send()
        self.lose_end(results[-5].physical_offset)
        self.assertRaises(StoreError, self.open, "ASYNC_MASTER", self.directory)

    def test_random_cuts_and_restarts(self):
        chance = random.Random(5)
        for _ in range(4):
            self.fill(20)
            self.send(chance.randrange(1, 500), end=chance.randrange(self.master.max_physical_offset()))
            # The partial record waits in memory, and is sent again.
            self.reopen()
        self.send()
        self.assert_same()

    def test_max_offset_is_end_of_last_whole_record(self):
        first, second = self.fill(2)
        data = log_bytes(self.master)
        self.slave.append_replica(0, data[:-1])
        self.assertEqual(self.slave.max_physical_offset(), first.size)
        self.slave.append_replica(len(data) - 1, data[-1:])
        self.assertEqual(self.slave.max_physical_offset(), first.size + second.size)

    def test_begin_replica_drops_partial_record(self):
        self.fill(2)
        data = log_bytes(self.master)
        self.slave.append_replica(0, data[:-1])
        offset = self.slave.begin_replica()
        self.slave.append_replica(offset, data[offset:])
        self.assertEqual(log_bytes(self.slave), data)

    def test_empty_slave_log_begins_with_last_file_of_master(self):
        self.fill()
        begin = self.master.max_physical_offset() // FILE_SIZE * FILE_SIZE
        self.assertGreater(begin, 0)
        self.slave.append_replica(begin, bytes(self.master.commit_log.data_from(begin)))
        self.assertEqual(self.slave.min_physical_offset(), begin)
        self.reopen()
        self.assertEqual(self.slave.max_physical_offset(), self.master.max_physical_offset())
        self.fill(3)
        self.send()
        self.settle()
        self.assertEqual(self.slave.get_max_offset("TopicTest", 0), self.master.get_max_offset("TopicTest", 0))
        self.assertGreater(self.slave.get_min_offset("TopicTest", 0), 0)

    def test_delayed_message_has_delivery_time_in_queue(self):
        self.fill(1, topic=SCHEDULE_TOPIC, properties=b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010")
        self.send()
        self.settle()
        stored = self.slave.get_store_time(SCHEDULE_TOPIC, 0, 0)
        ((_, _, due),) = self.slave.queue_entries(SCHEDULE_TOPIC, 0, 0, 5)
        self.assertEqual(due, stored + 1)

    def test_figures_arrivals_and_listeners(self):
        arrived, appended = queue.SimpleQueue(), []
        self.slave.add_arrival_listener(arrived.put)
        self.slave.add_append_listener(lambda: appended.append(self.slave.max_physical_offset()))
        self.fill(2)
        self.send()
        self.assertEqual(
            [arrival[:3] for arrival in arrived.get(timeout=WAIT)], [("TopicTest", 0, 1), ("TopicTest", 1, 1)]
        )
        self.assertEqual(appended, [self.master.max_physical_offset()])
        self.assertEqual((self.slave.messages_put, self.slave.bytes_put), (2, self.master.max_physical_offset()))

    def test_slave_flush_follows_flush_disk_type(self):
        slave = self.open("SLAVE", flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=3_600_000)
        slave.begin_replica()
        self.fill(1)
        slave.append_replica(0, log_bytes(self.master))
        self.assertTrue(slave.wait_until_flushed(slave.max_physical_offset()))

    def test_checkpoint_has_time_of_replicated_records(self):
        self.fill(3)
        self.send()
        self.settle()
        self.slave.stop()
        self.assertEqual(self.slave.checkpoint.physic_msg_timestamp, self.master.get_store_time("TopicTest", 2, 0))


class OverlapTests(PairTestCase):
    """The last bytes of a slave's log are sent once more, and compared."""

    def test_overlap_begin_is_within_last_file(self):
        self.assertEqual(self.next, 0)
        self.fill(1)
        self.send()
        self.assertEqual(self.slave.begin_replica(), 1)
        self.fill()
        self.next = 1
        self.send()
        end = self.slave.max_physical_offset()
        self.assertEqual(self.slave.begin_replica(), end // FILE_SIZE * FILE_SIZE)

    def test_overlap_is_at_most_32_kib(self):
        self.master = self.open("ASYNC_MASTER", mapped_file_size_commit_log=1 << 20)
        self.use(self.open("SLAVE", mapped_file_size_commit_log=1 << 20))
        self.fill(300)
        self.send(1 << 20)
        self.assertEqual(self.slave.begin_replica(), self.slave.max_physical_offset() - 32768)

    def test_overlap_at_end_of_file_is_empty(self):
        self.fill()
        end = FILE_SIZE
        self.slave.append_replica(0, log_bytes(self.master)[:end])
        self.assertEqual(self.slave.begin_replica(), end)

    def test_overlap_is_confirmed_in_parts(self):
        self.fill(2)
        self.send()
        data = log_bytes(self.master)
        self.assertEqual(self.slave.begin_replica(), 1)
        self.assertEqual(self.slave.append_replica(1, data[1:50]), 50)
        self.assertEqual(self.slave.append_replica(50, data[50:]), len(data))
        self.fill(1)
        more = log_bytes(self.master)
        self.slave.begin_replica()
        # The rest of the known bytes and the next message in one piece.
        self.assertEqual(self.slave.append_replica(1, more[1:]), len(more))
        self.assertEqual(log_bytes(self.slave), more)

    def test_overlap_with_other_bytes_is_refused(self):
        self.fill(1)
        common = log_bytes(self.master)
        self.fill(1)
        here = log_bytes(self.master)
        self.send()
        self.slave.begin_replica()
        changed = bytearray(here)
        changed[-1] ^= 1
        text = (
            f"other bytes at .* than this one, which ends at {len(here)}: the logs have diverged; move this store away"
        )
        with self.assertRaisesRegex(ReplicaError, text):
            self.slave.append_replica(1, bytes(changed[1:]))
        self.assertEqual(log_bytes(self.slave), here)
        self.slave.begin_replica()
        self.slave.append_replica(1, common[1:])
        with self.assertRaisesRegex(ReplicaError, "the logs have diverged"):
            self.slave.append_replica(len(common), bytes(8))

    def test_bytes_before_refused_ones_become_visible(self):
        self.fill()
        data = log_bytes(self.master)
        with self.assertRaises(ReplicaError):
            self.slave.append_replica(0, data[:FILE_SIZE] + b"\1" * 100)
        self.assertEqual(self.slave.max_physical_offset(), FILE_SIZE)
        self.settle()
        self.assertEqual(self.slave.dispatch_behind_bytes(), 0)
        self.assertGreater(self.slave.get_max_offset("TopicTest", 0), 0)


class CrashTests(PairTestCase):
    """The slave's machine loses power: unflushed bytes are sent again."""

    def crash(self):
        self.fs.crash()
        self.slave.stop()
        self.fs.lose_unsynced()
        self.fs = FaultyFileSystem()
        self.use(self.open("SLAVE", self.directory))

    def assert_same(self):
        self.settle()
        self.assertEqual(log_bytes(self.slave), log_bytes(self.master))
        for queue_id in range(3):
            self.assertEqual(self.bodies(self.slave, queue_id), self.bodies(self.master, queue_id))

    def test_unflushed_bytes_are_replicated_again(self):
        self.fill()
        end = self.master.max_physical_offset()
        for at in (end // 3, end * 2 // 3):
            self.send(100, end=at)
            self.assertTrue(self.slave.wait_until_flushed(self.slave.max_physical_offset()))
            flushed = self.slave.max_physical_offset()
            self.send(100, end=at + 1000)
            # A dispatch that is under way would be tried again and again.
            self.settle()
            self.crash()
            self.assertGreaterEqual(self.slave.max_physical_offset(), flushed)
        self.send(100)
        self.assert_same()

    def test_torn_write_is_replicated_again(self):
        self.fill(30)
        for keep in (0, 1, 50, 400, 1999):
            with self.subTest(keep=keep):
                self.directory = os.path.abspath(self.mktemp())
                self.use(self.open("SLAVE", self.directory))
                self.send(2000, end=2000)
                self.settle()
                self.fs.tear_write(keep)
                with self.assertRaisesRegex(ReplicaError, "crashed in the middle of a write"):
                    self.send(2000)
                self.crash()
                self.send(2000)
                self.assert_same()


class RefusalTests(PairTestCase):
    def refused(self, offset, data, text):
        before = self.slave.max_physical_offset()
        with self.assertRaisesRegex(ReplicaError, text):
            self.slave.append_replica(offset, data)
        self.assertEqual(self.slave.max_physical_offset(), before)

    def test_append_at_other_offset_is_refused(self):
        self.fill(4)
        self.send()
        end = self.slave.max_physical_offset()
        for offset in (0, end - 1, end + 1, FILE_SIZE):
            self.refused(offset, b"x", f"from offset {offset}, but this log goes on at {end}: .* move this store away")

    def test_append_of_bytes_without_record_is_refused(self):
        self.fill(1)
        self.send()
        end = self.slave.max_physical_offset()
        self.refused(end, bytes(8), f"at offset {end} .* are not a record .* the two logs have diverged")
        for data in (log_bytes(self.master), b"\x7f\xff\xff\xff\xda\xa3\x20\xa7"):
            self.next = self.slave.begin_replica()
            self.send()
            self.refused(end, data, "are not a record that fits into a file")

    def test_append_with_other_file_size_is_refused(self):
        self.fill()
        slave = self.open("SLAVE", mapped_file_size_commit_log=8192)
        slave.begin_replica()
        with self.assertRaisesRegex(ReplicaError, "mappedFileSizeCommitLog=8192: set it to the master's value"):
            slave.append_replica(0, log_bytes(self.master))
        slave = self.open("SLAVE", mapped_file_size_commit_log=8192)
        slave.begin_replica()
        with self.assertRaisesRegex(ReplicaError, "begins a file at offset 4096, not a multiple"):
            slave.append_replica(4096, b"x")

    def test_append_on_full_disk_is_refused_and_retried(self):
        self.fill(3)
        data = log_bytes(self.master)
        self.slave.append_replica(0, data[:-10])
        before = self.slave.max_physical_offset()
        self.fs.fail("pwrite", OSError(28, "No space left on device"))
        self.refused(len(data) - 10, data[-10:], "No space left")
        self.assertEqual(self.slave.max_physical_offset(), before)
        self.next = self.slave.begin_replica()
        self.send()
        self.assertEqual(log_bytes(self.slave), data)

    def test_append_to_closed_store_is_refused(self):
        self.fill(1)
        self.slave.stop()
        self.refused(0, log_bytes(self.master), "it is closed")

    def test_append_after_failed_flush_is_refused(self):
        self.fill(1)
        self.fs.fail("fdatasync", OSError(5, "Input/output error"))
        self.send()
        self.assertFalse(self.slave.wait_until_flushed(self.slave.max_physical_offset()))
        self.refused(self.slave.max_physical_offset(), b"x", "could not be flushed")


class ReplicatedOffsetTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.limit = 100
        self.replicated = ReplicatedOffset(lambda: 3000, lambda: self.limit, self.clock.seconds)
        self.answers = []

    def wait(self, end):
        self.replicated.when_replicated(end, lambda status: self.answers.append((end, status)))

    def test_wait_without_slave_is_not_available(self):
        self.wait(5)
        self.assertEqual(self.answers, [(5, PutStatus.SLAVE_NOT_AVAILABLE)])

    def test_wait_for_distant_slave_is_not_available(self):
        self.replicated.connections = 1
        self.wait(99)
        self.assertEqual(self.answers, [])
        self.wait(100)
        self.assertEqual(self.answers, [(100, PutStatus.SLAVE_NOT_AVAILABLE)])
        self.replicated.reported(1)
        self.wait(100)
        self.assertEqual(len(self.answers), 1)

    def test_waits_are_answered_in_order_of_reports(self):
        self.replicated.connections = 1
        for end in (5, 9, 12):
            self.wait(end)
        self.replicated.reported(4)
        self.assertEqual(self.answers, [])
        self.replicated.reported(9)
        self.assertEqual(self.answers, [(5, PutStatus.PUT_OK), (9, PutStatus.PUT_OK)])
        self.replicated.reported(7)
        self.assertEqual(self.replicated.offset, 9)

    def test_wait_for_replicated_offset_is_ok_at_once(self):
        self.replicated.connections = 1
        self.replicated.reported(9)
        self.wait(9)
        self.assertIsNone(self.replicated.answer_waiters())
        self.assertEqual(self.answers, [(9, PutStatus.PUT_OK)])

    def test_wait_timeout_answers_all_waits(self):
        self.replicated.connections = 1
        self.wait(5)
        self.clock.advance(2)
        self.wait(9)
        self.assertEqual(self.replicated.answer_waiters(), 3.0)
        self.clock.advance(1)
        self.assertIsNone(self.replicated.answer_waiters())
        self.assertEqual(self.answers, [(5, PutStatus.FLUSH_SLAVE_TIMEOUT), (9, PutStatus.FLUSH_SLAVE_TIMEOUT)])

    def lag(self):
        """Have a send to 5 wait in vain."""
        self.replicated.connections = 1
        self.wait(5)
        self.clock.advance(3)
        self.replicated.answer_waiters()
        self.answers.clear()

    def test_wait_for_lagging_slave_is_not_available(self):
        self.lag()
        self.wait(9)
        self.assertEqual(self.answers, [(9, PutStatus.SLAVE_NOT_AVAILABLE)])

    def test_lag_ends_at_full_replication(self):
        self.lag()
        self.wait(9)
        self.clock.advance(2)
        self.replicated.reported(8)
        self.assertTrue(self.replicated.lagging)
        self.replicated.reported(9)
        self.wait(12)
        self.assertEqual(self.answers, [(9, PutStatus.SLAVE_NOT_AVAILABLE)])
        self.replicated.reported(12)
        self.assertEqual(self.answers[1:], [(12, PutStatus.PUT_OK)])

    def test_lag_ends_at_short_distance(self):
        self.lag()
        for end in range(9, 40):
            self.wait(end)
            self.clock.advance(0.1)
            self.replicated.reported(end - 2)
            if not self.replicated.lagging:
                break
        self.assertFalse(self.replicated.lagging)

    def test_lag_stays_at_distance_of_seconds(self):
        self.lag()
        for end in range(9, 60):
            self.wait(end)
            self.clock.advance(0.1)
            self.replicated.reported(end - 15)
        self.assertTrue(self.replicated.lagging)

    def test_lag_ends_with_timeout_below_lag(self):
        self.replicated = ReplicatedOffset(lambda: 100, lambda: self.limit, self.clock.seconds)
        self.lag()
        self.assertTrue(self.replicated.lagging)  # it was looked at late
        self.replicated.reported(5)
        self.wait(9)
        self.clock.advance(0.1)
        self.replicated.answer_waiters()
        self.assertFalse(self.replicated.lagging)

    def test_give_up_answers_waits_with_timeout(self):
        self.replicated.connections = 1
        self.wait(5)
        self.replicated.give_up()
        self.assertEqual(self.answers, [(5, PutStatus.FLUSH_SLAVE_TIMEOUT)])

    def test_failing_callback_leaves_other_waits_alone(self):
        self.replicated.connections = 1
        self.replicated.when_replicated(5, lambda status: 1 / 0)
        self.wait(6)
        self.replicated.reported(6)
        self.assertEqual(self.answers, [(6, PutStatus.PUT_OK)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
