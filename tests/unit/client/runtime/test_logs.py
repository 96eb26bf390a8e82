"""Where rocketd's events go while no log of Twisted's has begun, and after one has."""

import io
import logging
import sys
import warnings

from twisted.logger import Logger, LogPublisher
from twisted.logger._global import LogBeginner
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.runtime.logs import LoggingBridge


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


class Streams:
    stdout = sys.stdout
    stderr = sys.stderr


class BridgeTests(SynchronousTestCase):
    def setUp(self):
        self.stderr = io.StringIO()
        self.publisher = LogPublisher()
        self.beginner = LogBeginner(self.publisher, self.stderr, Streams(), warnings)
        self.addCleanup(setattr, warnings, "showwarning", warnings.showwarning)
        self.bridge = LoggingBridge(self.publisher, self.beginner)
        self.handler = Records()
        self.target = logging.getLogger("rocketd.test_of_logs")
        self.target.addHandler(self.handler)
        self.target.propagate = False
        self.target.setLevel(logging.INFO)
        self.addCleanup(self.target.removeHandler, self.handler)
        self.log = Logger("rocketd.test_of_logs.part", observer=self.publisher)

    def begin(self):
        events = []
        self.beginner.beginLoggingTo([events.append], redirectStandardIO=False)
        return events

    def test_event_goes_to_the_logger_of_the_same_name(self):
        self.bridge.install()
        self.log.warn("{address}: gone, 100 %", address="127.0.0.1:1")
        (record,) = self.handler.records
        self.assertEqual(
            (record.name, record.levelno, record.getMessage(), record.funcName, record.filename),
            (
                "rocketd.test_of_logs.part",
                logging.WARNING,
                "127.0.0.1:1: gone, 100 %",
                "test_event_goes_to_the_logger_of_the_same_name",
                "test_logs.py",
            ),
        )

    def test_event_below_logger_level_is_dropped(self):
        self.bridge.install()
        self.log.debug("x")
        self.assertEqual(self.handler.records, [])

    def test_failure_has_its_traceback_and_appears_once(self):
        self.bridge.install()
        try:
            raise KeyError("one")
        except KeyError:
            self.log.failure("handler failed")
        (record,) = self.handler.records
        self.assertEqual((record.levelno, record.exc_info[0]), (logging.CRITICAL, KeyError))
        self.assertEqual(record.exc_info[2].tb_frame.f_code.co_name, "test_failure_has_its_traceback_and_appears_once")
        self.assertEqual(self.stderr.getvalue(), "")
        self.assertEqual(self.begin(), [])

    def test_events_of_other_namespaces_are_not_bridged(self):
        self.bridge.install()
        Logger("elsewhere", observer=self.publisher).critical("of others")
        Logger("rocketdish", observer=self.publisher).info("not ours")
        self.assertEqual(self.handler.records, [])
        self.assertEqual(self.stderr.getvalue(), "of others\n")
        self.assertEqual([event["log_format"] for event in self.begin()], ["of others", "not ours"])

    def test_log_begun_after_installation_gets_later_events(self):
        self.bridge.install()
        events = self.begin()
        self.log.warn("later")
        self.assertEqual(self.handler.records, [])
        self.assertEqual([event["log_format"] for event in events], ["later"])

    def test_log_begun_before_installation_gets_all_events(self):
        events = self.begin()
        self.bridge.install()
        self.log.warn("x")
        self.assertEqual(self.handler.records, [])
        self.assertEqual(len(events), 1)

    def test_second_installation_does_nothing_and_it_can_be_undone(self):
        self.bridge.install()
        self.bridge.install()
        self.log.warn("once")
        self.assertEqual(len(self.handler.records), 1)
        self.bridge.uninstall()
        self.log.warn("buffered")
        self.assertEqual(len(self.handler.records), 1)
        self.assertEqual([event["log_format"] for event in self.begin()], ["buffered"])
