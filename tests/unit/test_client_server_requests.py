"""In which thread a client decodes the requests of brokers."""

from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.instance.server_requests import LONG_BODY, ServerRequests
from rocketd.remoting.admin_bodies import ResetOffsetBody
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand


class FakeInstance:
    """Stands for a client instance, its remoting client, its invoke layer and its consumer."""

    def __init__(self):
        self.remoting = self.invoke = self
        self.consumers = {"cg": self}
        self.processors = {}
        self.executed = []
        self.reset = []

    def register_processor(self, code, processor):
        self.processors[code] = processor

    def in_executor(self, function, *arguments):
        self.executed.append(function)
        return maybeDeferred(function, *arguments)

    def reset_offsets(self, topic, table):
        self.reset.append((topic, table))


class ServerRequestsTests(SynchronousTestCase):
    def setUp(self):
        self.instance = FakeInstance()
        ServerRequests(self.instance).register()

    def reset(self, queues, group="cg"):
        table = {(("brokerName", "broker-a"), ("queueId", number), ("topic", "T")): number for number in range(queues)}
        body = ResetOffsetBody(offset_table=table).encode()
        request = RemotingCommand(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            {"topic": "T", "group": group, "timestamp": "0", "isForce": "true"},
        )
        request.body = body
        self.instance.processors[request.code](None, request)
        return len(body)

    def test_long_body_is_decoded_in_the_callback_executor_and_taken_by_the_consumer(self):
        self.assertGreater(self.reset(5000), LONG_BODY)
        self.assertEqual(self.instance.executed, [ResetOffsetBody.decode])
        ((topic, table),) = self.instance.reset
        self.assertEqual((topic, len(table)), ("T", 5000))

    def test_short_body_is_decoded_at_once(self):
        self.assertLess(self.reset(5), LONG_BODY)
        self.assertEqual((self.instance.executed, len(self.instance.reset)), ([], 1))

    def test_body_for_a_group_that_is_not_here_is_not_decoded(self):
        self.reset(5000, group="other")
        self.assertEqual((self.instance.executed, self.instance.reset), ([], []))
