"""Results of sends: the status has a name, and the result of a transaction is a result of a send."""

import pickle

from rocketd.client import SendResult, SendStatus, TransactionSendResult, TransactionState
from rocketd.client.messages.message import Message
from rocketd.client.producer.producer import ProducerEngine
from rocketd.protocol.send import SEND_STATUS, STORED
from rocketd.remoting.bodies.tables import MessageQueue
from tests.support.client_faults import FaultTestCase


class SendStatusTests(FaultTestCase):
    def test_status_is_number_with_name(self):
        result = self.successResultOf(self.send())
        self.assertIs(result.status, SendStatus.SEND_OK)
        self.assertEqual((result.status, str(result.status)), (0, "0"))
        self.assertIn("SendStatus.SEND_OK", repr(result))

    def test_every_code_of_stored_messages_has_status(self):
        self.assertEqual([SEND_STATUS[code] for code in STORED], list(SendStatus))
        self.assertEqual([code.name for code in STORED[1:]], [status.name for status in list(SendStatus)[1:]])

    def test_transaction_result_is_send_result(self):
        class Listener:
            async def execute(self, message, arg, transaction_id):
                return TransactionState.COMMIT

            async def check(self, message):
                return TransactionState.COMMIT

        answer = self.cluster.answer_310

        def stored(address, request, fields):
            response = answer(address, request, fields)
            response.ext_fields["msgId"] = "0" * 32
            return response

        self.cluster.answer_310 = stored
        self.cluster.answer_37 = self.cluster.answer_35
        producer = ProducerEngine(self.client, "tx", transactions=Listener())
        self.result_of(producer.start())
        result = self.result_of(producer.send_in_transaction(Message("T", b"x")))
        self.assertIsInstance(result, SendResult)
        self.assertEqual((result.state, result.status), (TransactionState.COMMIT, SendStatus.SEND_OK))
        self.assertEqual(len(result.msg_id), 32)
        self.assertIs(type(result.send_result), SendResult)
        self.assertEqual(result.send_result.msg_id, result.msg_id)

    def test_transaction_result_can_be_pickled(self):
        queue = MessageQueue("T", "a", 0)
        result = TransactionSendResult(SendStatus.SEND_OK, "k", "o", queue, 1, state=TransactionState.ROLLBACK)
        self.assertEqual(pickle.loads(pickle.dumps(result)), result)
