"""How what an application gives is run: in threads, or where its coroutines live."""

import sys
from functools import partial
from pathlib import Path
from threading import Barrier, Event, current_thread
from threading import enumerate as all_threads
from time import monotonic

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.listeners import HandlerThreads, is_coroutine_function

# Test modules are no package: what stands beside them is found by its directory.
_HERE = str(Path(__file__).resolve().parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from client_cluster import THREAD_LIMIT, ThreadedClock  # noqa: E402


class Awaited:
    async def __call__(self):
        return "awaited"

    async def method(self):
        return "awaited, too"


class ListenerTestCase(SynchronousTestCase):
    name = "rocketd-test-handlers"

    def setUp(self):
        self.clock = ThreadedClock()
        self.ran = []
        self.threads = HandlerThreads(self.clock, self.name, 2, self.run_coroutine)

    def run_coroutine(self, coroutine):
        self.ran.append(coroutine)
        return Deferred.fromCoroutine(coroutine)

    def start(self):
        self.threads.start()
        self.addCleanup(self.stop)

    def stop(self):
        self.wait(self.threads.stop())

    def wait(self, *waiting):
        """Let threads tell what they have done, until all these have fired."""
        while not all(one.called for one in waiting):
            self.clock.run_call()
        return [self.successResultOf(one) for one in waiting]

    def alive(self):
        """The threads that run functions; the one that stops them ends by itself."""
        found = [thread for thread in all_threads() if self.name in thread.name]
        return [thread for thread in found if not thread.name.endswith("-stop")]


class FunctionTests(ListenerTestCase):
    def test_no_thread_begins_before_it_is_needed(self):
        self.start()
        self.assertEqual(self.alive(), [])
        self.wait(self.threads.run(int))
        self.assertEqual(len(self.alive()), 1)

    def test_runs_in_a_thread_with_its_arguments(self):
        self.start()
        running = self.threads.invoke(lambda *arguments: (current_thread(), arguments), 1, "two")
        self.assertNoResult(running)
        ((thread, arguments),) = self.wait(running)
        self.assertIsNot(thread, current_thread())
        self.assertIn(self.name, thread.name)
        self.assertEqual(arguments, (1, "two"))

    def test_fails_with_what_the_function_raises(self):
        self.start()
        running = self.threads.invoke(int, "no number")
        self.clock.run_call()
        self.failureResultOf(running, ValueError)

    def test_an_error_of_a_function_ends_no_thread(self):
        self.start()
        for _ in range(5):
            running = self.threads.invoke(int, "no number")
            self.clock.run_call()
            self.failureResultOf(running, ValueError)
        self.assertEqual(self.wait(self.threads.invoke(int, "7")), [7])


class LimitTests(ListenerTestCase):
    def setUp(self):
        super().setUp()
        self.begun = []
        self.going_on = Event()
        self.addCleanup(self.going_on.set)

    def block(self, number, together):
        self.begun.append(number)
        together.wait(THREAD_LIMIT)
        self.going_on.wait(THREAD_LIMIT)
        return number

    def test_as_many_run_at_once_as_the_limit_says(self):
        self.start()
        together = Barrier(3)
        running = [self.threads.invoke(self.block, number, together) for number in (1, 2)]
        last = self.threads.invoke(self.block, 3, Barrier(1))
        together.wait(THREAD_LIMIT)  # both run
        self.assertEqual((sorted(self.begun), len(self.alive())), ([1, 2], 2))
        self.going_on.set()
        self.assertEqual(self.wait(*running, last), [1, 2, 3])
        self.assertEqual(len(self.alive()), 2)

    def test_a_higher_limit_lets_more_run(self):
        self.start()
        together = Barrier(4)
        running = [self.threads.invoke(self.block, number, together) for number in (1, 2)]
        self.threads.set_limit(3)
        running.append(self.threads.invoke(self.block, 3, together))
        together.wait(THREAD_LIMIT)  # all three run
        self.going_on.set()
        self.assertEqual(self.wait(*running), [1, 2, 3])

    def test_a_lower_limit_ends_threads_that_have_nothing_to_do(self):
        self.start()
        together = Barrier(3)
        running = [self.threads.invoke(self.block, number, together) for number in (1, 2)]
        together.wait(THREAD_LIMIT)
        self.going_on.set()
        self.wait(*running)
        self.threads.set_limit(1)
        ends = monotonic() + THREAD_LIMIT
        while len(self.alive()) > 1 and monotonic() < ends:
            self.alive()[-1].join(0.01)
        self.assertEqual(len(self.alive()), 1)
        self.assertEqual(self.wait(self.threads.run(lambda: 7)), [7])


class CoroutineTests(ListenerTestCase):
    def test_are_told_from_plain_functions(self):
        for function in (Awaited(), Awaited().method, partial(Awaited().method)):
            self.assertTrue(is_coroutine_function(function), function)
        for function in (print, lambda: None, Event(), partial(print), Awaited):
            self.assertFalse(is_coroutine_function(function), function)

    def test_run_where_the_face_lives_and_in_no_thread(self):
        self.start()

        async def listener(text):
            return text, current_thread()

        result = self.successResultOf(self.threads.invoke(listener, "hello"))
        self.assertEqual(result, ("hello", current_thread()))
        self.assertEqual((len(self.ran), self.alive()), (1, []))

    def test_need_no_threads(self):
        self.assertEqual(self.successResultOf(self.threads.invoke(Awaited())), "awaited")
        self.assertEqual(self.successResultOf(self.threads.invoke(Awaited().method)), "awaited, too")

    def test_fail_with_what_they_raise(self):
        async def listener():
            raise ValueError("not now")

        self.failureResultOf(self.threads.invoke(listener), ValueError)

    def test_fail_with_what_cannot_be_called_so(self):
        async def listener():
            """Takes nothing."""

        self.failureResultOf(self.threads.invoke(listener, "too much"), TypeError)

    def test_are_cancelled_with_what_waits_for_them(self):
        waited = Deferred()

        async def listener():
            await waited

        running = self.threads.invoke(listener)
        running.cancel()
        self.failureResultOf(running, CancelledError)


class StopTests(ListenerTestCase):
    def test_ends_all_threads(self):
        self.threads.start()
        self.wait(*[self.threads.run(int) for _ in range(4)])
        self.assertNotEqual(self.alive(), [])
        self.stop()
        self.assertEqual(self.alive(), [])

    def test_of_what_never_started_is_done_at_once(self):
        self.successResultOf(self.threads.stop())

    def test_may_come_twice(self):
        self.threads.start()
        self.stop()
        self.successResultOf(self.threads.stop())

    def test_returns_while_a_function_runs_and_fires_when_it_has_ended(self):
        self.threads.start()
        begun, going_on = Event(), Event()
        self.addCleanup(going_on.set)

        def function():
            begun.set()
            return going_on.wait(THREAD_LIMIT)

        running = self.threads.invoke(function)
        begun.wait(THREAD_LIMIT)
        stopped = self.threads.stop()  # had it waited here, nobody would let the function go on
        self.assertNoResult(stopped)
        going_on.set()
        self.assertEqual(self.wait(running, stopped), [True, None])
