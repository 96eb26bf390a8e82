"""rocketd.testing with the Twisted face under trial, which looks for leftovers in the reactor."""

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from rocketd.client import Consumer, Message, Producer
from rocketd.testing import Cluster


class TwistedTests(TestCase):
    timeout = 60

    def setUp(self):
        self.cluster = Cluster(topics=["T"]).start()
        self.addCleanup(self.cluster.stop)

    def test_cluster_sends_consumes_and_leaves_reactor_clean(self):
        return Deferred.fromCoroutine(self.send_and_consume())

    async def send_and_consume(self):
        options = self.cluster.client_options()
        seen = []

        async def handle(message):
            seen.append(message.body)

        async with (
            Producer("P", **options) as producer,
            Consumer("C", topics="T", begin="earliest", handler=handle, **options),
        ):
            await producer.send(Message("T", b"now"))
            await producer.send(Message("T", b"later", delay_level=5))
            await deferToThread(self.cluster.advance, 55)
            self.assertEqual(seen, [b"now"])
            await deferToThread(self.cluster.advance, 10)
        self.assertEqual(seen, [b"now", b"later"])
