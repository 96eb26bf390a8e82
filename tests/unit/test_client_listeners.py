"""Running what the application gives, in threads or as coroutines."""

import asyncio
import sys
from functools import partial
from threading import Event, Semaphore, current_thread

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.trial.unittest import SynchronousTestCase

import rocketd.client
from rocketd.client import aio, sync
from rocketd.client.errors import IllegalOptionError
from rocketd.client.hosting.asyncio_host import to_deferred, to_future
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

    def result_of(self, function):
        ran = self.threads.invoke(function)
        self.clock.run_call()
        return ran

    def test_what_a_plain_function_returns_is_awaited(self):
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

    def test_a_generator_of_which_nothing_has_run_is_a_failure(self):
        async def stream():
            yield 1

        self.failureResultOf(self.result_of(lambda: (each for each in [1])), TypeError)
        self.failureResultOf(self.result_of(lambda: stream()), TypeError)

    def test_a_coroutine_that_exits_fails_and_ends_no_loop(self):
        async def exits():
            sys.exit(3)

        async def run():
            threads = HandlerThreads(self.clock, "handlers", 2, to_deferred)
            with self.assertRaises(SystemExit):
                await to_future(threads.invoke(exits))
            return "ran on"

        self.assertEqual(asyncio.run(run()), "ran on")

    def test_a_function_that_exits_fails(self):
        self.failureResultOf(self.result_of(sys.exit), SystemExit)

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


class HandlerTests(SynchronousTestCase):
    def test_a_handler_of_which_no_line_would_run_is_refused(self):
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
