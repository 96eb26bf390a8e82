"""The thread of blocking clients: calls into it, their ends, and its own."""

import signal
import threading
import traceback
from contextvars import ContextVar

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.runtime import thread_host
from rocketd.client.runtime.thread_host import HostStoppedError, ReactorThreadError, ThreadHost
from tests.support.left_open import LeftOpen

SECONDS = 60.0
"""No test takes so long; waiting calls fail then."""

TRACE = ContextVar("TRACE", default="none")


class HostCase(SynchronousTestCase):
    def setUp(self):
        self.host = ThreadHost.acquire()
        self.released = False
        self.addCleanup(self.release)

    def release(self):
        if not self.released:
            self.released = True
            self.host.release()

    def call(self, function, *args):
        return self.host.call(function, *args, timeout=SECONDS)


class CallTests(HostCase):
    def test_result_comes_from_the_other_thread(self):
        async def add(one, two):
            return one + two, threading.get_ident()

        result, ident = self.call(add, 1, 2)
        self.assertEqual(result, 3)
        self.assertNotEqual(ident, threading.get_ident())

    def test_waits_for_deferreds_and_timers(self):
        async def later():
            fired = Deferred()
            self.host.reactor.callLater(0, fired.callback, "late")
            return await fired

        self.assertEqual(self.call(later), "late")
        self.assertEqual(self.call(lambda: succeed(7)), 7)

    def test_exception_is_original_with_traceback_of_both_threads(self):
        async def deep():
            await succeed(None)
            raise KeyError("what was wrong")

        async def work():
            await deep()

        error = self.assertRaises(KeyError, self.call, work)
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        self.assertEqual([name for name in names if name in ("call", "work", "deep")], ["call", "call", "work", "deep"])
        self.assertRaises(ZeroDivisionError, self.call, lambda: fail(ZeroDivisionError()))

    def test_function_without_awaitable_raises_to_the_caller(self):
        error = self.assertRaises(TypeError, self.call, lambda: 1)
        self.assertIn("await", str(error))
        self.assertRaises(ZeroDivisionError, self.call, lambda: 1 / 0)

    def test_time_limit_cancels(self):
        ended = threading.Event()
        seen = []

        async def never():
            try:
                await Deferred()
            except CancelledError:
                seen.append("cancelled")
                raise
            finally:
                ended.set()

        self.assertIn("0.5 s", str(self.assertRaises(TimeoutError, self.host.call, never, timeout=0.5)))
        self.assertTrue(ended.wait(SECONDS))
        self.assertEqual(seen, ["cancelled"])
        self.assertEqual(self.host._waiting, set())

    def test_signal_interrupts_the_wait_and_cancels(self):
        ended = threading.Event()
        main = threading.get_ident()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

        async def never():
            self.host.reactor.callLater(0, signal.pthread_kill, main, signal.SIGINT)
            try:
                await Deferred()
            finally:
                ended.set()

        self.assertRaises(KeyboardInterrupt, self.call, never)
        self.assertTrue(ended.wait(SECONDS))

    def test_signals_handler_may_start_call_and_stop(self):
        async def answer():
            return 5

        def handler(*_):
            host = ThreadHost.acquire()
            answers.append(host.call(answer, timeout=SECONDS))
            host.release()

        answers = []
        before = signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        with thread_host._lock, self.host.reactor._waking:
            signal.raise_signal(signal.SIGUSR1)
        self.assertEqual(answers, [5])

    def test_call_in_the_reactors_thread_is_refused(self):
        async def inner():
            return 1

        async def outer():
            return self.host.call(inner)

        self.assertIn("wait for itself", str(self.assertRaises(ReactorThreadError, self.call, outer)))

    def test_call_from_the_reactors_pool(self):
        async def inner():
            return threading.current_thread().daemon

        async def outer():
            pool = self.host.reactor.getThreadPool()
            return await deferToThreadPool(self.host.reactor, pool, self.host.call, inner)

        self.assertTrue(self.call(outer))

    def test_context_variables_of_the_caller_are_seen(self):
        async def look():
            await succeed(None)
            return TRACE.get()

        token = TRACE.set("mine")
        try:
            self.assertEqual(self.call(look), "mine")
        finally:
            TRACE.reset(token)
        self.assertEqual(self.call(look), "none")

    def test_many_threads(self):
        async def square(number):
            if number % 3 == 0:
                fired = Deferred()
                self.host.reactor.callLater(0, fired.callback, None)
                await fired
            return number * number

        wrong = []

        def work(first):
            wrong.extend(n for n in range(first, first + 200) if self.call(square, n) != n * n)

        threads = [threading.Thread(target=work, args=(k * 1000,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.host._waiting, set())

    def test_call_soon_keeps_the_order_and_survives_errors(self):
        seen = []
        done = threading.Event()
        with capturedLogs() as logs:
            for n in range(500):
                self.host.call_soon(seen.append, n)
            self.host.call_soon(lambda: 1 / 0)
            self.host.call_soon(done.set)
            self.assertTrue(done.wait(SECONDS))
        self.assertEqual(seen, list(range(500)))
        self.assertEqual([event["log_failure"].type for event in logs if "log_failure" in event], [ZeroDivisionError])
        self.flushLoggedErrors(ZeroDivisionError)


class LifeTests(HostCase):
    def test_users_share_one_thread_until_last_release(self):
        other = ThreadHost.acquire()
        self.assertIs(other, self.host)
        self.release()
        self.assertTrue(other._thread.is_alive())
        other.release()
        self.assertFalse(other._thread.is_alive())
        self.host = ThreadHost.acquire()
        self.released = False
        self.assertIsNot(self.host, other)

    def test_waiting_calls_fail_at_last_release(self):
        begun = threading.Event()
        errors = []

        async def never():
            begun.set()
            await Deferred()

        def work():
            try:
                self.host.call(never, timeout=SECONDS)
            except HostStoppedError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait(SECONDS)
        self.release()
        thread.join()
        self.assertEqual(len(errors), 1)
        self.assertRaises(HostStoppedError, self.host.call, never, timeout=SECONDS)

    def test_last_release_in_the_reactors_thread(self):
        async def release():
            self.release()

        try:
            self.call(release)
        except HostStoppedError:
            pass  # the thread may end before it answers
        self.host._thread.join(SECONDS)
        self.assertFalse(self.host._thread.is_alive())

    def test_thousand_hosts_leave_no_file_and_no_thread(self):
        self.release()
        left = LeftOpen(young=True)
        for _ in range(1000):
            ThreadHost.acquire().release()
        self.assertEqual(left.found(), [])

    def test_pool_ends_with_host(self):
        async def use():
            reactor = self.host.reactor
            return await deferToThreadPool(reactor, reactor.getThreadPool(), threading.current_thread)

        thread = self.call(use)
        self.release()
        self.assertFalse(thread.is_alive())
