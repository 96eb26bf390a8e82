"""A slave's store takes its master's bytes; who waits for slaves is answered."""

import os
import queue
import random
import threading

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.errors import StoreError
from rocketd.store.layout import SCHEDULE_TOPIC
from rocketd.store.message import GetStatus, PutStatus
from rocketd.store.message_store import MessageStore
from rocketd.store.record import decode_messages
from rocketd.store.replica_log import ReplicaError
from rocketd.store.replicated import ReplicatedOffset
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
        """Send the slave what it lacks, in pieces of at most this size that do not cross files."""
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

    def test_whole_files(self):
        self.fill()
        self.send()
        self.assertGreater(len(self.slave.commit_log.queue.files), 2)
        self.assert_same()

    def test_bodies_that_cut_records(self):
        self.fill()
        for size in (1, 7, 100, 333):
            with self.subTest(size=size):
                self.use(self.open("SLAVE"))
                self.send(size)
                self.assert_same()

    def test_bodies_that_are_joined_across_files(self):
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

    def test_end_of_a_slaves_log_that_is_lost_comes_from_its_master_again(self):
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

    def test_part_of_a_record_that_is_lost_comes_from_the_master_again(self):
        results = self.fill()
        self.send()
        self.lose_end(results[-1].physical_offset + 6)
        self.use(self.open("SLAVE", self.directory))
        self.send()
        self.assert_same()

    def test_end_of_a_masters_log_that_is_lost_keeps_it_from_starting(self):
        results = self.fill()
        self.send()
        self.lose_end(results[-5].physical_offset)
        self.assertRaises(StoreError, self.open, "ASYNC_MASTER", self.directory)

    def test_random_cuts_and_restarts(self):
        chance = random.Random(5)
        for _ in range(4):
            self.fill(20)
            self.send(chance.randrange(1, 500), end=chance.randrange(self.master.max_physical_offset()))
            # What is cut off waits in memory, and is sent again.
            self.reopen()
        self.send()
        self.assert_same()

    def test_the_log_ends_behind_a_whole_record(self):
        first, second = self.fill(2)
        data = log_bytes(self.master)
        self.slave.append_replica(0, data[:-1])
        self.assertEqual(self.slave.max_physical_offset(), first.size)
        self.slave.append_replica(len(data) - 1, data[-1:])
        self.assertEqual(self.slave.max_physical_offset(), first.size + second.size)

    def test_what_was_cut_off_is_forgotten_when_it_begins_again(self):
        self.fill(2)
        data = log_bytes(self.master)
        self.slave.append_replica(0, data[:-1])
        offset = self.slave.begin_replica()
        self.slave.append_replica(offset, data[offset:])
        self.assertEqual(log_bytes(self.slave), data)

    def test_an_empty_log_begins_with_the_masters_last_file(self):
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

    def test_a_delayed_message_is_entered_with_its_time(self):
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

    def test_a_slave_is_flushed_as_it_says(self):
        slave = self.open("SLAVE", flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=3_600_000)
        slave.begin_replica()
        self.fill(1)
        slave.append_replica(0, log_bytes(self.master))
        self.assertTrue(slave.wait_until_flushed(slave.max_physical_offset()))

    def test_the_checkpoint_knows_its_records(self):
        self.fill(3)
        self.send()
        self.slave.stop()
        self.assertEqual(self.slave.checkpoint.physic_msg_timestamp, self.master.get_store_time("TopicTest", 2, 0))


class OverlapTests(PairTestCase):
    """The last bytes of a slave's log are sent once more, and compared."""

    def test_where_it_begins(self):
        self.assertEqual(self.next, 0)
        self.fill(1)
        self.send()
        self.assertEqual(self.slave.begin_replica(), 1)
        self.fill()
        self.next = 1
        self.send()
        end = self.slave.max_physical_offset()
        self.assertEqual(self.slave.begin_replica(), end // FILE_SIZE * FILE_SIZE)

    def test_no_more_than_32_kib(self):
        self.master = self.open("ASYNC_MASTER", mapped_file_size_commit_log=1 << 20)
        self.use(self.open("SLAVE", mapped_file_size_commit_log=1 << 20))
        self.fill(300)
        self.send(1 << 20)
        self.assertEqual(self.slave.begin_replica(), self.slave.max_physical_offset() - 32768)

    def test_the_end_of_a_file(self):
        self.fill()
        end = FILE_SIZE
        self.slave.append_replica(0, log_bytes(self.master)[:end])
        self.assertEqual(self.slave.begin_replica(), end)

    def test_confirmed_little_by_little(self):
        self.fill(2)
        self.send()
        data = log_bytes(self.master)
        self.assertEqual(self.slave.begin_replica(), 1)
        self.assertEqual(self.slave.append_replica(1, data[1:50]), 50)
        self.assertEqual(self.slave.append_replica(50, data[50:]), len(data))
        self.fill(1)
        more = log_bytes(self.master)
        self.slave.begin_replica()
        # The rest of what is here and the next message in one piece.
        self.assertEqual(self.slave.append_replica(1, more[1:]), len(more))
        self.assertEqual(log_bytes(self.slave), more)

    def test_other_bytes(self):
        self.fill(1)
        common = log_bytes(self.master)
        self.fill(1)
        here = log_bytes(self.master)
        self.send()
        self.slave.begin_replica()
        changed = bytearray(here)
        changed[-1] ^= 1
        text = f"other bytes at .* than this one, which ends at {len(here)}: the logs have parted; move this store away"
        with self.assertRaisesRegex(ReplicaError, text):
            self.slave.append_replica(1, bytes(changed[1:]))
        self.assertEqual(log_bytes(self.slave), here)
        self.slave.begin_replica()
        self.slave.append_replica(1, common[1:])
        with self.assertRaisesRegex(ReplicaError, "the logs have parted"):
            self.slave.append_replica(len(common), bytes(8))

    def test_what_was_appended_before_a_refusal_becomes_visible(self):
        self.fill()
        data = log_bytes(self.master)
        with self.assertRaises(ReplicaError):
            self.slave.append_replica(0, data[:FILE_SIZE] + b"\1" * 100)
        self.assertEqual(self.slave.max_physical_offset(), FILE_SIZE)
        self.settle()
        self.assertEqual(self.slave.dispatch_behind_bytes(), 0)
        self.assertGreater(self.slave.get_max_offset("TopicTest", 0), 0)


class CrashTests(PairTestCase):
    """The slave's machine loses its power: what it had not flushed is sent again."""

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

    def test_what_was_not_flushed_comes_again(self):
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

    def test_a_torn_write(self):
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

    def test_offsets_that_do_not_go_on(self):
        self.fill(4)
        self.send()
        end = self.slave.max_physical_offset()
        for offset in (0, end - 1, end + 1, FILE_SIZE):
            self.refused(offset, b"x", f"from offset {offset}, this log goes on at {end}: .* move this store away")

    def test_bytes_that_are_no_record(self):
        self.fill(1)
        self.send()
        end = self.slave.max_physical_offset()
        self.refused(end, bytes(8), f"at offset {end} .* is no record .* the two logs have parted")
        for data in (log_bytes(self.master), b"\x7f\xff\xff\xff\xda\xa3\x20\xa7"):
            self.next = self.slave.begin_replica()
            self.send()
            self.refused(end, data, "is no record that fits into a file")

    def test_another_file_size(self):
        self.fill()
        slave = self.open("SLAVE", mapped_file_size_commit_log=8192)
        slave.begin_replica()
        with self.assertRaisesRegex(ReplicaError, "mappedFileSizeCommitLog=8192: set that to what the master has"):
            slave.append_replica(0, log_bytes(self.master))
        slave = self.open("SLAVE", mapped_file_size_commit_log=8192)
        slave.begin_replica()
        with self.assertRaisesRegex(ReplicaError, "begins a file at offset 4096, which is no multiple"):
            slave.append_replica(4096, b"x")

    def test_a_full_disk_refuses_and_is_tried_again(self):
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

    def test_a_closed_store(self):
        self.fill(1)
        self.slave.stop()
        self.refused(0, log_bytes(self.master), "it is closed")

    def test_a_slave_whose_log_cannot_be_flushed(self):
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

    def test_nobody_is_there(self):
        self.wait(5)
        self.assertEqual(self.answers, [(5, PutStatus.SLAVE_NOT_AVAILABLE)])

    def test_a_slave_that_is_too_far_behind_is_none(self):
        self.replicated.connections = 1
        self.wait(99)
        self.assertEqual(self.answers, [])
        self.wait(100)
        self.assertEqual(self.answers, [(100, PutStatus.SLAVE_NOT_AVAILABLE)])
        self.replicated.reported(1)
        self.wait(100)
        self.assertEqual(len(self.answers), 1)

    def test_answered_in_order_when_a_slave_has_it(self):
        self.replicated.connections = 1
        for end in (5, 9, 12):
            self.wait(end)
        self.replicated.reported(4)
        self.assertEqual(self.answers, [])
        self.replicated.reported(9)
        self.assertEqual(self.answers, [(5, PutStatus.PUT_OK), (9, PutStatus.PUT_OK)])
        self.replicated.reported(7)
        self.assertEqual(self.replicated.offset, 9)

    def test_what_a_slave_has_already(self):
        self.replicated.connections = 1
        self.replicated.reported(9)
        self.wait(9)
        self.assertIsNone(self.replicated.settle())
        self.assertEqual(self.answers, [(9, PutStatus.PUT_OK)])

    def test_a_wait_in_vain_answers_all_that_wait(self):
        self.replicated.connections = 1
        self.wait(5)
        self.clock.advance(2)
        self.wait(9)
        self.assertEqual(self.replicated.settle(), 3.0)
        self.clock.advance(1)
        self.assertIsNone(self.replicated.settle())
        self.assertEqual(self.answers, [(5, PutStatus.FLUSH_SLAVE_TIMEOUT), (9, PutStatus.FLUSH_SLAVE_TIMEOUT)])

    def lag(self):
        """Have a send to 5 wait in vain."""
        self.replicated.connections = 1
        self.wait(5)
        self.clock.advance(3)
        self.replicated.settle()
        self.answers.clear()

    def test_slaves_that_lag_are_not_waited_for(self):
        self.lag()
        self.wait(9)
        self.assertEqual(self.answers, [(9, PutStatus.SLAVE_NOT_AVAILABLE)])

    def test_a_slave_that_has_all_has_caught_up(self):
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

    def test_a_slave_that_is_always_a_little_behind_has_caught_up(self):
        self.lag()
        for end in range(9, 40):
            self.wait(end)
            self.clock.advance(0.1)
            self.replicated.reported(end - 2)
            if not self.replicated.lagging:
                break
        self.assertFalse(self.replicated.lagging)

    def test_a_slave_that_stays_seconds_behind_has_not(self):
        self.lag()
        for end in range(9, 60):
            self.wait(end)
            self.clock.advance(0.1)
            self.replicated.reported(end - 15)
        self.assertTrue(self.replicated.lagging)

    def test_a_timeout_that_is_set_below_the_lag_makes_nobody_lag(self):
        self.replicated = ReplicatedOffset(lambda: 100, lambda: self.limit, self.clock.seconds)
        self.lag()
        self.assertTrue(self.replicated.lagging)  # it was looked at late
        self.replicated.reported(5)
        self.wait(9)
        self.clock.advance(0.1)
        self.replicated.settle()
        self.assertFalse(self.replicated.lagging)

    def test_the_end(self):
        self.replicated.connections = 1
        self.wait(5)
        self.replicated.give_up()
        self.assertEqual(self.answers, [(5, PutStatus.FLUSH_SLAVE_TIMEOUT)])

    def test_a_callback_that_fails_costs_the_others_nothing(self):
        self.replicated.connections = 1
        self.replicated.when_replicated(5, lambda status: 1 / 0)
        self.wait(6)
        self.replicated.reported(6)
        self.assertEqual(self.answers, [(6, PutStatus.PUT_OK)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
