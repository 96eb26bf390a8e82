"""The end of a transaction is told again to a broker that has not answered, on a fake clock."""

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from rocketd.client.errors import UnreachableError
from rocketd.client.messages.message import Message
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.transaction import END_PAUSES, STOP_SECONDS, TransactionState
from rocketd.common.sysflag import TRANSACTION_COMMIT
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import decode_messages, encode_record
from tests.support.client_cluster import HOST
from tests.support.client_faults import FaultTestCase


class TransactionEndTests(FaultTestCase):
    def setUp(self):
        super().setUp()
        self.state = TransactionState.COMMIT
        self.checked = 0
        stored = self.cluster.answer_310

        def answer_310(address, request, fields):
            response = stored(address, request, fields)
            response.ext_fields["msgId"] = "0" * 32
            return response

        self.cluster.answer_310 = answer_310
        self.cluster.answer_37 = self.cluster.answer_35
        self.transactional = ProducerEngine(self.client, "tx", transactions=self)
        self.result_of(self.transactional.start())

    async def execute(self, message, arg, transaction_id):
        self.cluster.down |= {"a:10911", "b:10911"}
        return self.state

    async def check(self, message):
        self.checked += 1
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    def send(self):
        result = self.result_of(self.transactional.send_in_transaction(Message("T", b"x")))
        self.assertEqual(len(self.ends()), 1)
        self.cluster.asked.clear()
        return result

    def ends(self):
        return [fields for _, fields in self.cluster.of(37)]

    def test_broker_that_returns_is_told_the_end_once(self):
        result = self.send()
        self.clock.advance(END_PAUSES[0])
        self.cluster.down.clear()
        self.cluster.asked.clear()
        self.clock.pump([1] * 60)
        (end,) = self.ends()
        self.assertEqual((end["msgId"], end["commitOrRollback"]), (result.msg_id, str(TRANSACTION_COMMIT)))
        self.assertEqual(self.transactional._transactions._ending, {})

    def test_broker_that_stays_away_is_told_a_limited_number_of_times(self):
        self.send()
        self.clock.pump([0.5] * 200)
        self.assertEqual(len(self.ends()), len(END_PAUSES))
        self.assertLess(sum(END_PAUSES), 60)  # the first check of a broker, which is enough then
        self.assertEqual(self.transactional._transactions._ending, {})

    def check_by_broker(self, unique_key):
        half = MessageInner("T", 0, 0, 0, 0, HOST, 0, 0, b"x", b"UNIQ_KEY\x01" + unique_key.encode(), 0)
        (record,) = decode_messages(encode_record(half, HOST, 5, 100, 0))
        asked = CheckTransactionStateRequestHeader(tran_state_table_offset=5, commit_log_offset=100)
        self.transactional.check_transaction("a:10911", asked, record)

    def test_check_of_broker_is_answered_with_the_decision_and_nothing_else_told(self):
        for decision in (TransactionState.COMMIT, TransactionState.ROLLBACK):
            for answer in (decision, TransactionState.UNKNOWN, ValueError("no such order")):
                with self.subTest(decision=decision, answer=answer):
                    self.setUp()
                    self.state = decision
                    result = self.send()
                    self.cluster.down.clear()
                    self.state = answer
                    self.check_by_broker(result.msg_id)
                    self.clock.pump([1] * 60)
                    (end,) = self.ends()
                    self.assertEqual(end["fromTransactionCheck"], "true")
                    self.assertEqual(end["commitOrRollback"], str(decision.value))
                    self.assertEqual((self.checked, self.transactional._transactions._ending), (0, {}))

    def end_at(self, accident):
        """Send, with an accident of both brokers before the end, and return the result."""

        async def execute(message, arg, transaction_id):
            accident()
            return self.state

        self.execute = execute
        self.transactional = ProducerEngine(self.client, "tx2", transactions=self)
        self.result_of(self.transactional.start())
        result = self.result_of(self.transactional.send_in_transaction(Message("T", b"x")))
        self.assertEqual(result.state, self.state)
        return result

    def test_connection_lost_before_the_answer_is_told_again_once(self):
        result = self.end_at(lambda: self.cluster.losing.extend(["a:10911", "b:10911"]))
        self.assertEqual(self.ends(), [])  # the scripted cluster has lost it
        self.cluster.losing.clear()
        self.clock.pump([0.5] * 200)
        (end,) = self.ends()
        self.assertEqual((end["msgId"], end["commitOrRollback"]), (result.msg_id, str(TRANSACTION_COMMIT)))
        self.assertEqual(self.transactional._transactions._ending, {})

    def test_broker_without_address_is_warned_of_once(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.end_at(lambda: self.patch(self.client.routes, "address_of", lambda broker_name: None))
        warnings = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("was not told yet", warnings[0])

    def test_busy_broker_is_told_again_until_it_takes_the_end(self):
        refusals = {(37, address): 2 for address in ("a:10911", "b:10911")}
        self.end_at(lambda: self.cluster.refusals.update(refusals))
        self.clock.advance(END_PAUSES[0])
        self.assertEqual(len(self.ends()), 2)
        self.cluster.refusals.clear()
        self.clock.pump([0.5] * 200)
        self.assertEqual(len(self.ends()), 3)

    def test_refused_end_is_not_repeated(self):
        refusals = {(37, address): 1 for address in ("a:10911", "b:10911")}
        self.end_at(lambda: self.cluster.refusals.update(refusals))
        self.clock.pump([0.5] * 200)
        self.assertEqual(len(self.ends()), 1)

    def test_slow_broker_is_not_told_again(self):
        self.end_at(lambda: self.cluster.silent.update({(37, "a:10911"), (37, "b:10911")}))
        self.clock.pump([0.5] * 200)
        self.assertEqual(len(self.ends()), 1)
        self.assertEqual(self.transactional._transactions._ending, {})

    def test_stop_waits_for_the_answer_to_an_end(self):
        self.end_at(lambda: self.cluster.silent.update({(37, "a:10911"), (37, "b:10911")}))
        stopping = Deferred.fromCoroutine(self.transactional.stop())
        self.clock.advance(STOP_SECONDS - 0.1)
        self.assertNoResult(stopping)
        self.clock.advance(0.2)
        self.successResultOf(stopping)

    def test_check_answered_in_vain_leaves_the_end_to_be_told_later(self):
        result = self.send()
        self.state = TransactionState.UNKNOWN
        self.check_by_broker(result.msg_id)
        self.flushLoggedErrors(UnreachableError)
        self.cluster.down.clear()
        self.cluster.asked.clear()
        self.clock.pump([1] * 60)
        (end,) = self.ends()
        self.assertEqual((end["msgId"], end["commitOrRollback"]), (result.msg_id, str(TRANSACTION_COMMIT)))

    def test_check_of_other_transaction_asks_the_listener(self):
        result = self.send()
        self.cluster.down.clear()
        self.state = TransactionState.ROLLBACK
        self.check_by_broker("0" * len(result.msg_id))
        (end,) = self.ends()
        self.assertEqual((self.checked, end["commitOrRollback"]), (1, str(TransactionState.ROLLBACK.value)))

    def test_open_state_is_not_told_again(self):
        self.state = TransactionState.UNKNOWN
        self.send()
        self.clock.pump([1] * 30)
        self.assertEqual(self.ends(), [])

    def test_stop_tells_nothing_more(self):
        self.send()
        self.end_of(Deferred.fromCoroutine(self.transactional.stop()))
        self.clock.pump([1] * 30)
        self.assertEqual(self.ends(), [])
