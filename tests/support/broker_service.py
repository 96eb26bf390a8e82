"""A test case for the broker service, on a reactor and a disk controlled by the test."""

import os

from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import Broker
from rocketd.store.base.filesystem import RealFileSystem


class InlineThreads:
    def callInThreadWithCallback(self, on_result, function, *args, **kwargs):
        try:
            result = function(*args, **kwargs)
        except BaseException:
            on_result(False, Failure())
        else:
            on_result(True, result)


class FakeReactor(MemoryReactorClock):
    def callFromThread(self, function, *args, **kwargs):
        self.callLater(0, function, *args, **kwargs)

    def getThreadPool(self):
        return InlineThreads()


class FailingFileSystem(RealFileSystem):
    full = False

    def write_file(self, path, data):
        if self.full and path.endswith("consumerOffset.json.tmp"):
            raise OSError(28, "No space left on device")
        super().write_file(path, data)


class BrokerTestCase(SynchronousTestCase):
    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())
        self.reactor = FakeReactor()
        self.disk = FailingFileSystem()
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def make(self, advertised=None, **options):
        given = {
            "storePathRootDir": self.directory,
            "listenPort": "20911",
            "brokerName": "broker-a",
            "brokerIP1": "10.0.0.1",
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": "6000",
            "maxHashSlotNum": "100",
            "maxIndexNum": "400",
            "diskMaxUsedSpaceRatio": "99",
            "tls.server.mode": "disabled",
            **options,
        }
        settings, _ = BrokerSettings.load(None, list(given.items()))
        return Broker(settings, self.reactor, self.disk, lambda: 1_800_000_000_000, advertised)

    def start(self, *args, **options):
        broker = self.make(*args, **options)
        broker.startService()
        return broker

    def stop(self, broker):
        result = broker.stopService()
        for _ in range(20):
            self.reactor.advance(0.5)  # name servers are given some time
        self.successResultOf(result)

    def lines(self, level=LogLevel.info):
        return [formatEvent(event) for event in self.events if event["log_level"] == level]
