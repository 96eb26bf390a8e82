"""The threads that run callbacks."""

import threading
from threading import Barrier, Event, Semaphore

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting import callback_threads
from rocketd.remoting.callback_threads import CallbackThreads

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

    def test_threads_begin_when_needed_and_never_more_than_the_limit(self):
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

    def test_function_that_never_ends_does_not_hold_up_others_while_a_thread_may_begin(self):
        threads = self.make()
        go_on, done = Event(), Semaphore(0)
        self.addCleanup(go_on.set)
        for _ in range(100):
            threads(done.release)
            done.acquire(timeout=LIMIT)
        threads(lambda: go_on.wait(LIMIT))
        threads(done.release)
        self.assertTrue(done.acquire(timeout=LIMIT))

    def test_function_that_raises_is_logged_and_the_thread_goes_on(self):
        threads, done = self.make(1), Event()
        threads(lambda: 1 / 0)
        threads(done.set)
        self.assertTrue(done.wait(LIMIT))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_too_many_are_refused(self):
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
        with self.assertRaisesRegex(RuntimeError, "the most that may"):
            threads(hold)

    def test_idle_threads_end_and_begin_again(self):
        self.patch(callback_threads, "IDLE_SECONDS", 0.01)
        threads = self.make()
        for _ in range(3):
            done = Event()
            threads(done.set)
            self.assertTrue(done.wait(LIMIT))
            self.wait_until_ended()

    def test_nothing_is_taken_after_the_stop_until_the_next_start(self):
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
