"""In which thread a client decodes the requests of brokers."""

from types import SimpleNamespace

from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.instance.server_requests import LONG_BODY, ServerRequests
from rocketd.remoting.bodies.admin import ResetOffsetBody
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import encode_record
from tests.support.client_cluster import HOST


class FakeInstance:
    """Stands for a client instance, its remoting client, its invoke layer and its consumer."""

    def __init__(self):
        self.remoting = self.invoke = self
        self.consumers = {"cg": self}
        self.producers = {"pg": self}
        self.processors = {}
        self.executed = []
        self.reset = []
        self.checked = []

    def register_processor(self, code, processor):
        self.processors[code] = processor

    def in_executor(self, function, *arguments):
        self.executed.append(function)
        return maybeDeferred(function, *arguments)

    def reset_offsets(self, topic, table):
        self.reset.append((topic, table))

    def check_transaction(self, address, header, record):
        self.checked.append((address, header.tran_state_table_offset, len(record.body)))


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

    def test_long_reset_body_is_decoded_in_callback_executor(self):
        self.assertGreater(self.reset(5000), LONG_BODY)
        self.assertEqual(self.instance.executed, [ResetOffsetBody.decode])
        ((topic, table),) = self.instance.reset
        self.assertEqual((topic, len(table)), ("T", 5000))

    def check(self, size):
        half = MessageInner("T", 0, 0, 0, 0, HOST, 0, 0, bytes(size), b"PGROUP\x01pg", 0)
        request = RemotingCommand(
            RequestCode.CHECK_TRANSACTION_STATE, {"tranStateTableOffset": "5", "commitLogOffset": "100"}
        )
        request.body = encode_record(half, HOST, 5, 100, 0)
        self.instance.processors[request.code](SimpleNamespace(address="a:10911"), request)

    def test_long_transaction_check_is_decoded_in_callback_executor(self):
        self.check(LONG_BODY)
        self.assertEqual(len(self.instance.executed), 1)
        self.assertEqual(self.instance.checked, [("a:10911", 5, LONG_BODY)])

    def test_short_transaction_check_is_decoded_at_once(self):
        self.check(5)
        self.assertEqual((self.instance.executed, self.instance.checked), ([], [("a:10911", 5, 5)]))

    def test_short_reset_body_is_decoded_at_once(self):
        self.assertLess(self.reset(5), LONG_BODY)
        self.assertEqual((self.instance.executed, len(self.instance.reset)), ([], 1))

    def test_reset_body_for_unknown_group_is_not_decoded(self):
        self.reset(5000, group="other")
        self.assertEqual((self.instance.executed, self.instance.reset), ([], []))
