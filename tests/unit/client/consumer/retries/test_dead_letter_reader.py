"""Dead letters of the Python client carry the reason, on a fake clock."""

from twisted.internet.defer import fail

from rocketd.client.consumer.retries.dead_letter_reason import MAX_REASON, reason_properties
from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import IllegalMessageError
from rocketd.common.message_properties import decode_properties
from rocketd.remoting.errors import RemotingConnectError, RemotingSendRequestError, RemotingTimeoutError
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.consuming import ConsumingTestCase

ERROR_NAME = "tests.unit.client.consumer.retries.test_dead_letter_reader.OrderError"


class OrderError(Exception):
    """An error of an application."""


class UnprintableError(Exception):
    def __str__(self):
        raise KeyError


class DeadLetterTests(ConsumingTestCase):
    def setUp(self):
        super().setUp()
        self.cluster.topics.add("%RETRY%cg")
        self.cluster.reconsume_times = 2

    def consume(self, error, **options):
        async def handler(message):
            raise error

        self.start(handler, **options)
        self.deliver(b"one", keys=["A17"])

    def sent(self):
        ((address, fields),) = self.cluster.of(310)
        properties = decode_properties(fields["i"])
        return address, fields, {name: value for name, value in properties.items() if name.startswith("DEAD_LETTER")}

    def test_last_try_sends_dead_letter_with_reason(self):
        for order in ("none", "key", "queue"):
            with self.subTest(order=order):
                self.setUp()
                self.consume(OrderError("no such order\nof that name"), order=order, max_reconsume_times=2)
                address, fields, reason = self.sent()
                self.assertEqual((address, fields["b"]), ("a:10911", "%RETRY%cg"))
                self.assertEqual((fields["j"], fields["l"]), ("3", "3"))  # which makes it a dead letter at once
                self.assertEqual(
                    reason,
                    {
                        "DEAD_LETTER_CONSUMER": self.client.client_id,
                        "DEAD_LETTER_ATTEMPTS": "3",
                        "DEAD_LETTER_EXCEPTION": ERROR_NAME,
                        "DEAD_LETTER_REASON": "no such order",
                    },
                )
                properties = decode_properties(fields["i"])
                self.assertEqual((properties["KEYS"], properties["RETRY_TOPIC"]), ("A17", "T"))
                self.assertNotIn("DELAY", properties)
                self.assertEqual((self.given_back(), self.stored()), ([], 1))

    def test_rejected_message_has_text_of_rejection(self):
        self.consume(Reject("an old order"))
        self.assertEqual(self.sent()[2]["DEAD_LETTER_REASON"], "an old order")

    def test_earlier_tries_are_given_back_as_ever(self):
        self.consume(OrderError())
        self.assertEqual((self.cluster.of(310), self.given_back()), ([], [0]))

    def refuse(self, code, remark):
        self.cluster.answer_310 = lambda *_: RemotingCommand.response(code, remark)
        self.consume(Reject())
        self.deliver(b"two", begin=1)
        self.assertEqual(self.given_back(), [0, 0])
        self.assertEqual([fields["delayLevel"] for _, fields in self.cluster.of(36)], ["-1", "-1"])
        return len(self.cluster.of(310))

    def test_dead_letter_without_permission_is_given_back_without_reason_from_then_on(self):
        for code, remark in (
            (16, "because"),
            (1, "org.apache.rocketmq.acl.common.AclException: No default permission for T"),
            (3, "because"),
        ):
            with self.subTest(code=code):
                self.setUp()
                self.assertEqual(self.refuse(code, remark), 1)

    def test_dead_letter_refused_for_itself_or_for_now_is_given_back_alone(self):
        for code in (13, 2, 1, 14):
            with self.subTest(code=code):
                self.setUp()
                self.assertEqual(self.refuse(code, "because"), 2)

    def test_dead_letter_perhaps_stored_is_sent_again_later_and_not_given_back(self):
        for order in ("none", "key", "queue"):
            for error in (RemotingTimeoutError, RemotingSendRequestError):
                with self.subTest(order=order, error=error):
                    self.setUp()
                    stored = self.cluster.answer_310
                    self.cluster.answer_310 = lambda *_, error=error: fail(error("no answer"))
                    self.consume(Reject("an old order"), order=order)
                    self.assertEqual((len(self.cluster.of(310)), self.given_back()), (1, []))
                    self.cluster.answer_310 = stored
                    self.clock.pump([1] * 6)
                    self.assertEqual((len(self.cluster.of(310)), self.given_back(), self.stored()), (2, [], 1))
                    properties = decode_properties(self.cluster.of(310)[1][1]["i"])
                    self.assertEqual(properties["DEAD_LETTER_REASON"], "an old order")

    def test_dead_letter_never_sent_is_given_back_at_once(self):
        self.cluster.answer_310 = lambda *_: fail(RemotingConnectError("a:10911"))
        self.consume(Reject())
        self.assertEqual((self.given_back(), self.stored()), ([0], 1))

    def test_group_without_retry_topic_gives_back(self):
        self.cluster.topics.discard("%RETRY%cg")
        self.consume(Reject())
        self.assertEqual((self.cluster.of(310), self.given_back()), ([], [0]))


class ReasonTests(ConsumingTestCase):
    def test_reason_is_one_short_printable_line(self):
        for text, reason in (
            ("a\nb", "a"),
            ("\n\n a\x01b\x02c ", "a b c"),
            ("x" * 1000, "x" * MAX_REASON),
            ("a\udc80b", "a b"),
        ):
            self.assertEqual(reason_properties(ValueError(text), "me", 1)["DEAD_LETTER_REASON"], reason)

    def test_error_without_text_has_no_reason(self):
        for error in (ValueError(), ValueError(" \n"), UnprintableError()):
            self.assertNotIn("DEAD_LETTER_REASON", reason_properties(error, "me", 1))
        self.assertEqual(set(reason_properties(None, "me", 1)), {"DEAD_LETTER_CONSUMER", "DEAD_LETTER_ATTEMPTS"})
        self.assertEqual(reason_properties(KeyError(), "me", 1)["DEAD_LETTER_EXCEPTION"], "KeyError")

    def test_own_classes_have_their_public_names(self):
        for error, name in (
            (Reject(), "rocketd.client.Reject"),
            (Retry(), "rocketd.client.Retry"),
            (IllegalMessageError("torn"), "rocketd.client.errors.IllegalMessageError"),
        ):
            self.assertEqual(reason_properties(error, "me", 1)["DEAD_LETTER_EXCEPTION"], name)

    def test_result_of_handler_raised_from_error_has_class_and_text_of_error(self):
        for result, reason in (
            (Reject(), "no such order"),
            (Retry(), "no such order"),
            (Reject("an old order"), "an old order"),
            (Retry(reason="later"), "later"),
        ):
            result.__cause__ = OrderError("no such order\nof that name")
            properties = reason_properties(result, "me", 1)
            self.assertEqual(properties["DEAD_LETTER_EXCEPTION"], ERROR_NAME)
            self.assertEqual(properties["DEAD_LETTER_REASON"], reason)
        result = Retry()
        result.__cause__ = OrderError()
        self.assertEqual(reason_properties(result, "me", 1)["DEAD_LETTER_REASON"], "the handler asked for a retry")
