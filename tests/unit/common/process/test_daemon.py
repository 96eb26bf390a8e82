"""The process around a service: start, errors, signals, tuning."""

import atexit
import gc
import io
import os
import resource
import signal
import sys

import twisted.internet
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.process import daemon
from rocketd.common.process.daemon import DaemonService, tune_interpreter
from rocketd.common.process.exit_signals import exit_cleanly_on_signals


class Failing(Service):
    def __init__(self, error):
        self._error = error

    def startService(self):
        raise self._error


class FakeReactor:
    def __init__(self):
        self.stopped = 0
        self.when_running = []

    def callFromThread(self, function):
        function()

    def callWhenRunning(self, function):
        self.when_running.append(function)

    def stop(self):
        self.stopped += 1
        if self.stopped > 1:
            raise ReactorNotRunning


class LateService(Service):
    """Finds out after its start whether it may serve."""

    def __init__(self):
        self.serving = Deferred()

    def when_serving(self):
        return self.serving


class DaemonTests(SynchronousTestCase):
    hint = ""

    def setUp(self):
        self.patch(daemon, "tune_interpreter", lambda: None)
        self.patch(daemon, "exit_cleanly_on_signals", lambda reactor, hang_up: None)
        self.stderr = io.StringIO()
        self.patch(sys, "__stderr__", self.stderr)

    def start(self, service):
        DaemonService("rocketd-test", service, (OSError, ValueError), hint=self.hint).startService()

    def start_late(self):
        service = LateService()
        reactor = FakeReactor()
        self.patch(twisted.internet, "reactor", reactor)
        self.exits = []
        self.patch(atexit, "register", self.exits.append)
        self.start(service)
        return service, reactor

    def test_late_serving_failure_prints_one_line_and_exits_1(self):
        service, reactor = self.start_late()
        service.serving.errback(ValueError("another\n lives"))
        self.assertEqual((self.stderr.getvalue(), reactor.stopped), ("rocketd-test: another lives\n", 1))
        left = []
        self.patch(os, "_exit", left.append)
        for function in self.exits:
            function()
        self.assertEqual(left, [1])

    def test_late_serving_success_keeps_process(self):
        service, reactor = self.start_late()
        service.serving.callback(None)
        self.assertEqual((self.stderr.getvalue(), reactor.stopped, self.exits), ("", 0, []))

    def test_expected_error_prints_one_line_and_exits_1(self):
        for error, line in (
            (OSError("no\n  room  "), "rocketd-test: no room\n"),
            (ValueError(), "rocketd-test: builtins.ValueError\n"),
        ):
            self.stderr.truncate(0)
            self.stderr.seek(0)
            left = self.assertRaises(SystemExit, self.start, Failing(error))
            self.assertEqual((left.code, self.stderr.getvalue()), (1, line))

    def test_expected_errors_have_start_hint(self):
        self.hint = " (look there)"
        left = self.assertRaises(SystemExit, self.start, Failing(OSError("no room")))
        self.assertEqual(left.code, 1)
        service, _ = self.start_late()
        service.serving.errback(ValueError("another lives"))
        lines = ["rocketd-test: no room (look there)", "rocketd-test: another lives (look there)"]
        self.assertEqual(self.stderr.getvalue().splitlines(), lines)

    def test_unexpected_error_is_raised(self):
        self.assertRaises(KeyError, self.start, Failing(KeyError("oops")))
        self.assertEqual(self.stderr.getvalue(), "")

    def test_daemon_starts_service(self):
        service = Service()
        self.start(service)
        self.assertTrue(service.running)


class SignalTests(SynchronousTestCase):
    def test_repeated_signals_stop_reactor_once(self):
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number, handler in before.items():
            self.addCleanup(signal.signal, number, handler)
        reactor = FakeReactor()
        exit_cleanly_on_signals(reactor)
        for number in before:
            signal.raise_signal(number)
        self.assertEqual(reactor.stopped, 2)
        for number, handler in before.items():
            signal.signal(number, handler)
        (again,) = reactor.when_running
        again()
        for number, handler in before.items():
            self.assertNotEqual(signal.getsignal(number), handler)

    def test_hang_up_stops_reactor_or_calls_function_but_stays_ignored(self):
        self.addCleanup(signal.signal, signal.SIGHUP, signal.getsignal(signal.SIGHUP))
        for number in (signal.SIGTERM, signal.SIGINT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        calls = []
        for before, hang_up, stopped, called in (
            (signal.SIG_DFL, None, 1, 0),
            (signal.SIG_IGN, None, 0, 0),
            (signal.SIG_DFL, lambda: calls.append(1), 0, 1),
            (signal.SIG_IGN, lambda: calls.append(1), 0, 1),
        ):
            signal.signal(signal.SIGHUP, before)
            calls.clear()
            reactor = FakeReactor()
            exit_cleanly_on_signals(reactor, hang_up=hang_up)
            signal.raise_signal(signal.SIGHUP)
            self.assertEqual((reactor.stopped, len(calls)), (stopped, called))


class TuningTests(SynchronousTestCase):
    def test_files_and_collections(self):
        thresholds, limits = gc.get_threshold(), resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(gc.unfreeze)
        self.addCleanup(gc.set_threshold, *thresholds)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        tune_interpreter()
        self.assertGreater(gc.get_freeze_count(), 0)
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), (limits[1], limits[1]))
