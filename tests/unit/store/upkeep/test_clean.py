"""Deletion of expired files: time, choice and order; concurrent readers and appends; crashes."""

import os
import queue
import threading
import time

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.filesystem import DiskUsage
from rocketd.store.base.layout import offset_to_file_name
from rocketd.store.format.message import GetStatus, PutStatus
from rocketd.store.format.record import decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config
from rocketd.store.upkeep import clean
from rocketd.store.upkeep.clean import FIRST_ROUND_SECONDS, HOUR_MS, MANUAL_ROUNDS, MAX_FILES_A_ROUND, StoreCleaner

WAIT = 60
FOUR = time.mktime((2026, 11, 21, 4, 30, 0, 0, 0, -1))
"""Half past four, local time."""

NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))
BODY = bytes(900)
"""Four records of it fill a log file of 4096 bytes."""


class CleanTestCase(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.fs = FaultyFileSystem()
        self.now = 0.0
        self.clock = NOON
        self.lines = []
        for level in ("info", "warn", "error"):
            self.patch(clean._log, level, self.reporter(level))
        self.start()
        self.addCleanup(lambda: self.store.stop())

    def reporter(self, level):
        def report(text, **fields):
            self.lines.append((level, text.format(**fields)))

        return report

    def start(self, **changes):
        # The store's own thread keeps its hands off: its first round would come after a minute.
        settings = {"delete_consume_queue_files_interval": 0, "delete_commit_log_files_interval": 0, **changes}
        self.config = small_config(self.root, **settings)
        self.store = MessageStore(self.config, STORE_HOST, fs=self.fs, clock=lambda: self.clock)
        self.store.start()
        self.cleaner = self.make_cleaner()

    def make_cleaner(self, dispatched_to=None):
        store = self.store
        cleaner = StoreCleaner(
            self.config,
            store.commit_log,
            store.queues,
            store.index,
            store.disk_watch,
            lambda: self.clock,
            self.fs,
            dispatched_to or store.max_physical_offset,
            store._log_begin,
        )
        cleaner.run_once(self.now)
        self.now += FIRST_ROUND_SECONDS
        return cleaner

    def fill(self, files, queues=1, body=BODY):
        """Put messages until the log has so many files, all but the last of them full, flushed and dispatched."""
        number = 0
        while len(self.store.commit_log.queue.files) < files:
            message = make_message(body, queue_id=number % queues, key=f"k{number}")
            self.assertIs(self.store.put_messages([message])[0].status, PutStatus.PUT_OK)
            number += 1
        done = threading.Event()
        self.store._reput.call(done.set)
        self.assertTrue(done.wait(WAIT))
        self.store.commit_log.queue.flush(0)
        self.store._flush_queues.flush_all()
        for name in self.names("commitlog"):
            self.age(name, 0)

    def age(self, name, hours):
        """Let a log file have been written so long ago."""
        stamp = self.clock - hours * 3600
        os.utime(os.path.join(self.root, "commitlog", name), (stamp, stamp))

    def age_all(self, hours=72):
        for name in self.names("commitlog"):
            self.age(name, hours)

    def names(self, *parts):
        return sorted(os.listdir(os.path.join(self.root, *parts)))

    def log_files(self):
        """Numbers of the log's files that are there, but for the one made ahead."""
        made_ahead = self.store.commit_log.queue.last.file_from_offset
        return [int(name) // 4096 for name in self.names("commitlog") if int(name) <= made_ahead]

    def round(self):
        """One whole round; returns the times of its steps."""
        times = [self.now]
        due = self.cleaner.run_once(self.now)
        while self.cleaner._round is not None:
            times.append(due)
            due = self.cleaner.run_once(due)
        self.now = due
        return times

    def bodies(self, queue_id=0):
        """Number of messages that can be read from the first on."""
        found = 0
        offset = self.store.get_min_offset("TopicTest", queue_id)
        while offset < self.store.get_max_offset("TopicTest", queue_id):
            result = self.store.get_messages("TopicTest", queue_id, offset, 32, None)
            self.assertEqual(result.status, GetStatus.FOUND)
            found += sum(len(decode_messages(view)) for view in result.buffers)
            offset = result.next_begin_offset
        return found


class WhenTests(CleanTestCase):
    def test_cleaner_deletes_nothing_in_first_minute(self):
        self.fill(3)
        self.age_all()
        self.clock = FOUR
        cleaner = self.make_cleaner()
        begin = self.now - FIRST_ROUND_SECONDS
        for seconds in (1, 30, 59):
            self.assertEqual(cleaner.run_once(begin + seconds), begin + FIRST_ROUND_SECONDS)
        self.assertEqual(self.log_files(), [0, 1, 2])

    def test_expired_files_are_deleted_in_hour_of_delete_when(self):
        self.fill(4)
        self.age_all()
        self.round()
        self.assertEqual(self.log_files(), [0, 1, 2, 3])
        self.config.delete_when = "04; 12;"
        self.round()
        self.assertEqual(self.log_files(), [3])
        self.assertIn("deleteWhen=04; 12;", self.lines[0][1])

    def test_files_behind_an_unexpired_file_stay(self):
        self.fill(5)
        self.age_all()
        self.age(offset_to_file_name(8192), 71.9)
        self.config.delete_when = "12"
        self.round()
        self.assertEqual(self.log_files(), [2, 3, 4])
        self.config.file_reserved_time = 71
        self.round()
        self.assertEqual(self.log_files(), [4])

    def test_file_age_counts_from_last_change_in_ms(self):
        self.fill(2)
        self.config.delete_when = "12"
        path = os.path.join(self.root, "commitlog", "0" * 20)
        stamp = (int(self.clock) * 1000 - 72 * HOUR_MS + 1) * 1_000_000
        os.utime(path, ns=(stamp, stamp))
        self.round()
        self.assertEqual(self.log_files(), [0, 1])
        os.utime(path, ns=(stamp - 1_000_000, stamp - 1_000_000))
        self.round()
        self.assertEqual(self.log_files(), [1])

    def test_short_space_deletes_expired_files_at_any_hour(self):
        self.fill(4)
        self.age("0" * 20, 72)
        self.fs.usage = DiskUsage(76, 24)
        self.round()
        self.assertEqual(self.log_files(), [1, 2, 3])

    def test_manual_deletion_lasts_twenty_rounds(self):
        self.fill(4)
        self.store.execute_delete_files_manually()
        self.cleaner.execute_delete_files_manually()
        self.round()
        self.assertEqual(self.log_files(), [0, 1, 2, 3])
        for _ in range(MANUAL_ROUNDS - 2):
            self.round()
        self.age("0" * 20, 72)
        self.round()
        self.assertEqual(self.log_files(), [1, 2, 3])
        self.age_all()
        self.round()
        self.assertEqual(self.log_files(), [1, 2, 3])

    def test_round_deletes_ten_files_with_pauses(self):
        self.config.delete_commit_log_files_interval = 100
        self.config.clean_resource_interval = 5000
        self.fill(13)
        self.age_all()
        self.store.execute_delete_files_manually()
        self.cleaner.execute_delete_files_manually()
        begin = self.now
        times = self.round()
        self.assertEqual(self.log_files(), [10, 11, 12])
        for number in range(MAX_FILES_A_ROUND):
            self.assertAlmostEqual(times[number], begin + number * 0.1)
        self.assertEqual(self.now, begin + 5)
        self.round()
        self.assertEqual(self.log_files(), [12])


class SpaceTests(CleanTestCase):
    def setUp(self):
        super().setUp()
        self.config.disk_space_clean_forcibly_ratio = 0.85
        self.config.disk_space_warning_level_ratio = 0.90

    def test_short_space_deletes_unexpired_files_except_last(self):
        self.fill(4)
        self.fs.usage = DiskUsage(86, 14)
        self.round()
        self.assertEqual(self.log_files(), [3])
        self.assertIn("it has not expired", self.lines[0][1])
        self.assertIs(self.store.put_messages([make_message()])[0].status, PutStatus.PUT_OK)

    def test_short_space_deletes_no_more_than_needed(self):
        self.fill(6)
        free = 14
        self.fs.disk_usage = lambda path: DiskUsage(100 - free, free)
        remove = self.fs.remove

        def removed(path):
            nonlocal free
            remove(path)
            free += 1 if os.path.basename(path) == offset_to_file_name(8192) else 0

        self.fs.remove = removed
        self.round()
        self.assertEqual(self.log_files(), [3, 4, 5])

    def test_unexpired_files_stay_if_force_is_disabled(self):
        self.config.clean_file_forcibly_enable = False
        self.fill(4)
        self.age("0" * 20, 72)
        self.fs.usage = DiskUsage(95, 5)
        self.round()
        self.assertEqual(self.log_files(), [1, 2, 3])
        self.lines.clear()
        self.round()
        self.round()
        self.assertEqual([level for level, _ in self.lines], ["error"])
        self.assertIn("fileReservedTime=72 h", self.lines[0][1])

    def test_puts_resume_after_space_is_freed(self):
        self.fill(4)
        self.fs.usage = DiskUsage(91, 9)
        self.store.disk_watch.check()
        refused = self.store.put_messages([make_message()])[0]
        self.assertIs(refused.status, PutStatus.SERVICE_NOT_AVAILABLE)
        self.assertIn("91.0% used, limit 90%", refused.cause)
        remove = self.fs.remove

        def removed(path):
            remove(path)
            self.fs.usage = DiskUsage(50, 50)

        self.fs.remove = removed
        self.cleaner.run_once(self.now)
        self.assertIs(self.store.put_messages([make_message()])[0].status, PutStatus.PUT_OK)

    def test_high_space_ratio_prevents_deletion_at_other_hours(self):
        self.config.disk_max_used_space_ratio = 88
        self.fill(3)
        self.fs.usage = DiskUsage(87, 13)
        self.round()
        self.assertEqual(self.log_files(), [0, 1, 2])
        self.clock = FOUR
        self.round()
        self.assertEqual(self.log_files(), [2])


class WhichTests(CleanTestCase):
    def setUp(self):
        super().setUp()
        self.config.delete_when = "12"

    def test_undispatched_or_unflushed_files_stay(self):
        self.fill(4)
        self.age_all()
        self.cleaner = self.make_cleaner(lambda: 2 * 4096 - 1)
        self.round()
        self.assertEqual(self.log_files(), [1, 2, 3])
        self.store.commit_log.queue.files[0].flushed_position -= 1
        self.cleaner = self.make_cleaner()
        self.round()
        self.assertEqual(self.log_files(), [1, 2, 3])

    def test_queues_follow_the_log(self):
        # 10 entries a queue file, 4 records a log file.
        self.fill(12, queues=2)
        self.store.put_messages([make_message(queue_id=7)])
        before = [self.store.get_max_offset("TopicTest", queue_id) for queue_id in (0, 1)]
        self.age_all()
        self.round()
        self.assertEqual(self.log_files(), [10, 11])
        first = self.store.min_physical_offset()
        for queue_id in (0, 1):
            queue = self.store.queues.find("TopicTest", queue_id)
            self.assertEqual(queue.max_offset, before[queue_id])
            self.assertEqual(self.names("consumequeue", "TopicTest", str(queue_id)), [offset_to_file_name(400)])
            self.assertGreaterEqual(queue.entry(queue.min_offset)[0], first)
            self.assertEqual(queue.min_offset, 20)
            self.assertEqual(self.bodies(queue_id), queue.max_offset - queue.min_offset)
            result = self.store.get_messages("TopicTest", queue_id, 3, 32, None)
            self.assertIs(result.status, GetStatus.OFFSET_TOO_SMALL)
            self.assertEqual(result.next_begin_offset, 20)

    def test_last_file_of_a_queue_stays(self):
        self.fill(1)
        self.store.put_messages([make_message(queue_id=3)])
        self.fill(8)
        self.age_all()
        self.round()
        self.assertEqual(self.names("consumequeue", "TopicTest", "3"), ["0" * 20])
        self.assertEqual(self.store.get_max_offset("TopicTest", 3), 1)

    def test_queue_min_offset_follows_log_within_file(self):
        self.fill(3)
        self.age("0" * 20, 72)
        self.round()
        self.assertEqual(self.names("consumequeue", "TopicTest", "0"), ["0" * 20])
        self.assertEqual(self.store.get_min_offset("TopicTest", 0), 4)

    def test_queue_of_expired_messages_begins_at_its_end(self):
        self.store.put_messages([make_message(queue_id=5) for _ in range(13)])
        self.fill(4)
        self.age_all()
        self.round()
        self.assertEqual(self.names("consumequeue", "TopicTest", "5"), [offset_to_file_name(200)])
        self.assertEqual(
            [self.store.get_min_offset("TopicTest", 5), self.store.get_max_offset("TopicTest", 5)], [13, 13]
        )
        self.store.stop()
        self.start()
        self.assertEqual(self.store.get_min_offset("TopicTest", 5), 13)
        self.store.put_messages([make_message(queue_id=5)])
        self.fill(0)
        self.assertEqual(self.bodies(5), 1)

    def test_queues_are_scanned_once_per_deletion(self):
        self.fill(3)
        queue = self.store.queues.find("TopicTest", 0)
        corrected = []
        correct = queue.correct_min_offset
        queue.correct_min_offset = lambda offset: corrected.append(offset) or correct(offset)
        for _ in range(2):
            self.round()
        self.assertEqual(corrected, [])
        self.age_all()
        for _ in range(2):
            self.round()
        self.assertEqual(corrected, [8192])

    def test_index_follows_the_log(self):
        self.store.stop()
        self.start(max_index_num=9)
        self.config.delete_when = "12"
        self.fill(8)
        files = len(self.names("index"))
        self.assertGreater(files, 3)
        self.age_all()
        self.round()
        self.assertEqual(len(self.names("index")), 1)
        self.assertEqual(self.store.query_messages("TopicTest", "k1", 32, 0, 2**62).buffers, [])

    def test_queues_behind_log_after_crash_are_cleaned(self):
        self.fill(12)
        self.store._log_begin.deleting_to(11 * 4096)
        for number in range(11):
            os.unlink(os.path.join(self.root, "commitlog", offset_to_file_name(number * 4096)))
        self.store.stop()
        self.start()
        self.fill(12 - 11 + 1)
        self.round()
        self.assertEqual(self.names("consumequeue", "TopicTest", "0"), [offset_to_file_name(800)])

    def test_cleaner_pauses_after_each_cleaned_queue(self):
        self.config.delete_consume_queue_files_interval = 300
        self.fill(12, queues=2)
        self.age_all()
        begin = self.now
        times = self.round()
        self.assertAlmostEqual(times[-1], begin + 0.6)

    def test_file_removed_by_hand_is_forgotten(self):
        self.fill(3)
        os.unlink(os.path.join(self.root, "commitlog", "0" * 20))
        self.round()
        self.assertEqual(self.store.min_physical_offset(), 4096)

    def test_failed_deletion_keeps_later_files_and_is_retried(self):
        self.fill(4)
        self.age_all()
        self.fs.fail("remove", OSError("read-only file system"))
        self.round()
        self.assertEqual(self.log_files(), [0, 1, 2, 3])
        self.assertIn("read-only file system", self.lines[0][1])
        self.assertEqual(self.bodies(), self.store.get_max_offset("TopicTest", 0))
        self.config.delete_when = "23"
        self.round()
        self.assertEqual(self.log_files(), [0, 1, 2, 3])
        self.now += self.config.redelete_hanged_file_interval / 1000
        self.round()
        self.assertEqual(self.log_files(), [3])

    def test_failure_in_a_queue_leaves_its_other_files(self):
        self.fill(12)
        self.age_all()
        # Ten log files go first, then the first file of the queue would.
        self.fs.fail("remove", OSError("input/output error"), nth=11)
        self.round()
        self.assertEqual(len(self.names("consumequeue", "TopicTest", "0")), 5)
        self.fill(13)
        self.age_all()
        self.round()
        self.assertEqual(len(self.names("consumequeue", "TopicTest", "0")), 1)


class CrashTests(CleanTestCase):
    """A store after a crash within a round opens, and has every message of the remaining log files."""

    def crash_at(self, call, nth):
        self.config.delete_when = "12"
        self.fill(8, queues=2)
        self.age_all()
        self.fs.fail(call, OSError("the machine has crashed"), nth=nth, times=1000)
        failed = self.round()
        self.assertTrue(failed)
        files = self.log_files()
        self.assertEqual(files, list(range(files[0], 8)))
        first = self.store.min_physical_offset()
        self.store.stop()
        self.fs = FaultyFileSystem()
        self.start()
        self.assertEqual(self.store.min_physical_offset(), first)
        found = self.bodies(0) + self.bodies(1)
        self.assertEqual(found, 4 * (7 - files[0]) + 1)
        self.store.stop()

    def test_crash_at_any_removal_leaves_usable_store(self):
        for nth in range(1, 13):
            self.crash_at("remove", nth)
            self.root = os.path.abspath(self.mktemp())
            self.fs = FaultyFileSystem()
            self.start()

    def test_directory_is_synced_after_each_removal(self):
        self.config.delete_when = "12"
        self.fill(5)
        self.age_all()
        order = []
        remove, sync = self.fs.remove, self.fs.sync_dir
        this = threading.get_ident()

        def note(call):
            if threading.get_ident() == this:  # the allocation thread may still create the next file
                order.append(call)

        self.fs.remove = lambda path: note(os.path.basename(path)) or remove(path)
        self.fs.sync_dir = lambda path: note("sync " + os.path.basename(path)) or sync(path)
        self.round()
        expected = []
        for number in range(4):
            # The note of where the log begins comes first.
            expected += ["sync " + os.path.basename(self.root), offset_to_file_name(number * 4096), "sync commitlog"]
        self.assertEqual(order, [*expected, "0" * 20, "sync 0"])


class ReaderTests(CleanTestCase):
    def setUp(self):
        super().setUp()
        self.config.delete_when = "12"

    def test_views_of_deleted_file_stay_and_are_logged_once(self):
        self.fill(4)
        view = self.store.get_messages("TopicTest", 0, 0, 1, None).buffers[0]
        record = bytes(view)
        self.age_all()
        self.round()
        self.assertEqual(self.log_files(), [3])
        self.assertEqual(bytes(view), record)
        self.assertEqual(len(self.cleaner._deleted), 1)
        self.lines.clear()
        for _ in range(3):
            self.now += 121
            self.round()
        warnings = [text for level, text in self.lines if level == "warn"]
        self.assertEqual(len(warnings), 1)
        self.assertIn("commitlog/" + "0" * 20, warnings[0])
        del view
        self.now += 121
        self.round()
        self.assertEqual(self.cleaner._deleted, [])

    def test_get_of_deleted_file_returns_next_offset(self):
        self.fill(4)
        self.age_all()
        queue = self.store.queues.find("TopicTest", 0)
        self.cleaner.run_once(self.now)
        # Between the deletion in the log and that in the queue.
        self.assertEqual((self.store.min_physical_offset(), queue.min_offset), (4096, 0))
        result = self.store.get_messages("TopicTest", 0, 0, 32, None)
        self.assertIs(result.status, GetStatus.FOUND)
        self.assertEqual(len(decode_messages(result.buffers[0])), 4)
        self.assertIsNone(self.store.look_message(0))


class ThreadTests(CleanTestCase):
    def test_maintenance_thread_of_a_store_cleans(self):
        self.store.stop()
        removed = queue.SimpleQueue()
        remove = self.fs.remove
        self.fs.remove = lambda path: remove(path) or removed.put(os.path.basename(path))
        passed = 0.0
        self.config.flush_interval_consume_queue = 5
        self.config.delete_when = "12"
        self.store = MessageStore(
            self.config, STORE_HOST, fs=self.fs, clock=lambda: self.clock, monotonic=lambda: time.monotonic() + passed
        )
        self.store.start()
        self.fill(3)
        self.age_all()
        removed = queue.SimpleQueue()
        passed = FIRST_ROUND_SECONDS
        self.assertEqual(removed.get(timeout=WAIT), "0" * 20)
        self.assertEqual(removed.get(timeout=WAIT), offset_to_file_name(4096))


class RaceTests(CleanTestCase):
    def test_concurrent_appends_reads_flushes_and_deletions(self):
        store = self.store
        self.config.delete_when = "12"
        self.config.file_reserved_time = 0
        log = store.commit_log.queue
        wanted = 400
        stopping = threading.Event()
        failures = []

        def guarded(function):
            def run():
                try:
                    function()
                except BaseException as error:
                    failures.append(error)
                finally:
                    stopping.set()

            return threading.Thread(target=run, daemon=True)

        def append():
            for number in range(wanted):
                result = store.put_messages([make_message(b"%d" % number + BODY, queue_id=number % 2)])[0]
                if result.status is not PutStatus.PUT_OK:
                    raise AssertionError(result)

        def delete():
            while not stopping.is_set():
                self.cleaner.run_once(self.now)
                self.now += 10

        def flush():
            while not stopping.is_set():
                log.flush(0)

        def read():
            offset = 0
            while not stopping.is_set():
                result = store.get_messages("TopicTest", 0, offset, 32, None)
                for view in result.buffers:
                    for message in decode_messages(view):
                        if message.body != b"%d" % (2 * message.queue_offset) + BODY:
                            raise AssertionError(message)
                offset = result.next_begin_offset

        self.cleaner = self.make_cleaner(lambda: store._reput.reput_from_offset)
        self.clock = time.time() + 3600
        self.config.delete_when = ";".join(map(str, range(24)))
        threads = [guarded(function) for function in (append, delete, flush, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(failures, [])
        done = threading.Event()
        store._reput.call(done.set)
        self.assertTrue(done.wait(WAIT))
        files = log.files
        # No file is lost or raised from the dead: one run of bytes, as on the disk.
        self.assertEqual(
            [file.file_from_offset for file in files], list(range(files[0].file_from_offset, log.max_offset, 4096))
        )
        self.assertEqual(self.log_files(), [file.file_from_offset // 4096 for file in files])
        self.assertGreater(files[0].file_from_offset, 0)
        self.assertEqual(sum(store.get_max_offset("TopicTest", queue_id) for queue_id in (0, 1)), wanted)
        store.stop()
        self.start()
        self.assertEqual(
            [file.file_from_offset for file in self.store.commit_log.queue.files],
            [file.file_from_offset for file in files],
        )
