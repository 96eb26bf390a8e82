"""The line about what waits."""

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.testing import RecordingConnection
from rocketd.broker.watermark import WaterMarks
from rocketd.remoting.pools import Job, Pool


class WaterMarkTests(SynchronousTestCase):
    def test_line_has_requests_oldest_wait_and_dispatch(self):
        pool = Pool("send", call_from_thread=lambda *_: None)
        pool.submit(Job(None, RecordingConnection(), [(0, b"header", b"")], 1000))
        lines = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        WaterMarks(lambda: {"send": pool}, lambda: 77, lambda: 1250).log()
        self.assertEqual(
            [formatEvent(line) for line in lines],
            ["requests that wait: send 1 (oldest 250 ms); dispatch is 77 bytes behind the log"],
        )
