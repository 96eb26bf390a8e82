"""A test case for brokers that ask producers how their transactions ended."""

from tests.support.transactions import TransactionTestCase

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"


class CheckTestCase(TransactionTestCase):
    def setUp(self):
        super().setUp()
        self.producer = self.join()

    def progress(self):
        """Publish and return how far half and op messages are dealt with."""
        self.broker.transactions.publish()
        return [self.broker.offsets.query(GROUP, topic, 0) for topic in (HALF, OP)]

    def asked(self, seconds=60.0):
        return [message.body for message in self.check(seconds)]
