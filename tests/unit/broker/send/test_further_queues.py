"""Further queues of half and delayed messages: allowed names, and ends of transactions with a failing part."""

from rocketd.store.format.message import PutResult, PutStatus
from tests.support.transactions import ROLLBACK, TransactionTestCase

OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class SendTests(TransactionTestCase):
    options = {"enableLmq": "true", "enableMultiDispatch": "true"}

    def test_send_to_other_than_light_queues_is_refused(self):
        for name in ("rmq_sys_wheel_timer", OP, "T", "%LMQ%a,Other", "%LMQ%a/b"):
            for kind in (
                {},
                {"TRAN_MSG": "false", "DELAY": "1"},
                {"TRAN_MSG": "false", "TIMER_DELAY_SEC": "1"},
                {"TRAN_MSG": "false"},
            ):
                answer = self.send(INNER_MULTI_DISPATCH=name, sys_flag=0, **kind)
                self.assertEqual(answer.code, 13, (name, kind))
                self.assertIn("%LMQ%", answer.remark)
        self.assertEqual(self.broker.store.max_physical_offset(), 0)
        self.assertEqual(self.send(INNER_MULTI_DISPATCH="%LMQ%a").code, 0)

    def test_disabled_multi_dispatch_ignores_property(self):
        self.options = {}
        self.restart()
        self.assertEqual(self.send(INNER_MULTI_DISPATCH="Other", TRAN_MSG="false", sys_flag=0).code, 0)
        self.assertEqual(self.broker.store.queue_keys(), [("T", 2)])


class EndTests(TransactionTestCase):
    options = {"enableLmq": "true", "enableMultiDispatch": "true"}

    def fail_second_put(self):
        good = self.broker.store.put_messages
        calls = []

        def put(messages):
            calls.append(messages)
            if len(calls) == 2:
                return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE, cause="full")] * len(messages)
            return good(messages)

        self.broker.store.put_messages = put

    def test_message_with_failed_mark_is_not_stored_again(self):
        half = self.half(b"1", INNER_MULTI_DISPATCH="%LMQ%a")
        self.fail_second_put()
        self.assertEqual(self.end(half).code, 14)
        self.assertEqual((self.bodies(), self.read(OP)), ([b"1"], []))
        self.assertEqual(self.end(half).code, 0)
        self.assertEqual((self.bodies(), [op.body for op in self.read(OP)]), ([b"1"], [b"0"]))
        self.assertEqual([message.body for message in self.read("%LMQ%a")], [b"1"])

    def test_too_many_light_queues_do_not_prevent_commit(self):
        self.broker.settings.store.max_lmq_consume_queue_num = 0
        for name in "ab":
            self.assertEqual(self.end(self.half(name.encode(), INNER_MULTI_DISPATCH=f"%LMQ%{name}")).code, 0)
        self.assertEqual((self.bodies(), len(self.read(OP))), ([b"a", b"b"], 2))
        self.assertEqual([len(self.read(f"%LMQ%{name}")) for name in "ab"], [1, 0])

    def test_failed_message_is_stored_by_next_end(self):
        half = self.half(b"1", INNER_MULTI_DISPATCH="%LMQ%a")
        good = self.broker.store.put_messages
        self.broker.store.put_messages = lambda messages: [PutResult(PutStatus.SERVICE_NOT_AVAILABLE)] * len(messages)
        self.assertEqual(self.end(half).code, 14)
        self.broker.store.put_messages = good
        self.assertEqual(self.end(half).code, 0)
        self.assertEqual((self.bodies(), len(self.read(OP))), ([b"1"], 1))

    def test_missing_mark_may_be_stored_by_rollback(self):
        half = self.half(b"1", INNER_MULTI_DISPATCH="%LMQ%a")
        self.fail_second_put()
        self.end(half)
        self.assertEqual(self.end(half, ROLLBACK).code, 0)
        self.assertEqual((self.bodies(), len(self.read(OP))), ([b"1"], 1))
