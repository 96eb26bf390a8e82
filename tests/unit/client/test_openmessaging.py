"""The names of OpenMessaging, with the blocking clients replaced; the examples show them with a broker."""

from threading import Thread
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client import openmessaging
from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import IllegalOptionError, StopConsuming, UsageError
from rocketd.client.messages.message import Message, ReceivedMessage
from rocketd.client.openmessaging import (
    CONSUME_FROM,
    CONSUMER_ID,
    DESTINATION,
    MAX_CONSUME_THREADS,
    MESSAGE_CONSUME_TIMEOUT,
    MESSAGE_ID,
    OPERATION_TIMEOUT,
    PRODUCER_GROUP,
    SEARCH_KEYS,
    START_TIME,
    BytesMessage,
    MessagingAccessPoint,
)
from rocketd.remoting.bodies.tables import MessageQueue

URL = "oms:rocketmq://ns1:9876,ns2:9876/default:default"
LIMIT = 60.0  # seconds


class FakeProducer:
    """Records sent messages."""

    made = None

    def __init__(self, group, config, **options):
        type(self).made = self
        self.group, self.config, self.options = group, config, options
        self.calls = []

    def __class_getitem__(cls, _):
        return cls

    def open(self):
        self.calls.append("open")

    def close(self):
        self.calls.append("close")

    def send(self, message):
        self.calls.append(message)
        return SimpleNamespace(msg_id=f"id{len(self.calls)}")

    def send_oneway(self, message):
        self.calls.append(("oneway", message))


class FakeConsumer(FakeProducer):
    """Records subscriptions."""

    def subscribe(self, topic):
        self.calls.append(("subscribe", topic))

    def unsubscribe(self, topic):
        self.calls.append(("unsubscribe", topic))

    def suspend(self):
        self.calls.append("suspend")

    def resume(self):
        self.calls.append("resume")

    def handle(self, message):
        return self.options["handler"](message)


def received(topic="Orders", body=b"x"):
    return ReceivedMessage(
        topic, body, {"KEYS": "a b", "color": "red"}, "id1", "off1", MessageQueue(topic, "a", 0), 0, 0, 0, 0, 5, 6,
        "10.0.0.1:1", "10.0.0.2:2", 100, 0,
    )  # fmt: skip


class OpenMessagingTestCase(SynchronousTestCase):
    def setUp(self):
        self.patch(openmessaging.sync, "Producer", FakeProducer)
        self.patch(openmessaging.sync, "Consumer", FakeConsumer)


class AccessPointTests(OpenMessagingTestCase):
    def test_urls(self):
        for url, servers, namespace in (
            (URL, ["ns1:9876", "ns2:9876"], ""),
            ("oms:rocketmq://alice@ns:9876/us-east:tenant", ["ns:9876"], "tenant"),
            ("oms:rocketmq://ns:9876/us-east", ["ns:9876"], ""),
        ):
            point = MessagingAccessPoint(url)
            point.startup()
            point.createProducer()
            point.shutdown()
            config = FakeProducer.made.config
            self.assertEqual((config.name_servers(), config.namespace), (servers, namespace))

    def test_other_urls(self):
        for url in ("ns:9876", "oms:kafka://ns:9876/x", "oms:rocketmq://ns:9876", "oms:rocketmq://nowhere/x"):
            with self.assertRaises(IllegalOptionError):
                MessagingAccessPoint(url)

    def test_attributes_of_both(self):
        point = MessagingAccessPoint(URL, {PRODUCER_GROUP: "all", OPERATION_TIMEOUT: "1500"})
        point.createProducer({PRODUCER_GROUP: "mine"})
        self.assertEqual((FakeProducer.made.group, FakeProducer.made.options), ("mine", {"send_timeout": 1.5}))


class ProducerTests(OpenMessagingTestCase):
    def setUp(self):
        super().setUp()
        self.producer = MessagingAccessPoint(URL).createProducer()
        self.producer.startup()
        self.client = FakeProducer.made

    def test_sends(self):
        message = self.producer.createBytesMessage("Orders", b"body")
        self.assertEqual(message.sysHeaders, {DESTINATION: "Orders"})
        result = self.producer.send(message)
        self.assertEqual((result.messageId, message.sysHeaders[MESSAGE_ID]), ("id2", "id2"))
        later = self.producer.sendAsync(self.producer.createBytesMessage("Orders", b"later"))
        self.assertEqual(later.result(LIMIT).messageId, "id3")
        self.producer.sendOneway(self.producer.createBytesMessage("Orders", b"oneway"))
        self.producer.shutdown()
        self.assertEqual(
            self.client.calls,
            [
                "open",
                Message("Orders", b"body", keys=[]),
                Message("Orders", b"later", keys=[]),
                ("oneway", Message("Orders", b"oneway", keys=[])),
                "close",
            ],
        )

    def test_headers(self):
        headers = {DESTINATION: "Orders", SEARCH_KEYS: "a b", START_TIME: "1700000000500"}
        self.producer.send(BytesMessage(b"x", headers, {"color": "red"}))
        sent = self.client.calls[1]
        self.assertEqual((sent.keys, sent.properties), (["a", "b"], {"color": "red"}))
        self.assertEqual(sent.deliver_at.timestamp(), 1_700_000_000.5)


class ConsumerTests(OpenMessagingTestCase):
    def make(self, kind, **attributes):
        self.consumer = getattr(MessagingAccessPoint(URL), f"create{kind}Consumer")({CONSUMER_ID: "g", **attributes})
        self.client = FakeConsumer.made
        return self.consumer

    def in_thread(self, message):
        """Have a message handled in a thread; return a function that waits for the result."""
        outcome = []

        def handle():
            try:
                outcome.append(self.client.handle(message))
            except Exception as error:
                outcome.append(type(error))

        thread = Thread(target=handle)
        thread.start()

        def wait():
            thread.join(LIMIT)
            return outcome[0]

        return wait

    def test_a_group_is_needed(self):
        with self.assertRaises(IllegalOptionError):
            MessagingAccessPoint(URL).createPushConsumer()

    def test_attributes(self):
        self.make("Push", **{MAX_CONSUME_THREADS: "7", CONSUME_FROM: "earliest"})
        options = self.client.options
        self.assertEqual((self.client.group, options["concurrency"], options["begin"]), ("g", 7, "earliest"))

    def test_life(self):
        consumer = self.make("Push").attachQueue("Orders", print).attachQueue("Bills", print).detachQueue("Bills")
        for method in (consumer.startup, consumer.suspend, consumer.resume, consumer.shutdown):
            method()
        self.assertEqual(
            self.client.calls,
            [
                *(("subscribe", "Orders"), ("subscribe", "Bills"), ("unsubscribe", "Bills")),
                *("open", "suspend", "resume", "close"),
            ],
        )

    def test_a_listener_gets_the_messages_of_its_queue(self):
        got = []

        def listen(message, context):
            got.append(message)
            context.ack()

        self.make("Push").attachQueue("Orders", listen)
        self.client.handle(received())
        (message,) = got
        self.assertEqual((message.body, message.userHeaders["color"]), (b"x", "red"))
        self.assertEqual(
            message.sysHeaders,
            {
                DESTINATION: "Orders",
                MESSAGE_ID: "id1",
                SEARCH_KEYS: "a b",
                "BORN_HOST": "10.0.0.1:1",
                "BORN_TIMESTAMP": "5",
                "STORE_HOST": "10.0.0.2:2",
                "STORE_TIMESTAMP": "6",
            },
        )

    def test_message_not_acknowledged_in_time_is_retried(self):
        self.make("Push", **{MESSAGE_CONSUME_TIMEOUT: "0.0001"}).attachQueue("Orders", lambda message, context: None)
        with self.assertRaises(Retry):
            self.client.handle(received())

    def test_pulled_and_acknowledged(self):
        consumer = self.make("Pull").attachQueue("Orders")
        self.assertIsNone(consumer.receive(0.01))
        wait = self.in_thread(received())
        message = consumer.receive(LIMIT)
        self.assertEqual(message.body, b"x")
        consumer.ack(message.sysHeaders[MESSAGE_ID])
        self.assertIsNone(wait())
        with self.assertRaises(UsageError):
            consumer.ack(message.sysHeaders[MESSAGE_ID])

    def test_shutdown_leaves_unacknowledged_message(self):
        consumer = self.make("Pull").attachQueue("Orders")
        wait = self.in_thread(received())
        consumer.receive(LIMIT)
        consumer.shutdown()
        self.assertIs(wait(), StopConsuming)
        with self.assertRaises(StopConsuming):
            self.client.handle(received())
