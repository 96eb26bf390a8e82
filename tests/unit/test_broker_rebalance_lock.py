from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.rebalance_lock import RebalanceLockManager

A = ("T", "broker-a", 0)
B = ("T", "broker-a", 1)


class RebalanceLockTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.locks = RebalanceLockManager(lambda: int(self.clock.seconds() * 1000))

    def test_the_first_client_gets_the_queue_and_keeps_it(self):
        self.assertEqual(self.locks.lock_batch("G", [A, B], "c1"), [A, B])
        self.assertEqual(self.locks.lock_batch("G", [A, B], "c2"), [])
        self.assertEqual(self.locks.lock_batch("G", [A], "c1"), [A])

    def test_groups_do_not_know_each_other(self):
        self.locks.lock_batch("G", [A], "c1")
        self.assertEqual(self.locks.lock_batch("H", [A], "c2"), [A])

    def test_a_lock_lives_sixty_seconds_after_it_was_last_asked_for(self):
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

    def test_unlocking_what_nobody_locked_is_nothing(self):
        self.locks.unlock_batch("G", [A], "c1")
        self.assertEqual(self.locks.lock_batch("G", [A], "c1"), [A])
