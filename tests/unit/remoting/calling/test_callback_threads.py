"""The threads that run callbacks."""

import threading
from threading import Barrier, Event, Semaphore

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.calling import callback_threads
from rocketd.remoting.calling.callback_threads import CallbackThreads

LIMIT = 60  # seconds


class CallbackThreadsTests(SynchronousTestCase):
    def make(self, limit=2):
        threads = CallbackThreads(self.id(), limit)  # threads of other tests may end later
        self.addCleanup(threads.stop)
        return threads

    def alive(self):
        return [thread for thread in threading.enumerate() if thread.name.startswith(self.id() + "-")]

    def wait_until_ended(self):
        for thread in self.alive():
            thread.join(LIMIT)
        self.assertEqual(self.alive(), [])

    def test_threads_start_on_demand_up_to_limit(self):
        threads = self.make()
        self.assertEqual(self.alive(), [])
        both, go_on, done = Barrier(3), Event(), Semaphore(0)

        def hold():
            both.wait(LIMIT)
            go_on.wait(LIMIT)

        for _ in range(2):
            threads(hold)
        both.wait(LIMIT)  # both run at once
        for _ in range(5):
            threads(done.release)
        self.assertEqual(len(self.alive()), 2)
        go_on.set()
        for _ in range(5):
            self.assertTrue(done.acquire(timeout=LIMIT))
        threads.stop()
        self.wait_until_ended()

    def test_endless_function_does_not_delay_others_below_thread_limit(self):
        threads = self.make()
        go_on, done = Event(), Semaphore(0)
        self.addCleanup(go_on.set)
        for _ in range(100):
            threads(done.release)
            done.acquire(timeout=LIMIT)
        threads(lambda: go_on.wait(LIMIT))
        threads(done.release)
        self.assertTrue(done.acquire(timeout=LIMIT))

    def test_failing_function_is_logged_and_thread_continues(self):
        threads, done = self.make(1), Event()
        threads(lambda: 1 / 0)
        threads(done.set)
        self.assertTrue(done.wait(LIMIT))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_calls_beyond_queue_limit_are_refused(self):
        self.patch(callback_threads, "MAX_WAITING", 2)
        threads, go_on, runs = self.make(1), Event(), Event()
        self.addCleanup(go_on.set)

        def hold():
            runs.set()
            go_on.wait(LIMIT)

        threads(hold)
        self.assertTrue(runs.wait(LIMIT))
        for _ in range(2):
            threads(hold)
        with self.assertRaisesRegex(RuntimeError, "the limit"):
            threads(hold)

    def test_idle_threads_end_and_begin_again(self):
        self.patch(callback_threads, "IDLE_SECONDS", 0.01)
        threads = self.make()
        for _ in range(3):
            done = Event()
            threads(done.set)
            self.assertTrue(done.wait(LIMIT))
            self.wait_until_ended()

    def test_calls_between_stop_and_start_are_refused(self):
        threads, done = self.make(), Event()
        threads.stop()
        self.assertRaises(RuntimeError, threads, done.set)
        threads.start()
        threads(done.set)
        self.assertTrue(done.wait(LIMIT))

    def test_zero_means_four(self):
        threads, four = self.make(0), Barrier(5)
        for _ in range(4):
            threads(lambda: four.wait(LIMIT))
        four.wait(LIMIT)
