"""Sends while brokers cannot be reached: they pause and try again until their timeout, on a fake clock."""

from twisted.internet.defer import CancelledError, Deferred

from rocketd.client.errors import BrokerUnreachableError, ConnectionLostError, UnreachableError
from rocketd.client.messages.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.sender import FIRST_PAUSE_SECONDS, MAX_ATTEMPTS
from rocketd.remoting.bodies.tables import MessageQueue
from tests.support.client_faults import FaultTestCase

BOTH = {"a:10911", "b:10911"}


class BackoffTests(FaultTestCase):
    def setUp(self):
        super().setUp()
        self.result_of(self.producer.publish_queues("T"))
        self.cluster.down |= BOTH

    def sends(self):
        return len(self.cluster.of(310))

    def pump(self, seconds):
        self.clock.pump([0.01] * round(seconds * 100))

    def test_broker_back_within_timeout_gets_message(self):
        sending = self.send()
        self.pump(2.5)
        self.assertNoResult(sending)
        self.cluster.down.discard("b:10911")
        self.pump(0.4)
        self.assertEqual(self.successResultOf(sending).queue.broker_name, "b")

    def test_pauses_grow_and_each_round_tries_every_broker(self):
        sending = self.send()
        self.assertEqual(self.sends(), 2)
        self.pump(FIRST_PAUSE_SECONDS - 0.01)
        self.assertEqual(self.sends(), 2)
        self.pump(0.02)
        self.assertEqual(self.sends(), 4)
        self.pump(2 * FIRST_PAUSE_SECONDS + 0.01)
        self.assertEqual(self.sends(), 6)
        self.pump(3)
        self.assertLess(self.sends(), 30)
        self.failureResultOf(sending, UnreachableError)

    def test_send_fails_within_timeout_and_names_its_tries(self):
        sending = self.send(timeout=1)
        self.pump(1)
        error = self.failureResultOf(sending, UnreachableError).value
        self.assertIn("cannot be reached from here", str(error))
        self.assertEqual({attempt.broker for attempt in error.attempts}, {"a", "b"})
        self.assertGreater(len(error.attempts), 4)
        self.assertRegex(
            str(error), r"\(\d+ tries: [ab] \d times: UnreachableError: .*; [ab] \d times: UnreachableError: "
        )
        count = self.sends()
        self.pump(5)
        self.assertEqual(self.sends(), count)

    def test_long_send_lists_limited_number_of_tries(self):
        sending = self.send(timeout=60)
        self.clock.pump([0.1] * 600)
        self.assertEqual(len(self.failureResultOf(sending, UnreachableError).value.attempts), MAX_ATTEMPTS)

    def test_long_list_of_tries_keeps_the_one_that_may_have_stored_the_message(self):
        sending = self.send(timeout=60)
        self.clock.pump([0.1] * 100)
        self.cluster.losing = ["a:10911"]
        self.clock.pump([0.1] * 600)
        self.assertEqual(self.cluster.losing, [])
        attempts = self.failureResultOf(sending, UnreachableError).value.attempts
        self.assertEqual(len(attempts), MAX_ATTEMPTS)
        self.assertIn("ConnectionLostError", " ".join(each.outcome for each in attempts if each.may_be_stored))

    def test_send_to_named_queue_waits_for_its_broker(self):
        sending = self.send(queue=MessageQueue("T", "a", 0))
        self.cluster.down.discard("b:10911")
        self.pump(1)
        self.assertNoResult(sending)
        self.cluster.down.clear()
        self.pump(1)
        self.assertEqual(self.successResultOf(sending).queue.broker_name, "a")

    def test_lost_connection_counts_as_try(self):
        """Such a message may be stored, so it is not repeated without a limit."""
        self.cluster.down.clear()
        self.cluster.losing = ["a:10911", "b:10911"] * 10
        self.failureResultOf(self.send(), ConnectionLostError)
        self.assertEqual(len(self.cluster.losing), 20 - 3)

    def test_without_retries_send_fails_at_once(self):
        producer = ProducerEngine(self.client, "once", options=ProducerOptions(retries=0))
        self.result_of(producer.start())
        self.failure_of(producer.send(Message("T", b"x")), UnreachableError)
        self.assertEqual(self.sends(), 1)

    def test_oneway_send_fails_at_once(self):
        self.failure_of(self.producer.send_oneway(Message("T", b"x")), UnreachableError)

    def test_stop_ends_sends_that_pause(self):
        sending = self.send()
        self.pump(0.3)
        self.result_of(self.producer.stop())
        self.failureResultOf(sending, UnreachableError)

    def test_cancelled_send_pauses_no_more(self):
        sending = self.send()
        self.pump(0.3)
        sending.cancel()
        self.failureResultOf(sending, CancelledError)
        count = self.sends()
        self.pump(3)
        self.assertEqual(self.sends(), count)

    def test_new_address_of_broker_is_used(self):
        self.cluster.down = {"a:10911", "b:10911"}
        sending = self.send()
        data = self.cluster.broker_data()
        for broker in data:
            broker.broker_addrs[0] = f"{broker.broker_name}:20911"
        self.cluster.broker_data = lambda: data
        self.pump(1)
        self.assertTrue(self.successResultOf(sending).msg_id)
        self.assertEqual(self.cluster.of(310)[-1][0][2:], "20911")

    def test_broker_that_left_the_route_is_not_waited_for(self):
        sending = Deferred.fromCoroutine(self.producer.send(Message("T", b"x"), queue=MessageQueue("T", "gone", 0)))
        self.failureResultOf(sending, BrokerUnreachableError)
