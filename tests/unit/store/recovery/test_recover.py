"""Crashes: torn writes, lost pages, kill -9, damaged files. Whole records stay, others are dropped."""

import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.errors import StoreDamagedError, StoreEndMissingError, StoreFileMissingError
from rocketd.store.format.message import GetStatus
from rocketd.store.format.record import decode_messages, encode_record
from rocketd.store.message_store import MessageStore
from rocketd.store.state.checkpoint import PROGRESS_POSITION
from rocketd.store.state.last_stop import LastStop, mark_in_doubt, read_last_stop
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config
from rocketd.store.upkeep.log_begin import NotedBegin, write_log_begin
from tests.support.killed_stores import copy_of_killed, stop_writers

WRITER = """
import sys
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, make_message, small_config
store = MessageStore(small_config(sys.argv[1]), STORE_HOST)
store.start()
number = 0
while True:
    store.put_messages([make_message(b"%d" % n * 20, queue_id=n % 3, key=f"k{n}") for n in range(number, number + 7)])
    number += 7
    print(number, flush=True)
"""


class RecoveryTestCase(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())

    def open(self, root=None, fs=None, **changes):
        store = MessageStore(small_config(root or self.root, **changes), STORE_HOST, fs=fs or FaultyFileSystem())
        store.start()
        self.addCleanup(store.stop)
        return store

    def fill(self, *messages, **changes):
        """A store with these messages, cleanly stopped."""
        store = self.open(**changes)
        results = store.put_messages(messages)
        store.stop()
        return results

    def killed_copy(self, store):
        """Root of a copy of the files of a running store, as a kill leaves them."""
        return copy_of_killed(store, os.path.abspath(self.mktemp()))

    def bodies(self, store, queue_id=0, topic="TopicTest"):
        found = []
        offset = store.get_min_offset(topic, queue_id)
        while (result := store.get_messages(topic, queue_id, offset, 32, None)).status is GetStatus.FOUND:
            for view in result.buffers:
                found += [message.body for message in decode_messages(view, check_crc=False)]
            offset = result.next_begin_offset
        return found

    def log_path(self, number=0, root=None):
        return os.path.join(root or self.root, "commitlog", f"{number * 4096:020d}")

    def patch_file(self, path, position, data):
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(data)

    def unclean(self, root=None):
        """Leave the store as a crash before the first flush: no time and no progress in the checkpoint."""
        with open(os.path.join(root or self.root, "abort"), "wb"):
            pass
        os.truncate(os.path.join(root or self.root, "checkpoint"), 0)


class TornTailTests(RecoveryTestCase):
    def test_torn_last_record_is_dropped(self):
        results = self.fill(*[make_message(b"message %d" % n, key=f"k{n}") for n in range(3)])
        last = results[-1]
        for kept in range(last.size):
            root = os.path.abspath(self.mktemp())
            shutil.copytree(self.root, root)
            self.unclean(root)
            # The rest of the record is older content of the disk: zeros, or other bytes.
            rest = (b"\0", b"\xff", b"\x64")[kept % 3] * (last.size - kept)
            if kept >= last.size - len(b"UNIQ_KEY\x01k2"):
                # No checksum covers the properties: there, only the zeros of an unwritten disk can be told.
                rest = bytes(last.size - kept)
            self.patch_file(self.log_path(root=root), last.physical_offset + kept, rest)
            store = self.open(root)
            self.assertEqual(store.max_physical_offset(), last.physical_offset, kept)
            self.assertEqual(self.bodies(store), [b"message 0", b"message 1"])
            self.assertEqual(store.put_messages([make_message(b"next")])[0].queue_offset, 2)
            store.stop()
            again = self.open(root)
            self.assertEqual(self.bodies(again)[-1], b"next")
            again.stop()

    def test_torn_write_of_a_group(self):
        sizes = [len(encode_record(make_message(b"%d" % n * 30), STORE_HOST, 0, 0, 0)) for n in range(4)]
        for keep in range(0, sum(sizes) + 1, 13):
            root = os.path.abspath(self.mktemp())
            fs = FaultyFileSystem()
            store = self.open(root, fs=fs)
            fs.tear_write(keep)
            store.put_messages([make_message(b"%d" % n * 30) for n in range(4)])
            store.stop()
            fs.lose_unsynced()
            again = self.open(root)
            whole = sum(1 for n in range(4) if sum(sizes[: n + 1]) <= keep)
            self.assertEqual(self.bodies(again), [b"%d" % n * 30 for n in range(whole)], keep)
            again.stop()

    def test_truncated_record_never_becomes_valid_again(self):
        """An old record behind the tear stays invalid after an append that ends at its start."""
        results = self.fill(*[make_message(b"old-%d" % n) for n in range(3)])
        self.unclean()
        self.patch_file(self.log_path(), results[1].physical_offset + 90, b"\xff")
        store = self.open()
        self.assertEqual(self.bodies(store), [b"old-0"])
        store.put_messages([make_message(b"new-1")])
        copy = self.killed_copy(store)
        again = self.open(copy)
        self.assertEqual(self.bodies(again), [b"old-0", b"new-1"])

    def damaged(self, offset):
        error = self.assertRaises(StoreDamagedError, self.open)
        self.assertEqual(error.offset, offset)
        self.assertIn("rocketd store repair", str(error))

    def test_record_that_begins_in_a_hole_is_found(self):
        """The disk has lost the pages before. Its first two bytes were there, and are zero as those of a hole."""
        # A hole of two pages: a memory file system fills the first one as soon as the start has read it.
        hole = 2 * mmap.PAGESIZE
        (one,) = self.fill(make_message(b"1"))
        self.root = os.path.abspath(self.mktemp())
        until = hole - 2
        messages = [make_message(b"1" * (until - one.size + 1)), make_message(b"first whole"), make_message(b"last")]
        results = self.fill(*messages, mapped_file_size_commit_log=2 * hole)
        self.assertEqual(results[1].physical_offset, until)
        with open(self.log_path(), "r+b") as file:
            content = file.read()
            file.truncate(0)
            file.seek(hole)
            file.write(content[hole:])
        error = self.assertRaises(StoreDamagedError, self.open, mapped_file_size_commit_log=len(content))
        self.assertEqual((error.offset, error.following), (0, until))

    def test_damage_after_clean_stop_fails_start_unchanged(self):
        for number in (0, 3, 4):
            self.root = os.path.abspath(self.mktemp())
            results = self.fill(*[make_message(b"%d" % n) for n in range(5)])
            self.patch_file(self.log_path(), results[number].physical_offset + 88, b"x")
            before = self.content()
            self.damaged(results[number].physical_offset)
            self.assertEqual(self.content(), before)

    def test_damage_in_flushed_records_after_crash_fails_start(self):
        results = self.fill(*[make_message(b"%d" % n) for n in range(5)])
        with open(os.path.join(self.root, "abort"), "wb"):
            pass
        self.patch_file(self.log_path(), results[4].physical_offset + 88, b"x")
        self.patch_file(self.log_path(), results[3].physical_offset + 88, b"x")
        self.patch_file(self.log_path(), results[1].physical_offset + 88, b"x")
        self.damaged(results[1].physical_offset)

    def test_damage_fails_start_if_older_than_last_flush(self):
        results = self.fill(*[make_message(b"%d" % n) for n in range(3)])
        self.unclean()
        self.patch_file(self.log_path(), results[1].physical_offset + 88, b"x")
        flushed = os.path.join(self.root, "checkpoint")
        os.truncate(flushed, 4096)
        self.patch_file(flushed, 0, (results[2].store_timestamp + 1).to_bytes(8, "big"))
        self.damaged(results[1].physical_offset)
        self.patch_file(flushed, 0, results[2].store_timestamp.to_bytes(8, "big"))
        self.assertEqual(self.bodies(self.open()), [b"0"])

    def test_lost_record_is_no_damage_after_clock_was_set_back(self):
        """The last flush before the clock was set back has a later time than records that are not flushed."""
        self.fill_at(2_000_000_000, make_message(b"old"))
        store = MessageStore(small_config(self.root), STORE_HOST, clock=lambda: 1_999_999_000)
        store.start()
        self.addCleanup(store.stop)
        results = store.put_messages([make_message(b"%d" % n) for n in range(3)])
        copy = self.killed_copy(store)
        mark_in_doubt(FaultyFileSystem(), copy)
        # The checkpoint is torn: only its times are whole.
        self.patch_file(os.path.join(copy, "checkpoint"), PROGRESS_POSITION, bytes(2048))
        self.patch_file(self.log_path(root=copy), results[1].physical_offset, bytes(50))
        self.assertEqual(self.bodies(self.open(copy)), [b"old", b"0"])

    def fill_at(self, seconds, message):
        store = MessageStore(small_config(self.root), STORE_HOST, clock=lambda: seconds)
        store.start()
        store.put_messages([message])
        store.stop()

    def content(self):
        found = {}
        for directory, _, names in os.walk(self.root):
            for name in names:
                with open(os.path.join(directory, name), "rb") as file:
                    found[directory, name] = file.read()
        return found

    def test_crc_is_not_checked_if_disabled(self):
        results = self.fill(make_message(b"a"))
        self.patch_file(self.log_path(), results[0].physical_offset + 88, b"b")
        self.unclean()
        store = self.open(check_crc_on_recover=False)
        self.assertEqual(self.bodies(store), [b"b"])


class KillTests(RecoveryTestCase):
    def test_appended_messages_survive_a_kill(self):
        store = self.open()
        messages = [make_message(b"%d" % n * 50, queue_id=n % 3, key=f"k{n}") for n in range(200)]
        for begin in range(0, 200, 7):
            store.put_messages(messages[begin : begin + 7])
        copy = self.killed_copy(store)
        self.assertIn("abort", os.listdir(copy))
        again = self.open(copy)
        for queue_id in range(3):
            self.assertEqual(self.bodies(again, queue_id), [b"%d" % n * 50 for n in range(queue_id, 200, 3)])
        for number in (0, 100, 199):
            found = again.query_messages("TopicTest", f"k{number}", 32, 0, 2**62)
            self.assertEqual([m.body for v in found.buffers for m in decode_messages(v)], [b"%d" % number * 50])
        self.assertEqual(again.put_messages([make_message(queue_id=1)])[0].queue_offset, 67)

    def test_kill_nine_of_a_writing_process(self):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, self.root],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self.addCleanup(writer.stdout.close)
        acknowledged = 0
        while acknowledged < 700:
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        # Every message printed before the kill is stored.
        acknowledged = max([acknowledged, *[int(line) for line in writer.stdout if line.endswith(b"\n")]])
        writer.wait()
        store = self.open()
        total = 0
        for queue_id in range(3):
            bodies = self.bodies(store, queue_id)
            self.assertEqual(bodies, [b"%d" % n * 20 for n in range(queue_id, queue_id + 3 * len(bodies), 3)])
            total += len(bodies)
        self.assertGreaterEqual(total, acknowledged)
        self.assertEqual(store.dispatch_behind_bytes(), 0)

    def test_missed_dispatch_is_done_at_start(self):
        store = self.open()
        store.put_messages([make_message(b"seen", key="a")])
        stop_writers(store)
        store.put_messages([make_message(b"unseen", key="b"), make_message(b"half", sys_flag=4), make_message(b"too")])
        copy = self.killed_copy(store)
        for root in (copy, self.root):
            if root == self.root:
                store.stop()
                self.assertIn("abort", os.listdir(self.root))
            again = self.open(root)
            self.assertEqual(self.bodies(again), [b"seen", b"unseen", b"too"])
            self.assertEqual(len(again.query_messages("TopicTest", "b", 1, 0, 2**62).buffers), 1)
            again.stop()

    def test_power_failure_keeps_flushed_messages(self):
        fs = FaultyFileSystem()
        store = self.open(fs=fs)
        for number in range(30):
            store.put_messages([make_message(b"%d" % number * 100)])
            if number == 19:
                store.commit_log.queue.flush(0)
        fs.crash()
        store.stop()
        fs.lose_unsynced()
        again = self.open()
        kept = self.bodies(again)
        self.assertGreaterEqual(len(kept), 20)
        self.assertEqual(kept, [b"%d" % n * 100 for n in range(len(kept))])
        self.assertEqual(again.put_messages([make_message()])[0].queue_offset, len(kept))

    def test_delivery_times_are_computed_again(self):
        store = self.open()
        store.put_messages([make_message(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x012", tags_code=99)])
        copy = self.killed_copy(store)
        shutil.rmtree(os.path.join(copy, "consumequeue"))
        again = MessageStore(small_config(copy), STORE_HOST, delay_time_of=lambda level, stored: 1000 * level + 7)
        again.start()
        self.addCleanup(again.stop)
        self.assertEqual(again.queues.find("SCHEDULE_TOPIC_XXXX", 0).entry(0)[2], 2007)


class LastStopTests(RecoveryTestCase):
    def killed(self, messages):
        """The file system and store of a process that ends at once, behind these messages and a flush of the queues."""
        fs = FaultyFileSystem()
        store = self.open(fs=fs)
        store.put_messages(messages)
        store._reput.stop()
        store.commit_log.queue.flush(0)
        store._flush_queues.flush_all()
        return fs, store

    def end(self, fs, store):
        fs.crash()
        store.stop()
        fs._crashed = False

    def messages(self, begin, end):
        return [make_message(b"%d" % n * 50, queue_id=n % 3, key=f"k{n}") for n in range(begin, end)]

    def test_last_stop_by_marks(self):
        fs = FaultyFileSystem()
        self.assertIs(read_last_stop(fs, self.root), LastStop.CLEAN)
        store = self.open(fs=fs)
        self.assertIs(read_last_stop(fs, self.root), LastStop.KILLED)
        self.assertIs(read_last_stop(FaultyFileSystem(), self.root), LastStop.CRASHED)
        copy = self.killed_copy(store)
        self.assertIs(read_last_stop(fs, copy), LastStop.CRASHED)
        mark_in_doubt(fs, self.root)
        self.assertIs(read_last_stop(fs, self.root), LastStop.CRASHED)
        store.stop()
        self.assertIs(read_last_stop(fs, self.root), LastStop.CLEAN)

    def test_start_after_kill_reads_records_behind_progress_only(self):
        fs, store = self.killed(self.messages(0, 60))
        known = store.max_physical_offset()
        store.put_messages(self.messages(60, 70))
        self.end(fs, store)
        # Were it read, it would be found damaged.
        self.patch_file(self.log_path(0), 88, b"x")
        again = self.open(fs=fs)
        self.assertEqual(again.checkpoint.progress.dispatched, again.max_physical_offset())
        self.assertGreater(again.max_physical_offset(), known)
        for queue_id in range(3):
            self.assertEqual(len(self.bodies(again, queue_id)), len(range(queue_id, 70, 3)))
        for number in (1, 59, 60, 69):
            self.assertEqual(len(again.query_messages("TopicTest", f"k{number}", 32, 0, 2**62).buffers), 1)

    def test_entries_behind_progress_are_rebuilt(self):
        fs, store = self.killed(self.messages(0, 30))
        queue = store.queues.find("TopicTest", 0)
        queue._append(queue.max_offset * 20, b"torn" * 5)
        self.end(fs, store)
        again = self.open(fs=fs)
        self.assertEqual(again.get_max_offset("TopicTest", 0), 10)
        self.assertEqual(again.put_messages([make_message()])[0].queue_offset, 10)

    def test_queue_file_of_killed_process_survives_power_failure(self):
        fs, store = self.killed([make_message(b"before")])
        # Behind a message of another queue, so that the start has no reason to look for it.
        store.put_messages([make_message(b"new queue", queue_id=1), make_message(b"behind")])
        store._reput.catch_up()
        self.end(fs, store)
        again = self.open(fs=fs)
        again.stop()
        fs.lose_unsynced()
        self.assertEqual(self.bodies(self.open(fs=fs), 1), [b"new queue"])

    def test_progress_of_other_log_is_ignored(self):
        fs, store = self.killed(self.messages(0, 5))
        self.end(fs, store)
        other = os.path.abspath(self.mktemp())
        fresh = self.open(other)
        fresh.put_messages([make_message(b"another", queue_id=1)])
        fresh.stop()
        for name in ("commitlog", "consumequeue"):
            shutil.rmtree(os.path.join(self.root, name))
            shutil.copytree(os.path.join(other, name), os.path.join(self.root, name))
        again = self.open(fs=fs)
        self.assertEqual(self.bodies(again, 1), [b"another"])
        self.assertEqual(again.get_max_offset("TopicTest", 0), 0)

    def test_recovery_after_crash_begins_at_flushed_queues(self):
        fs, store = self.killed(self.messages(0, 30))
        flushed = store.flushed_offset()
        store.put_messages(self.messages(30, 50))
        self.end(fs, store)
        fs.lose_unsynced()
        again = self.open(fs=fs)
        self.assertEqual(again.max_physical_offset(), flushed)
        for queue_id in range(3):
            self.assertEqual(len(self.bodies(again, queue_id)), 10)
        self.assertEqual(again.put_messages([make_message()])[0].queue_offset, 10)


class DamageTests(RecoveryTestCase):
    def messages(self, count=40):
        return [make_message(b"%d" % n * 100, key=f"k{n}") for n in range(count)]

    def test_lost_consume_queues_are_rebuilt(self):
        for clean in (True, False):
            self.root = os.path.abspath(self.mktemp())
            self.fill(*self.messages())
            shutil.rmtree(os.path.join(self.root, "consumequeue"))
            if not clean:
                self.unclean()
            self.assertEqual(self.bodies(self.open()), [b"%d" % n * 100 for n in range(40)])

    def test_accepted_loss_of_first_files_moves_min_offset(self):
        results = self.fill(*self.messages())
        write_log_begin(FaultyFileSystem(), self.root, NotedBegin(8192, ()))
        os.unlink(self.log_path(0))
        os.unlink(self.log_path(1))
        store = self.open()
        first = next(r.queue_offset for r in results if r.physical_offset >= 8192)
        self.assertEqual((store.min_physical_offset(), store.get_min_offset("TopicTest", 0)), (8192, first))
        self.assertEqual(self.bodies(store), [b"%d" % n * 100 for n in range(first, 40)])

    def test_lost_middle_log_file_fails_start(self):
        self.fill(*self.messages())
        os.unlink(self.log_path(1))
        error = self.assertRaises(StoreFileMissingError, self.open)
        self.assertEqual(error.path, self.log_path(1))

    def test_lost_last_log_file_fails_start_unless_checkpoint_is_missing(self):
        results = self.fill(*self.messages())
        last = results[-1].physical_offset // 4096
        os.unlink(self.log_path(last))
        names = sorted(os.listdir(os.path.join(self.root, "consumequeue")))
        error = self.assertRaises(StoreEndMissingError, self.open)
        end = results[-1].physical_offset + results[-1].size
        self.assertIn(f"the log ends at {last * 4096}, but it reached {end}: its last file", str(error))
        self.assertEqual(sorted(os.listdir(os.path.join(self.root, "consumequeue"))), names)
        # The end is unknown after another program, or without the checkpoint.
        os.unlink(os.path.join(self.root, "checkpoint"))
        store = self.open()
        expected = sum(1 for r in results if r.physical_offset < last * 4096)
        self.assertEqual(len(self.bodies(store)), expected)
        self.assertEqual(store.put_messages([make_message()])[0].physical_offset, last * 4096)

    def test_filler_without_a_next_file(self):
        """The process died between the end of one file and the beginning of the next."""
        results = self.fill(make_message(bytes(1500)), make_message(bytes(1500)))
        end = results[1].physical_offset + results[1].size
        self.patch_file(self.log_path(), end, struct.pack(">iI", 4096 - end, 0xCBD43194))
        self.unclean()
        store = self.open()
        self.assertEqual(store.put_messages([make_message(b"next")])[0].physical_offset, 4096)
        store._reput.stop()
        self.assertEqual(self.bodies(store)[2], b"next")

    def test_empty_last_file_is_removed(self):
        self.fill(make_message())
        with open(self.log_path(1), "wb"):
            pass
        store = self.open()
        self.assertEqual(self.bodies(store), [b"body"])

    def test_recovery_reads_files_behind_checkpoint_only(self):
        now = [1_700_000_000.0]
        store = MessageStore(small_config(self.root), STORE_HOST, clock=lambda: now[0])
        store.start()
        self.addCleanup(store.stop)
        for message in self.messages():
            store.put_messages([message])
            now[0] += 1
        store.stop()
        with open(os.path.join(self.root, "abort"), "wb"):
            pass
        # Damage in a file that was surely on the disk is not looked for.
        self.patch_file(self.log_path(0), 88, b"x")
        self.assertEqual(self.open().get_max_offset("TopicTest", 0), 40)
