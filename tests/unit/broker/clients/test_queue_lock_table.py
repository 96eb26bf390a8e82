from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.clients.queue_lock_table import RebalanceLockManager

A = ("T", "broker-a", 0)
B = ("T", "broker-a", 1)


class RebalanceLockTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.locks = RebalanceLockManager(lambda: int(self.clock.seconds() * 1000))

    def test_first_client_keeps_lock(self):
        self.assertEqual(self.locks.lock_batch("G", [A, B], "c1"), [A, B])
        self.assertEqual(self.locks.lock_batch("G", [A, B], "c2"), [])
        self.assertEqual(self.locks.lock_batch("G", [A], "c1"), [A])

    def test_locks_are_per_group(self):
        self.locks.lock_batch("G", [A], "c1")
        self.assertEqual(self.locks.lock_batch("H", [A], "c2"), [A])

    def test_lock_expires_60_s_after_last_request(self):
        self.locks.lock_batch("G", [A], "c1")
        self.clock.advance(59)
        self.locks.lock_batch("G", [A], "c1")
        self.clock.advance(60)
        self.assertEqual(self.locks.lock_batch("G", [A], "c2"), [])
        self.clock.advance(0.001)
        self.assertEqual(self.locks.lock_batch("G", [A], "c2"), [A])
        self.assertEqual(self.locks.lock_batch("G", [A], "c1"), [])

    def test_only_the_owner_unlocks(self):
        self.locks.lock_batch("G", [A, B], "c1")
        self.locks.unlock_batch("G", [A, B], "c2")
        self.assertEqual(self.locks.lock_batch("G", [A, B], "c2"), [])
        self.locks.unlock_batch("G", [A], "c1")
        self.assertEqual(self.locks.lock_batch("G", [A, B], "c2"), [A])

    def test_unlock_of_unlocked_queue_does_nothing(self):
        self.locks.unlock_batch("G", [A], "c1")
        self.assertEqual(self.locks.lock_batch("G", [A], "c1"), [A])
