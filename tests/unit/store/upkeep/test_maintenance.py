"""The maintenance thread and its tasks: queue flushes, the disk watch, failing tasks."""

import os
import queue
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.filesystem import DiskUsage
from rocketd.store.base.running_flags import WRITE_LOGICS_QUEUE_ERROR, RunningFlags
from rocketd.store.format.message import DispatchRequest
from rocketd.store.log.mapped_file import LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.queue.consume_queue_table import ConsumeQueueTable
from rocketd.store.queue.dispatch import RecordDispatcher
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.testing import FaultyFileSystem, small_config
from rocketd.store.upkeep import disk_watch
from rocketd.store.upkeep.disk_watch import CHECK_SECONDS, DiskState, DiskWatch
from rocketd.store.upkeep.maintenance import RETRY_SECONDS, FlushConsumeQueueService, MaintenanceService

WAIT = 60


class MaintenanceTests(SynchronousTestCase):
    def setUp(self):
        root = os.path.abspath(self.mktemp())
        config = small_config(root, flush_interval_consume_queue=500)
        self.fs = FaultyFileSystem()
        self.queues = ConsumeQueueTable(self.fs, os.path.join(root, "consumequeue"), 20_000)
        self.queues.load()
        self.checkpoint = StoreCheckpoint(os.path.join(root, "checkpoint"), self.fs)
        self.flags = RunningFlags()
        self.log = MappedFileQueue(self.fs, os.path.join(root, "commitlog"), 4096, LogFile)
        self.dispatcher = RecordDispatcher(self.queues, None, self.flags, threading.Event())
        self.service = FlushConsumeQueueService(
            config, self.queues, self.dispatcher, self.checkpoint, self.log, self.flags
        )
        self.service.run_once(0.0)

    def dispatch(self, count=1, begin=0):
        self.dispatcher.dispatch(
            [DispatchRequest("T", 0, n * 100, 100, 0, 777, n, (), 0, 0, b"") for n in range(begin, begin + count)]
        )

    def test_next_run_follows_flush_interval(self):
        self.assertEqual(self.service.run_once(3.0), 3.5)

    def test_few_entries_wait_for_the_thorough_flush(self):
        self.dispatch()
        for now in (1.0, 30.0, 59.9):
            self.service.run_once(now)
        self.assertEqual(self.fs.calls["fdatasync"], 0)
        self.assertEqual(len(self.queues.dirty), 1)

    def test_thorough_flush_writes_the_checkpoint(self):
        self.dispatch()
        self.service.run_once(60.0)
        self.assertEqual(self.queues.dirty, set())
        self.assertEqual(StoreCheckpoint(self.checkpoint.path).logics_msg_timestamp, 777)
        self.dispatch(begin=1)
        self.service.run_once(119.0)
        self.assertEqual(len(self.queues.dirty), 1)
        self.service.run_once(120.0)
        self.assertEqual(self.queues.dirty, set())

    def test_many_entries_do_not_wait(self):
        self.dispatch(500)
        self.service.run_once(1.0)
        self.assertEqual((self.fs.calls["fdatasync"], self.queues.dirty), (1, set()))

    def test_failed_flush_keeps_the_checkpoint_back(self):
        self.dispatch()
        self.fs.fail("fdatasync", OSError("input/output error"))
        self.service.flush_all()
        self.assertEqual((len(self.queues.dirty), self.checkpoint.logics_msg_timestamp), (1, 0))
        self.service.flush_all()
        self.assertEqual((len(self.queues.dirty), self.checkpoint.logics_msg_timestamp), (0, 777))

    def test_records_without_entries_keep_the_checkpoint_back(self):
        """The dispatcher goes on after a queue that could not be written."""
        self.dispatch()
        self.flags.set(WRITE_LOGICS_QUEUE_ERROR, True)
        self.service.flush_all()
        self.assertEqual(self.checkpoint.logics_msg_timestamp, 0)
        self.assertIsNone(self.checkpoint.progress)

    def test_flush_skips_deleted_queue(self):
        self.dispatch()
        gone = self.queues.find("T", 0)
        self.queues.remove_topic("T")
        self.queues.dirty.add(gone)
        self.service.flush_all()
        self.assertEqual(self.checkpoint.logics_msg_timestamp, 777)


class Task:
    """Notes when it was done; `fails` times it then raises."""

    def __init__(self, interval, fails=0):
        self.interval = interval
        self.fails = fails
        self.times = []

    def run_once(self, now):
        self.times.append(now)
        if len(self.times) <= self.fails:
            raise ValueError("no luck")
        return now + self.interval


class ServiceTests(SynchronousTestCase):
    def test_tasks_run_when_due(self):
        often, seldom = Task(1.0), Task(2.5)
        service = MaintenanceService((often, seldom))
        now = 0.0
        while now < 5.5:
            now = service.run_due(now)
        self.assertEqual(often.times, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
        self.assertEqual(seldom.times, [0.0, 2.5, 5.0])

    def test_failing_task_is_retried_and_other_tasks_run(self):
        broken, good = Task(1.0, fails=1), Task(1.0)
        service = MaintenanceService((broken, good))
        now = 0.0
        while now <= RETRY_SECONDS:
            now = service.run_due(now)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(broken.times, [0.0, RETRY_SECONDS])
        self.assertEqual(len(good.times), RETRY_SECONDS + 1)

    def test_thread_waits_until_something_is_due_or_the_stop(self):
        done = queue.SimpleQueue()

        class Reporting:
            def run_once(self, now):
                done.put(now)
                return now if now == 100.0 else now + 3600

        # Two steps by a clock that jumps half a second; the third would be an hour off.
        times = iter([100.0, 100.0, 100.5, 100.5])
        service = MaintenanceService((Reporting(),), lambda: next(times, 100.5))
        service.start()
        self.addCleanup(service.stop)
        self.assertEqual([done.get(timeout=WAIT), done.get(timeout=WAIT)], [100.0, 100.5])
        service.stop()
        self.assertTrue(done.empty())


class DiskWatchTests(SynchronousTestCase):
    def setUp(self):
        self.fs = FaultyFileSystem()
        self.usages = {}
        self.fs.disk_usage = self.usage
        self.flags = RunningFlags()
        self.config = small_config("/s", disk_space_warning_level_ratio=0.9, disk_space_clean_forcibly_ratio=0.85)
        self.watch = DiskWatch(self.config, self.fs, ["/s/commitlog"], "/s/consumequeue", self.flags)
        self.lines = []
        for level in ("info", "warn", "error"):
            report = lambda text, level=level, **fields: self.lines.append((level, text.format(**fields)))  # noqa: E731
            self.patch(disk_watch._log, level, report)

    def usage(self, path):
        percent = self.usages[path]
        if percent is None:
            raise OSError("no such file")
        return DiskUsage(percent, 100 - percent)

    def check(self, log, queues=10):
        self.usages = {"/s/commitlog": log, "/s/consumequeue": queues}
        self.watch.check()

    def test_disk_states_by_used_share(self):
        for percent, state, short, critical, writable in (
            (75, DiskState.GOOD, False, False, True),
            (76, DiskState.SHORT, True, False, True),
            (85, DiskState.SHORT, True, False, True),
            (86, DiskState.CRITICAL, True, True, True),
            (90, DiskState.CRITICAL, True, True, True),
            (91, DiskState.FULL, True, True, False),
            (90, DiskState.CRITICAL, True, True, True),
            (20, DiskState.GOOD, False, False, True),
        ):
            for disks in ((percent, 10), (10, percent), (percent, percent)):
                self.check(*disks)
                found = (self.watch.state, self.watch.short, self.watch.critical, self.flags.writable)
                self.assertEqual(found, (state, short, critical, writable), disks)

    def test_disk_state_changes_are_logged_once(self):
        for percent in (50, 60, 80, 81, 95, 96, 95, 50, 50):
            self.check(percent)
        self.assertEqual([level for level, _ in self.lines], ["warn", "error", "info"])
        self.assertIn("disk of /s/commitlog: 95.0% used, limit 90%: messages are refused", self.lines[1][1])

    def test_fuller_disk_is_named(self):
        self.check(20, 95)
        self.assertEqual((self.watch.ratio, self.watch.queue_ratio), (0.2, 0.95))
        self.assertEqual(self.watch.describe(), "disk of /s/consumequeue: 95.0% used, limit 90%")

    def test_unmeasurable_disk_changes_nothing(self):
        self.check(95)
        self.check(None)
        self.check(None)
        self.assertFalse(self.flags.writable)
        self.assertEqual(len(self.lines), 2)
        self.check(50)
        self.assertTrue(self.flags.writable)
        self.check(None)
        self.assertEqual([level for level, _ in self.lines], ["error", "error", "info", "error"])

    def test_space_ratio_is_clamped_to_10_to_95(self):
        for percent, used, short in ((0, 10, False), (0, 11, True), (99, 95, False), (99, 96, True)):
            # Without a restart.
            self.config.disk_max_used_space_ratio = percent
            self.check(used)
            self.assertEqual(self.watch.short, short, (percent, used))

    def test_next_run_follows_check_period(self):
        self.check(50)
        self.assertEqual(self.watch.run_once(7.0), 7.0 + CHECK_SECONDS)

    def test_recent_measurement_replaces_periodic_one(self):
        self.check(50)
        self.usages["/s/commitlog"] = 95
        self.watch.run_once(7.0)
        self.assertFalse(self.flags.describe())
        self.watch.run_once(17.0)
        self.assertIn("disk", self.flags.describe())
