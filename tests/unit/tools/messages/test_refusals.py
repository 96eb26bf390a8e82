"""Which answers end ``rocketd consume``."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.errors import BrokerError
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.tools.messages.refusals import RefusalWatch


class RefusalWatchTests(SynchronousTestCase):
    def told(self, request, code):
        refused = []
        RefusalWatch("T", refused.append).after_response("a:10911", request, RemotingCommand.response(code, "because"))
        return refused

    def test_permanent_refusals_end_rocketd_consume(self):
        pull = RemotingCommand(RequestCode.PULL_MESSAGE, {"topic": "T"})
        beat = RemotingCommand(RequestCode.HEART_BEAT)
        for request in (pull, beat):
            (error,) = self.told(request, ResponseCode.NO_PERMISSION)
            self.assertIsInstance(error, BrokerError)
            self.assertEqual(str(error), "a:10911 answers NO_PERMISSION (16): because")
            for code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY, ResponseCode.SUBSCRIPTION_NOT_LATEST):
                self.assertEqual(self.told(request, code), [])
        for request in (
            RemotingCommand(RequestCode.PULL_MESSAGE, {"topic": "%RETRY%G"}),
            RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": "T"}),
        ):
            self.assertEqual(self.told(request, ResponseCode.NO_PERMISSION), [])
