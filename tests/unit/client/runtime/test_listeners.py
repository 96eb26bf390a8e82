"""Running functions of the application, in threads or as coroutines."""

import asyncio
import sys
from functools import partial
from threading import Event, Semaphore, current_thread

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.trial.unittest import SynchronousTestCase

import rocketd.client
from rocketd.client import aio, sync
from rocketd.client.errors import IllegalOptionError
from rocketd.client.runtime.asyncio_host import to_deferred, to_future
from rocketd.client.runtime.listeners import HandlerThreads
from tests.support.client_cluster import THREAD_LIMIT, ThreadedClock


class HandlerThreadsTests(SynchronousTestCase):
    def setUp(self):
        self.clock = ThreadedClock()
        self.threads = HandlerThreads(self.clock, "handlers", 2, ensureDeferred)

    def test_function_runs_in_daemon_thread(self):
        ran = self.threads.invoke(lambda word: (word, current_thread().daemon), "word")
        self.clock.run_call()
        self.assertEqual(self.successResultOf(ran), ("word", True))
        self.stop()

    def stop(self):
        """Stop the threads, whether they end before or after the look at them."""
        stopped = self.threads.stop()
        if not stopped.called:
            self.clock.run_call()
        self.successResultOf(stopped)

    def test_coroutine_function_runs_in_calling_thread(self):
        async def function(word):
            return word, current_thread()

        self.assertEqual(self.successResultOf(self.threads.invoke(function, "word")), ("word", current_thread()))
        self.successResultOf(self.threads.stop())

    def result_of(self, function):
        ran = self.threads.invoke(function)
        self.clock.run_call()
        return ran

    def test_awaitable_returned_by_function_is_awaited(self):
        waits = []

        def wait():
            waits.append(Deferred())
            return waits[-1]

        async def coroutine():
            return await wait(), current_thread()

        class Awaitable:
            def __await__(self):
                return coroutine().__await__()

        ran = [self.result_of(function) for function in (lambda: coroutine(), wait, Awaitable)]
        for each in ran:
            self.assertNoResult(each)
        self.assertEqual(len(self.threads.running), 3)
        for each in waits:
            each.callback("late")
        self.assertEqual(
            list(map(self.successResultOf, ran)), [("late", current_thread()), "late", ("late", current_thread())]
        )
        self.assertEqual(self.threads.running, [])

    def test_generator_result_is_a_failure(self):
        async def stream():
            yield 1

        self.failureResultOf(self.result_of(lambda: (each for each in [1])), TypeError)
        self.failureResultOf(self.result_of(lambda: stream()), TypeError)

    def test_system_exit_in_coroutine_fails_without_ending_the_loop(self):
        async def exits():
            sys.exit(3)

        async def run():
            threads = HandlerThreads(self.clock, "handlers", 2, to_deferred)
            with self.assertRaises(SystemExit):
                await to_future(threads.invoke(exits))
            return "ran on"

        self.assertEqual(asyncio.run(run()), "ran on")

    def test_system_exit_in_function_is_a_failure(self):
        self.failureResultOf(self.result_of(sys.exit), SystemExit)

    def test_higher_limit_starts_waiting_functions(self):
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
        self.stop()

    def test_stop_does_not_wait_for_endless_function(self):
        go_on = Event()
        running = self.threads.run(lambda: go_on.wait(THREAD_LIMIT))
        self.successResultOf(self.threads.stop())
        self.assertNoResult(running)
        go_on.set()
        self.clock.run_call()
        self.assertIs(self.successResultOf(running), True)


class HandlerTests(SynchronousTestCase):
    def test_generator_handler_is_refused(self):
        def generator(message):
            yield message

        async def stream(message):
            yield message

        class Callable:
            def __call__(self, message):
                yield message

        for face in (rocketd.client, aio, sync):
            for handler in (generator, stream, partial(generator), Callable()):
                with self.assertRaisesRegex(IllegalOptionError, "generator function"):
                    face.Consumer("G", "127.0.0.1:1", topics="T", handler=handler)
            with self.assertRaisesRegex(IllegalOptionError, "handler='work'"):
                face.Consumer("G", "127.0.0.1:1", topics="T", handler="work")
