"""Running what the application gives, in threads or as coroutines."""

from threading import Event, Semaphore, current_thread

from twisted.internet.defer import ensureDeferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.listeners import HandlerThreads
from tests.unit.client_cluster import THREAD_LIMIT, ThreadedClock


class HandlerThreadsTests(SynchronousTestCase):
    def setUp(self):
        self.clock = ThreadedClock()
        self.threads = HandlerThreads(self.clock, "handlers", 2, ensureDeferred)

    def test_function_runs_in_a_thread_that_keeps_no_process_alive(self):
        ran = self.threads.invoke(lambda word: (word, current_thread().daemon), "word")
        self.clock.run_call()
        self.assertEqual(self.successResultOf(ran), ("word", True))
        stopped = self.threads.stop()
        self.clock.run_call()
        self.successResultOf(stopped)

    def test_coroutine_function_runs_here(self):
        async def function(word):
            return word, current_thread()

        self.assertEqual(self.successResultOf(self.threads.invoke(function, "word")), ("word", current_thread()))
        self.successResultOf(self.threads.stop())

    def test_a_higher_limit_is_for_what_waits_already(self):
        go_on, begun = Event(), Semaphore(0)

        def function():
            begun.release()
            return go_on.wait(THREAD_LIMIT)

        running = [self.threads.run(function) for _ in range(5)]
        for _ in range(2):
            self.assertTrue(begun.acquire(timeout=THREAD_LIMIT))
        self.threads.set_limit(4)
        for _ in range(2):
            self.assertTrue(begun.acquire(timeout=THREAD_LIMIT))
        go_on.set()
        while not all(each.called for each in running):
            self.clock.run_call()
        self.assertEqual([self.successResultOf(each) for each in running], [True] * 5)
        self.threads.stop()
        self.clock.run_call()

    def test_stop_does_not_wait_for_a_function_that_does_not_end(self):
        go_on = Event()
        running = self.threads.run(lambda: go_on.wait(THREAD_LIMIT))
        self.successResultOf(self.threads.stop())
        self.assertNoResult(running)
        go_on.set()
        self.clock.run_call()
        self.assertIs(self.successResultOf(running), True)
