"""A scripted cluster whose servers fail, and a test case for its clients."""

from twisted.internet.defer import Deferred, fail

from rocketd.client.messages.message import Message
from rocketd.client.producer.producer import ProducerEngine
from rocketd.remoting.errors import RemotingSendRequestError, RemotingTimeoutError
from tests.support.client_cluster import ClientTestCase, Cluster


class FaultyCluster(Cluster):
    """Addresses in ``silent`` never answer; a pair of code and address in it does not answer that code. The next
    requests to addresses of ``losing`` lose their connections.
    """

    def __init__(self):
        super().__init__()
        self.clock = None
        self.silent = set()
        self.losing = []

    def invoke_sync(self, address, request, timeout_ms):
        if address in self.losing:
            self.losing.remove(address)
            return fail(RemotingSendRequestError(str(address)))
        if address not in self.silent and (request.code, address) not in self.silent:
            return super().invoke_sync(address, request, timeout_ms)
        self.asked.append((request.code, address, {"timeout": timeout_ms}, request))
        answer = Deferred()
        late = self.clock.callLater(timeout_ms / 1000, lambda: answer.errback(RemotingTimeoutError("no answer")))
        answer.addErrback(lambda failure: (late.active() and late.cancel(), failure)[1])
        return answer


class FaultTestCase(ClientTestCase):
    cluster_type = FaultyCluster

    def setUp(self):
        super().setUp()
        self.cluster.clock = self.clock
        self.producer = ProducerEngine(self.client, "pg")
        self.result_of(self.producer.start())

    def send(self, topic="T", **arguments):
        return Deferred.fromCoroutine(self.producer.send(Message(topic, b"hello", "A"), **arguments))
