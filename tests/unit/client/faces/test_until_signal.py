"""Clients that are open until a signal comes: the order of closing, and the signal handlers restored afterwards."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rocketd.client import aio, sync
from rocketd.client import run as run_twisted
from rocketd.client.errors import NotStartedError, StopConsuming, UsageError
from rocketd.client.faces.push import Arrivals

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
OPENED = ["open one", "open two"]
ALL = [*OPENED, "close two", "close one"]


class Client:
    """Logs its opening and closing; ``then`` is called at opening."""

    def __init__(self, name, log, then=lambda: None):
        self.name, self.log, self.then = name, log, then

    def __enter__(self):
        self.log.append(f"open {self.name}")
        self.then()

    def __exit__(self, *_):
        self.log.append(f"close {self.name}")

    async def __aenter__(self):
        self.__enter__()

    async def __aexit__(self, *_):
        self.__exit__()


def clients(then):
    log = []
    return log, [Client("one", log), Client("two", log, then)]


def send():
    os.kill(os.getpid(), signal.SIGUSR2)


def fail():
    raise LookupError


class SignalTests(SynchronousTestCase):
    def setUp(self):
        for number in SIGNALS:
            self.addCleanup(signal.signal, number, signal.signal(number, self.heard))
        self.others = []

    def heard(self, number, frame):
        self.others.append(number)

    def run_aio(self, *clients):
        asyncio.run(aio.run(*clients, signals=SIGNALS))

    def run_sync(self, *clients):
        sync.run(*clients, signals=SIGNALS)

    def check(self, run):
        log, made = clients(send)
        run(*made)
        self.assertEqual(log, ALL)
        self.assertEqual(self.others, [])
        log, made = clients(fail)
        self.assertRaises(LookupError, run, *made)
        self.assertEqual(log, [*OPENED, "close one"])
        for number in SIGNALS:
            self.assertEqual(signal.getsignal(number), self.heard)

    def test_sync(self):
        self.check(self.run_sync)

    def test_aio(self):
        self.check(self.run_aio)

    def test_second_signal_goes_to_previous_handler(self):
        class Slow(Client):
            def __exit__(self, *_):
                send()

        self.run_sync(Slow("one", [], send))
        self.assertEqual(self.others, [signal.SIGUSR2])

    def test_run_outside_main_thread_is_refused(self):
        with ThreadPoolExecutor(1) as pool:
            for run in (self.run_sync, self.run_aio):
                self.assertIn("main thread", str(pool.submit(run).exception()))


class TwistedTests(TestCase):
    def test_failed_start_closes_opened_clients(self):
        from twisted.internet import reactor

        log, made = clients(fail)
        triggers = str(vars(reactor._eventTriggers["shutdown"]))

        async def run():
            with self.assertRaises(LookupError):
                await run_twisted(*made)
            self.assertEqual(log, [*OPENED, "close one"])
            self.assertEqual(str(vars(reactor._eventTriggers["shutdown"])), triggers)

        return Deferred.fromCoroutine(run())


class FinishTests(SynchronousTestCase):
    def test_finish_keeps_handed_out_message_pending(self):
        arrivals = Arrivals(1)
        first, second = (Deferred.fromCoroutine(arrivals.offer(message)) for message in ("first", "second"))
        self.assertEqual(self.successResultOf(arrivals.next()), "first")
        arrivals.finish()
        self.assertNoResult(first)
        self.assertIsNone(self.successResultOf(arrivals.next()))
        self.successResultOf(first)
        self.assertNoResult(second)
        arrivals.close()
        self.failureResultOf(second, StopConsuming)

    def test_message_put_back_is_not_consumed_and_comes_next(self):
        arrivals = Arrivals(1)
        first, second = (Deferred.fromCoroutine(arrivals.offer(message)) for message in ("first", "second"))
        self.assertEqual(self.successResultOf(arrivals.next()), "first")
        arrivals.put_back("first")
        self.assertEqual(self.successResultOf(arrivals.next()), "first")
        self.assertNoResult(first)
        arrivals.put_back("second")  # which was not given out
        self.assertEqual(self.successResultOf(arrivals.next()), "second")
        self.successResultOf(first)
        arrivals.put_back("second")
        arrivals.close()
        self.failureResultOf(second, StopConsuming)

    def test_finish_gives_none_to_waiting_caller(self):
        arrivals = Arrivals(1)
        asking = arrivals.next()
        arrivals.finish()
        self.assertIsNone(self.successResultOf(asking))

    def test_iteration_before_open_raises(self):
        self.assertRaises(NotStartedError, next, sync.Consumer("G", "127.0.0.1:1", topics="T"))
        self.assertRaises(UsageError, next, sync.Consumer("G", "127.0.0.1:1", topics="T", handler=print))
        consumer = aio.Consumer("G", "127.0.0.1:1", topics="T")
        self.assertRaises(NotStartedError, asyncio.run, anext(consumer))

    def test_finish_with_handler_is_refused(self):
        for face in (aio, sync):
            with_handler = face.Consumer("G", "127.0.0.1:1", topics="T", handler=print)
            self.assertRaises(UsageError, with_handler.finish)
            face.Consumer("G", "127.0.0.1:1", topics="T").finish()
