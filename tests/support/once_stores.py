"""Tests that every store of seen messages passes, with a message and a handler for them."""

from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import UsageError
from rocketd.client.messages.message import ReceivedMessage
from rocketd.client.once import once
from rocketd.remoting.bodies.tables import MessageQueue


def message(body=b"one", keys="", msg_id="ID"):
    return ReceivedMessage(
        topic="T",
        body=body,
        properties={"KEYS": keys},
        msg_id=msg_id,
        offset_msg_id="OFFSETID",
        queue=MessageQueue("T", "a", 0),
        queue_offset=0,
        physical_offset=0,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        store_timestamp=0,
        born_host="",
        store_host="",
        store_size=0,
        reconsume_times=0,
    )


class Answers:
    """A handler that raises or returns the values of ``then``, one per call, and records its messages."""

    def __init__(self, *then):
        self.then = list(then)
        self.got = []

    def __call__(self, message):
        self.got.append(message.body)
        answer = self.then.pop(0) if self.then else None
        if isinstance(answer, LookupError):
            raise answer
        return answer


class StoreTests:
    """Tests that every store must pass."""

    def test_message_delivered_twice_is_handled_once(self):
        handler = Answers()
        handle = once(self.store)(handler)
        for each in (message(b"one"), message(b"again"), message(b"other", msg_id="ID2")):
            self.assertIsNone(handle(each))
        self.assertEqual(handler.got, [b"one", b"other"])

    def test_plain_handler_returning_coroutine_is_refused(self):
        async def work(message):
            self.fail("nobody awaits it")

        handle = once(self.store)(lambda message: work(message))
        for _ in range(2):
            error = self.assertRaises(UsageError, handle, message())
            self.assertIn("make it a coroutine function", str(error))

    def test_message_not_consumed_is_not_marked_done(self):
        handler = Answers(LookupError(), Retry(5), Reject())
        handle = once(self.store)(handler)
        for error in (LookupError, Retry, Reject):
            self.assertRaises(error, handle, message())
        handle(message())
        handle(message())
        self.assertEqual(len(handler.got), 4)

    def test_keys_can_be_given_by_application(self):
        handler = Answers()
        handle = once(self.store, key=lambda message: message.properties["KEYS"] or None)(handler)
        for number, keys in enumerate(("order-1", "order-1", "order-2", "", "")):
            handle(message(b"%d" % number, keys, msg_id=str(number)))
        self.assertEqual(handler.got, [b"0", b"2", b"3", b"4"])

    def test_lists_of_messages_are_refused(self):
        self.assertRaises(UsageError, once(self.store)(Answers()), [message()])

    def test_handlers_keep_their_names(self):
        def handle_order(message):
            pass

        self.assertEqual(once(self.store)(handle_order).__name__, "handle_order")
