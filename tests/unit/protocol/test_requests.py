"""Headers of the requests that both clients make."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.record_host import offset_message_id, physical_offset
from rocketd.common.sysflag import PULL_SUBSCRIPTION, PULL_SUSPEND, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketd.protocol.pull import everything, pull_header
from rocketd.protocol.send import send_header
from rocketd.protocol.transaction import check_answer_header, end_header
from rocketd.remoting.bodies.tables import MessageQueue, SubscriptionData
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader, write_header
from rocketd.spark.ranges import Queue

QUEUES = (MessageQueue("T", "broker-a", 3), Queue("T", "broker-a", 3))


class SendTests(SynchronousTestCase):
    def test_send_header_of_either_queue_has_apaches_short_names(self):
        for queue in QUEUES:
            header = send_header("g", "T", queue, "WAIT\x01true", born_ms=17, flag=1, sys_flag=2, max_queues=5)
            self.assertEqual(
                write_header(header),
                {
                    "a": "g", "b": "T", "c": "TBW102", "d": "5", "e": "3", "f": "2", "g": "17", "h": "1",
                    "i": "WAIT\x01true", "j": "0", "k": "false", "m": "false", "n": "broker-a",
                },
            )  # fmt: skip


class PullTests(SynchronousTestCase):
    def test_pull_header_of_no_consumer_asks_for_everything(self):
        for queue in QUEUES:
            header = pull_header("g", queue, everything("T"), 5, 32)
            self.assertEqual(
                (header.subscription, header.expression_type, header.sys_flag, header.suspend_timeout_millis),
                ("*", "TAG", PULL_SUBSCRIPTION, 0),
            )
            self.assertEqual(
                (header.topic, header.queue_id, header.bname, header.queue_offset), ("T", 3, "broker-a", 5)
            )

    def test_pull_header_without_flag_leaves_expression_out(self):
        subscription = SubscriptionData("T", "a || b", sub_version=9)
        header = pull_header("g", QUEUES[0], subscription, 5, 32, sys_flag=PULL_SUSPEND, suspend_ms=20, commit_offset=4)
        self.assertEqual((header.subscription, header.sub_version, header.commit_offset), (None, 9, 4))


class TransactionTests(SynchronousTestCase):
    def test_end_header_without_transaction_id_names_unique_key(self):
        header = end_header(
            "g", "b", TRANSACTION_COMMIT, state_offset=1, commit_log_offset=2, unique_key="K", transaction_id=None
        )
        self.assertEqual((header.msg_id, header.transaction_id, header.commit_or_rollback), ("K", "K", 8))
        self.assertFalse(header.from_transaction_check)

    def test_check_answer_header_repeats_the_question(self):
        asked = CheckTransactionStateRequestHeader(1, 2, "id", "tx")
        header = check_answer_header("g", asked, TRANSACTION_ROLLBACK, "K")
        self.assertEqual((header.tran_state_table_offset, header.commit_log_offset), (1, 2))
        self.assertEqual((header.msg_id, header.transaction_id, header.commit_or_rollback), ("K", "tx", 12))
        self.assertTrue(header.from_transaction_check)

    def test_physical_offset_of_message_id_is_read_back(self):
        for host in (bytes(8), bytes(20)):
            self.assertEqual(physical_offset(offset_message_id(host, 1 << 40)), 1 << 40)
