"""The maintenance thread: what it flushes when, and how often it looks at the disk."""

import os
import queue
import threading

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.checkpoint import StoreCheckpoint
from rocketd.store.consume_queue_table import ConsumeQueueTable
from rocketd.store.dispatch import Dispatcher
from rocketd.store.filesystem import DiskUsage
from rocketd.store.maintenance import DiskWatch, FlushConsumeQueueService
from rocketd.store.message import DispatchRequest
from rocketd.store.running_flags import RunningFlags
from rocketd.store.testing import FaultyFileSystem, small_config


class MaintenanceTests(SynchronousTestCase):
    def setUp(self):
        root = os.path.abspath(self.mktemp())
        config = small_config(root, flush_interval_consume_queue=1)
        self.fs = FaultyFileSystem()
        self.flags = RunningFlags()
        self.queues = ConsumeQueueTable(self.fs, os.path.join(root, "consumequeue"), 20_000)
        self.queues.load()
        self.checkpoint = StoreCheckpoint(os.path.join(root, "checkpoint"), self.fs)
        self.dispatcher = Dispatcher(self.queues, None, self.flags, threading.Event())
        self.watch = DiskWatch(self.fs, root, 0.9, self.flags)
        # The thread asks for the time once a round: one item is one round, and the answer says what time it is.
        self.times = queue.SimpleQueue()
        self.asked = threading.Semaphore(0)
        self.service = FlushConsumeQueueService(
            config, self.queues, self.dispatcher, self.checkpoint, self.watch, self.monotonic
        )

    def monotonic(self):
        self.asked.release()
        return self.times.get()

    def rounds(self, *times):
        """Run rounds at these times in seconds, after a start at 0."""
        for moment in (0.0, *times):
            self.times.put(moment)
        self.service.start()
        for _ in range(len(times) + 2):
            # The last question stays without an answer until the stop: all rounds are over by then.
            self.assertTrue(self.asked.acquire(timeout=10))
        self.service._stopping.set()
        self.times.put(0.0)
        self.service.stop()

    def dispatch(self, count=1, begin=0):
        self.dispatcher.dispatch(
            [DispatchRequest("T", 0, n * 100, 100, 0, 777, n, (), 0, 0, b"") for n in range(begin, begin + count)]
        )

    def test_disk_is_looked_at_every_ten_seconds(self):
        self.fs.usage = DiskUsage(95, 5)
        self.rounds(1.0, 9.0, 10.5, 12.0, 20.6)
        self.assertEqual(self.fs.calls["disk_usage"], 2)
        self.assertFalse(self.flags.writable)
        self.assertEqual(self.watch.ratio, 0.95)

    def test_few_entries_wait_for_the_thorough_flush(self):
        self.dispatch()
        self.rounds(1.0, 30.0, 59.0)
        self.assertEqual(self.fs.calls["fdatasync"], 0)
        self.assertEqual(len(self.queues.dirty), 1)

    def test_thorough_flush_writes_the_checkpoint(self):
        self.dispatch()
        self.rounds(1.0, 60.5)
        self.assertEqual(self.queues.dirty, set())
        self.assertEqual(StoreCheckpoint(self.checkpoint.path).logics_msg_timestamp, 777)

    def test_many_entries_do_not_wait(self):
        self.dispatch(500)
        self.rounds(1.0)
        self.assertEqual((self.fs.calls["fdatasync"], self.queues.dirty), (1, set()))

    def test_failed_flush_keeps_the_checkpoint_back(self):
        self.dispatch()
        self.fs.fail("fdatasync", OSError("input/output error"))
        self.service.flush_all()
        self.assertEqual((len(self.queues.dirty), self.checkpoint.logics_msg_timestamp), (1, 0))
        self.service.flush_all()
        self.assertEqual((len(self.queues.dirty), self.checkpoint.logics_msg_timestamp), (0, 777))

    def test_deleted_queue_is_no_trouble(self):
        self.dispatch()
        gone = self.queues.find("T", 0)
        self.queues.remove_topic("T")
        self.queues.dirty.add(gone)
        self.service.flush_all()
        self.assertEqual(self.checkpoint.logics_msg_timestamp, 777)

    def test_disk_that_cannot_be_measured_changes_nothing(self):
        self.fs.fail("disk_usage", OSError("no such file"))
        self.watch.check()
        self.assertTrue(self.flags.writable)
