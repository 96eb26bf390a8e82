"""A start without disk room for the entries still to be dispatched."""

import errno
import os

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.record import decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.queue import dispatch
from rocketd.store.recovery import catch_up
from rocketd.store.state.last_stop import LastStop, read_last_stop
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config

FULL = OSError(errno.ENOSPC, "no space left on device")


class FullDiskTests(SynchronousTestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.fs = FaultyFileSystem()
        self.patch(catch_up, "RETRY_SECONDS", 0.01)

    def open(self):
        store = MessageStore(small_config(self.root), STORE_HOST, fs=self.fs)
        store.start()
        self.addCleanup(store.stop)
        return store

    def messages(self, begin, end):
        return [make_message(b"%d" % n, queue_id=n % 3, key=f"k{n}") for n in range(begin, end)]

    def fill(self):
        """A killed store with 90 messages, the last 30 of which have no entries."""
        store = self.open()
        store.put_messages(self.messages(0, 60))
        store._reput.stop()
        store.commit_log.queue.flush(0)
        store._flush_queues.flush_all()
        store.put_messages(self.messages(60, 90))
        self.fs.crash()
        store.stop()
        self.fs._crashed = False

    def bodies(self, store, queue_id):
        found = []
        for offset in range(store.get_max_offset("TopicTest", queue_id)):
            (view,) = store.get_messages("TopicTest", queue_id, offset, 1, None).buffers
            found += [message.body for message in decode_messages(view)]
        return found

    def test_start_on_full_disk_dispatches_once_there_is_room(self):
        self.fill()
        self.fs.fail("allocate", FULL, times=1_000_000)
        store = self.open()
        self.assertEqual(self.bodies(store, 0), [b"%d" % n for n in range(0, 60, 3)])
        self.assertGreater(store.dispatch_behind_bytes(), 0)
        self.assertTrue(store.flags.writable)
        results = store.put_messages(self.messages(90, 93))
        self.assertEqual([result.queue_offset for result in results], [30, 30, 30])
        self.fs._faults.clear()
        done = []
        store.add_arrival_listener(done.append)
        store._reput.call(lambda: done.append(None))
        store._reput.stop()
        self.assertIn(None, done)
        for queue_id in range(3):
            self.assertEqual(self.bodies(store, queue_id), [b"%d" % n for n in range(queue_id, 93, 3)])
        for number in (0, 59, 60, 89, 92):
            self.assertEqual(len(store.query_messages("TopicTest", f"k{number}", 9, 0, 2**62).buffers), 1, number)
        self.assertEqual(store.dispatch_behind_bytes(), 0)
        store.stop()
        self.assertIs(read_last_stop(self.fs, self.root), LastStop.CLEAN)

    def test_stop_before_catch_up_is_unclean_and_loses_nothing(self):
        self.fill()
        self.fs.fail("allocate", FULL, times=1_000_000)
        self.patch(catch_up, "RETRY_SECONDS", 3600.0)
        store = self.open()
        store.put_messages(self.messages(90, 93))
        self.patch(dispatch, "STOP_SECONDS", 0.05)
        store.stop()
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertIsNot(read_last_stop(self.fs, self.root), LastStop.CLEAN)
        self.fs._faults.clear()
        store = self.open()
        for queue_id in range(3):
            self.assertEqual(self.bodies(store, queue_id), [b"%d" % n for n in range(queue_id, 93, 3)])
