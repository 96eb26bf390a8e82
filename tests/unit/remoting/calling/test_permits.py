"""Fair permits."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.calling.permits import FairSemaphore


class FairSemaphoreTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.semaphore = FairSemaphore(self.clock, 1)

    def test_double_release_keeps_the_count(self):
        permit = self.semaphore.try_acquire()
        self.assertEqual(self.semaphore.available, 0)
        permit.release()
        permit.release()
        self.assertEqual(self.semaphore.available, 1)

    def test_waiters_are_served_in_order(self):
        permit = self.semaphore.try_acquire()
        served = []
        for name in "abc":
            self.semaphore.acquire(1000).addCallback(lambda p, name=name: (served.append(name), p.release()))
        self.assertEqual(self.semaphore.waiting, 3)
        permit.release()
        self.assertEqual(served, ["a", "b", "c"])
        self.assertEqual(self.semaphore.available, 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_acquire_without_time_returns_none(self):
        self.semaphore.try_acquire()
        self.assertIsNone(self.successResultOf(self.semaphore.acquire(0)))

    def test_try_acquire_does_not_overtake_waiter(self):
        permit = self.semaphore.try_acquire()
        first = self.semaphore.acquire(1000)
        self.assertIsNone(self.semaphore.try_acquire())
        permit.release()
        second = self.successResultOf(first)
        self.assertEqual(self.semaphore.available, 0)
        second.release()
        self.assertEqual(self.semaphore.available, 1)

    def test_waiting_ends_at_the_timeout(self):
        self.semaphore.try_acquire()
        waiting = self.semaphore.acquire(250)
        self.clock.advance(0.249)
        self.assertNoResult(waiting)
        self.clock.advance(0.002)
        self.assertIsNone(self.successResultOf(waiting))
        self.assertEqual(self.semaphore.waiting, 0)

    def test_cancelled_waiter_takes_no_permit(self):
        permit = self.semaphore.try_acquire()
        waiting = self.semaphore.acquire(250)
        waiting.cancel()
        self.failureResultOf(waiting)
        permit.release()
        self.assertEqual(self.semaphore.available, 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
