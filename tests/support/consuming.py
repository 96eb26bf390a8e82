"""A test case for consumers of a cluster of two brokers, one of them with the messages."""

from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.messages.codec import BYTES
from tests.support.client_cluster import ClientTestCase

ORDERS = ("none", "queue", "key")


class ConsumingTestCase(ClientTestCase):
    """Has a cluster of two brokers, one of them with the messages; ``lines`` are log lines of warnings and errors."""

    def setUp(self):
        super().setUp()
        self.cluster.brokers.remove("b")
        self.lines = []

        def observe(event):
            if event["log_level"].name in ("warn", "error", "critical"):
                self.lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def start(self, listener, codec=BYTES, group="cg", **options):
        consumer = PushConsumerEngine(
            self.client, group, listener, options=ConsumerOptions(begin="earliest", **options), codec=codec
        )
        consumer.subscribe("T")
        self.result_of(consumer.start())
        return consumer

    def deliver(self, *bodies, begin=0, keys=None):
        """Answer the waiting pull with these bodies."""
        keys = keys or [""] * len(bodies)
        self.cluster.deliver(
            "a:10911", [(body, f"KEYS\x01{key}") for body, key in zip(bodies, keys, strict=True)], begin
        )

    def stored(self):
        """The offset of the group."""
        self.clock.advance(5)
        return self.cluster.offsets["a:10911", "T"]

    def given_back(self):
        return [int(fields["offset"]) - 100 for _, fields in self.cluster.of(36)]
