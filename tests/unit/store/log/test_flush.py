"""The flush thread: waiters get a true answer in time."""

import os
import queue
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.running_flags import RunningFlags
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import PutStatus
from rocketd.store.log.append import GroupAppender
from rocketd.store.log.commit_log import CommitLog
from rocketd.store.log.flush import FlushCommitLogService
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message

WAIT = 60


class FlushTests(SynchronousTestCase):
    def setUp(self):
        root = self.mktemp()
        self.fs = FaultyFileSystem()
        self.log = CommitLog(self.fs, os.path.join(root, "commitlog"), 4096)
        self.log.load()
        self.checkpoint = StoreCheckpoint(os.path.join(root, "checkpoint"), self.fs)
        self.appender = GroupAppender(self.log, STORE_HOST, 2000, lambda: 1_700_000_000.0)
        self.answers = queue.SimpleQueue()
        self.flags = RunningFlags()

    def start(self, sync=True, interval_ms=3_600_000, least_pages=4, thorough_interval_ms=3_600_000, timeout_ms=60_000):
        self.config = MessageStoreConfig(
            flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH",
            flush_interval_commit_log=interval_ms,
            flush_commit_log_least_pages=least_pages,
            flush_commit_log_thorough_interval=thorough_interval_ms,
            sync_flush_timeout=timeout_ms,
        )
        self.service = FlushCommitLogService(
            self.log.queue,
            self.checkpoint,
            self.flags,
            self.config,
        )
        self.service.start()
        self.addCleanup(self.log.queue.close)
        self.addCleanup(self.service.stop)

    def put(self, size=100, count=1):
        return self.appender.append([make_message(bytes(size))] * count)[1].end_offset

    def test_answer_comes_after_sync(self):
        self.start()
        gate = self.fs.block("fdatasync")
        end = self.put()
        self.service.when_flushed(end, self.answers.put)
        with self.assertRaises(queue.Empty):
            self.answers.get(timeout=0.1)
        self.assertEqual(self.log.queue.flushed_where, 0)
        gate.set()
        self.assertIs(self.answers.get(timeout=WAIT), PutStatus.PUT_OK)
        self.assertGreaterEqual(self.log.queue.flushed_where, end)
        self.assertEqual(self.checkpoint.physic_msg_timestamp, 1_700_000_000_000)

    def test_waiters_share_a_flush(self):
        self.start()
        gate = self.fs.block("fdatasync")
        for _ in range(10):
            self.service.when_flushed(self.put(), self.answers.put)
        gate.set()
        self.assertEqual([self.answers.get(timeout=WAIT) for _ in range(10)], [PutStatus.PUT_OK] * 10)
        self.assertLessEqual(self.fs.calls["fdatasync"], 3)

    def test_flush_covers_all_files(self):
        self.start()
        end = self.put(1500, 5)
        self.service.when_flushed(end, self.answers.put)
        self.assertIs(self.answers.get(timeout=WAIT), PutStatus.PUT_OK)
        self.assertEqual(self.log.queue.flushed_where, end)
        self.assertEqual(self.fs.calls["fdatasync"], 3)

    def test_slow_disk_is_answered_in_time_and_once(self):
        self.start(timeout_ms=40)
        gate = self.fs.block("fdatasync")
        self.service.when_flushed(self.put(), self.answers.put)
        self.assertIs(self.answers.get(timeout=WAIT), PutStatus.FLUSH_DISK_TIMEOUT)
        gate.set()
        self.service.stop()
        self.assertTrue(self.answers.empty())

    def test_failing_disk_is_never_answered_ok(self):
        self.start()
        self.fs.fail("fdatasync", OSError("input/output error"))
        for _ in range(2):  # the system would say of the second that all is well
            self.service.when_flushed(self.put(), self.answers.put)
            self.assertIs(self.answers.get(timeout=WAIT), PutStatus.FLUSH_DISK_TIMEOUT)
        self.assertEqual(self.fs.calls["fdatasync"], 1)
        self.assertFalse(self.flags.writable)
        self.assertIn("could not be flushed", self.flags.describe())

    def test_failing_callback_leaves_other_callbacks_alone(self):
        self.start()

        def fail(status):
            raise ValueError(status)

        self.service.when_flushed(self.put(), fail)
        self.service.when_flushed(self.put(), self.answers.put)
        self.assertIs(self.answers.get(timeout=WAIT), PutStatus.PUT_OK)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def watch_disk(self):
        """An event that is set when the disk has synced something."""
        synced = threading.Event()
        real = self.fs.fdatasync

        def fdatasync(fd):
            real(fd)
            synced.set()

        self.fs.fdatasync = fdatasync
        return synced

    def test_wake_flushes_without_an_answer(self):
        synced = self.watch_disk()
        self.start()
        self.put()
        self.service.wake()
        self.assertTrue(synced.wait(WAIT))

    def test_settings_count_at_once(self):
        self.start()
        gate = self.fs.block("fdatasync")
        self.addCleanup(gate.set)
        self.config.sync_flush_timeout = 40
        self.service.when_flushed(self.put(), self.answers.put)
        self.assertIs(self.answers.get(timeout=WAIT), PutStatus.FLUSH_DISK_TIMEOUT)

    def test_flush_below_least_pages_waits(self):
        synced = self.watch_disk()
        self.start(sync=False, interval_ms=1, least_pages=1)
        self.put(10)
        self.assertFalse(synced.wait(0.1))
        self.put(1900, 3)
        self.assertTrue(synced.wait(WAIT))

    def test_thorough_interval(self):
        synced = self.watch_disk()
        self.start(sync=False, interval_ms=1, thorough_interval_ms=1)
        self.put(10)
        self.assertTrue(synced.wait(WAIT))

    def test_stop_flushes_and_answers(self):
        self.start()
        gate = self.fs.block("fdatasync")
        end = self.put()
        self.service.when_flushed(end, self.answers.put)
        gate.set()
        self.service.stop()
        self.assertIs(self.answers.get(timeout=WAIT), PutStatus.PUT_OK)
        self.assertEqual(self.log.queue.flushed_where, end)
