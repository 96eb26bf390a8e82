"""What a process does around its service."""

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

from rocketd.common import daemon
from rocketd.common.daemon import DaemonService, exit_cleanly_on_signals, tune_interpreter


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
    def setUp(self):
        self.patch(daemon, "tune_interpreter", lambda: None)
        self.patch(daemon, "exit_cleanly_on_signals", lambda reactor: None)
        self.stderr = io.StringIO()
        self.patch(sys, "__stderr__", self.stderr)

    def start(self, service):
        DaemonService("rocketd-test", service, (OSError, ValueError)).startService()

    def start_late(self):
        service = LateService()
        reactor = FakeReactor()
        self.patch(twisted.internet, "reactor", reactor)
        self.exits = []
        self.patch(atexit, "register", self.exits.append)
        self.start(service)
        return service, reactor

    def test_service_that_may_not_serve_later_is_one_line_and_status_1(self):
        service, reactor = self.start_late()
        service.serving.errback(ValueError("another\n lives"))
        self.assertEqual((self.stderr.getvalue(), reactor.stopped), ("rocketd-test: another lives\n", 1))
        left = []
        self.patch(os, "_exit", left.append)
        for function in self.exits:
            function()
        self.assertEqual(left, [1])

    def test_service_that_serves_later_ends_nothing(self):
        service, reactor = self.start_late()
        service.serving.callback(None)
        self.assertEqual((self.stderr.getvalue(), reactor.stopped, self.exits), ("", 0, []))

    def test_an_expected_error_is_one_line_and_status_1(self):
        for error, line in (
            (OSError("no\n  room  "), "rocketd-test: no room\n"),
            (ValueError(), "rocketd-test: builtins.ValueError\n"),
        ):
            self.stderr.truncate(0)
            self.stderr.seek(0)
            left = self.assertRaises(SystemExit, self.start, Failing(error))
            self.assertEqual((left.code, self.stderr.getvalue()), (1, line))

    def test_any_other_error_is_a_fault_to_be_seen(self):
        self.assertRaises(KeyError, self.start, Failing(KeyError("oops")))
        self.assertEqual(self.stderr.getvalue(), "")

    def test_the_service_runs(self):
        service = Service()
        self.start(service)
        self.assertTrue(service.running)


class SignalTests(SynchronousTestCase):
    def test_stops_once_however_often_it_is_asked(self):
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


class TuningTests(SynchronousTestCase):
    def test_files_and_collections(self):
        thresholds, limits = gc.get_threshold(), resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(gc.unfreeze)
        self.addCleanup(gc.set_threshold, *thresholds)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        tune_interpreter()
        self.assertGreater(gc.get_freeze_count(), 0)
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), (limits[1], limits[1]))
