"""The log line about waiting requests."""

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.watermark import WaterMarks
from rocketd.common.event_loop.loop_lag import LagHistogram
from rocketd.remoting.serving.pools import Job, Pool
from tests.support.broker import RecordingConnection


class WaterMarkTests(SynchronousTestCase):
    def lines(self):
        lines = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        return lines

    def test_line_has_delays_of_the_minute_for_each_event_loop(self):
        lags = {"reactor": LagHistogram(), "lane send": LagHistogram()}
        lags["lane send"].add(0.25)
        lines = self.lines()
        marks = WaterMarks(dict, lambda: 0, lambda: 0, lambda: lags)
        marks.log()
        marks.log()
        first, second = [formatEvent(line) for line in lines]
        self.assertIn("; event loops were late by: reactor p50 0 ", first)
        self.assertIn("lane send p50 250 p99 250 p99.9 250 longest 250 ms", first)
        self.assertIn("lane send p50 0 ", second)

    def test_line_has_requests_oldest_wait_and_dispatch(self):
        pool = Pool("send", call_from_thread=lambda *_: None)
        pool.submit(Job(None, RecordingConnection(), [(0, b"header", b"")], 1000))
        lines = self.lines()
        WaterMarks(lambda: {"send": pool}, lambda: 77, lambda: 1250).log()
        self.assertEqual(
            [formatEvent(line) for line in lines],
            ["requests that wait: send 1 (oldest 250 ms); dispatch is 77 bytes behind the log"],
        )
