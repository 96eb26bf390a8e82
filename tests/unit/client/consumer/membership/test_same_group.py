"""Consumers of one group in one process that subscribe to different things."""

from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.instance import registry
from rocketd.client.settings.config import ClientConfig
from tests.support.client_cluster import ClientTestCase


class SameGroupTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.cluster.topics.add("U")
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def start(self, wanted, namesrv="ns:9876", group="cg"):
        """Start a consumer on a new instance."""
        config = ClientConfig(namesrv=namesrv, client_ip="10.0.0.9")
        instance = registry.acquire(self.clock, config, "consumer", group)
        instance.remoting = self.cluster
        instance.routes._ask = self.client.routes._ask
        consumer = PushConsumerEngine(instance, group, print)
        for topic, tags in wanted.items():
            consumer.subscribe(topic, tags)
        starting = Deferred.fromCoroutine(consumer.start())
        self.addCleanup(lambda: self.end_of(registry.release(instance, "consumer", group)))
        self.addCleanup(lambda: self.end_of(consumer.stop()))
        self.successResultOf(starting)

    def warnings(self):
        texts = [formatEvent(event) for event in self.events]
        return [text for text in texts if "have different subscriptions" in text]

    def test_both_subscriptions_are_named_in_one_warning(self):
        self.start({"T": "TagA || TagB"})
        self.start({"T": "TagA", "U": None})
        (text,) = self.warnings()
        self.assertIn("group cg in this process", text)
        self.assertIn("one to T (TagA), U (*), one to T (TagA || TagB):", text)

    def test_same_subscriptions_or_other_groups_give_no_warning(self):
        self.start({"T": "TagA", "U": None})
        self.start({"U": None, "T": "TagA"})
        self.start({"T": None}, group="cg2")
        self.start({"T": None}, namesrv="elsewhere:9876")
        self.assertEqual(self.warnings(), [])
