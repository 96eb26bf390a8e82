"""Options of the wrong type or form are refused when a client is made, by one error that says what is accepted."""

import dataclasses
import inspect
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd import client
from rocketd.client import aio, sync
from rocketd.client.codec import TEXT
from rocketd.client.config import ClientConfig
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragelyByCircle
from rocketd.client.consumer.flow_control import FlowLimits
from rocketd.client.errors import (
    IllegalGroupError,
    IllegalOptionError,
    IllegalTopicError,
    TooManyRequestsError,
    UnreachableError,
)
from rocketd.client.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import Producer
from rocketd.client.producer.transaction import TransactionState
from rocketd.client.subscribing import SubscribingFace
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.settings import NettyClientConfig, TlsConfig
from tests.unit.client_cluster import ClientTestCase

MAKERS = {
    "ClientConfig": ClientConfig,
    "Producer": lambda **options: sync.Producer("g", **options),
    "Consumer": lambda **options: sync.Consumer("g", **options),
    "LitePullConsumer": lambda **options: sync.LitePullConsumer("g", **options),
    "PullConsumer": lambda **options: sync.PullConsumer("g", **options),
    "Admin": sync.Admin,
}

WRONG = {
    "ClientConfig": (
        ("namesrv", 5, "a text or a sequence, each a text"),
        ("namesrv", ["h:1", 5], "a text or a sequence, each a text"),
        ("namesrv", b"h:1", "a text or a sequence, each a text"),
        ("name_server_url", 5, "a text or None"),
        ("namespace", 5, "a text"),
        ("instance_name", 5, "a text or None"),
        ("client_ip", 5, "a text or None"),
        ("unit_name", 5, "a text or None"),
        ("tls", "x", "True or False or a TlsConfig"),
        ("vip_channel", "yes", "True or False"),
        ("timeout", "1", "a timedelta or a number of seconds above 0"),
        ("hooks", [3], "a sequence, each an IRPCHook (an object with after_response, before_request)"),
        ("hooks", 3, "a sequence, each an IRPCHook"),
        ("remoting", 3, "a NettyClientConfig"),
        ("surroundings", 3, "a Surroundings (an object with now_ms, reactor_on) or None"),
    ),
    "Producer": (
        ("cluster", 5, "a text, a sequence, each a text, a ClientConfig or None"),
        ("codec", 3, "a Codec (an object with decode, encode)"),
        ("transactions", 3, "a TransactionListener (an object with check, execute) or None"),
        ("retries", "2", "a whole number"),
        ("retries", True, "a whole number"),
        ("retries", -1, "a whole number from 0 on"),
        ("retry_another_broker", 1, "True or False"),
        ("latency_fault_tolerance", None, "True or False"),
        ("create_topic_key", "a b", "the name of a topic"),
        ("create_topic_key", "", "the name of a topic"),
        ("create_topic_key", None, "a text"),
        ("default_topic_queues", 0, "a whole number from 1 on"),
        ("transaction_threads", 0, "a whole number from 1 on"),
        ("transaction_threads", "x", "a whole number"),
        ("send_hooks", 5, "a sequence of hooks"),
    ),
    "Consumer": (
        ("limits", 5, "a FlowLimits"),
        ("allocation", "AVG", "an AllocationStrategy (an object with __call__, name)"),
        ("handler", 7, "a function or None"),
        ("codec", 3, "a Codec"),
        ("key", 3, "a function or None"),
        ("broadcast", "yes", "True or False"),
        ("offset_directory", 5, "a text, a path or None"),
        ("topics", 5, "a text, what can be iterated over, each a text or a mapping"),
        ("start", 5, "'latest', 'earliest' or a datetime"),
        ("order", 5, "'none', 'queue' or 'key'"),
        ("consume_timeout", "x", "a number of seconds or a timedelta"),
        ("consume_hooks", 5, "a sequence of hooks"),
    ),
    "LitePullConsumer": (
        ("codec", 3, "a Codec"),
        ("auto_commit", "no", "True or False"),
        ("limits", 5, "a FlowLimits"),
    ),
    "PullConsumer": (
        ("codec", 3, "a Codec"),
        ("cluster", 5, "a ClientConfig"),
        ("broadcast", "yes", "True or False"),
        ("allocation", "AVG", "an AllocationStrategy"),
        ("offset_directory", 5, "a path"),
    ),
    "Admin": (("cluster", 5, "a ClientConfig"),),
}


@implementer(IRPCHook)
class Hook:
    def before_request(self, address, request):
        """Do nothing."""

    def after_response(self, address, request, response):
        """Do nothing."""


class Listener:
    def __init__(self):
        self.go_on = Event()
        self.running = []

    def execute(self, message, arg, transaction_id):
        self.running.append(arg)
        self.go_on.wait(60)
        return TransactionState.COMMIT

    def check(self, message):
        return TransactionState.COMMIT


class RefusedTests(SynchronousTestCase):
    def test_errors_name_the_option_the_value_and_what_is_accepted(self):
        for name, cases in WRONG.items():
            for option, value, accepted in cases:
                with self.subTest(name=name, option=option, value=value):
                    error = self.assertRaises(IllegalOptionError, MAKERS[name], **{option: value})
                    said, _, accepts = str(error).partition(": accepted is ")
                    self.assertEqual(said, f"{option}={value!r}")
                    self.assertIn(accepted, accepts)

    def test_no_option_takes_just_anything(self):
        for name, make in MAKERS.items():
            kind = make if inspect.isclass(make) else getattr(sync, name)
            for field in dataclasses.fields(kind):
                if field.name != "group":
                    with self.subTest(name=name, option=field.name):
                        self.assertRaises(IllegalOptionError, make, **{field.name: object()})

    def test_secrets_are_not_shown(self):
        error = self.assertRaises(IllegalOptionError, ClientConfig, credentials=("key", "s3cret"))
        self.assertEqual(str(error), "credentials is a tuple: accepted is a Credentials or None")

    def test_names_that_are_no_texts(self):
        for face in (client, aio, sync):
            for kind in (face.Producer, face.Consumer, face.LitePullConsumer, face.PullConsumer):
                self.assertRaises(IllegalGroupError, kind, 5)
            self.assertRaises(IllegalTopicError, face.Consumer, "g", topics=[5])

    def test_what_is_no_subscription(self):
        self.assertRaisesRegex(
            IllegalOptionError, "5 is nothing to want of topic T", sync.Consumer, "g", topics={"T": 5}
        )
        for kind in (client.Consumer, client.LitePullConsumer):
            self.assertTrue(issubclass(kind, SubscribingFace))
            self.assertRaises(IllegalOptionError, kind("g").subscribe, "T", 5)

    def test_what_is_of_the_type_is_accepted(self):
        class OwnCodec:
            def encode(self, value):
                return value

            def decode(self, body):
                return body

        ClientConfig(namesrv=("h:1", "h:2"), hooks=[Hook()], tls=TlsConfig(), remoting=NettyClientConfig(), timeout=1)
        sync.Producer("g", codec=OwnCodec(), transactions=Listener(), send_timeout=5)
        sync.Consumer(
            "g",
            ["h:1"],
            topics=(topic for topic in "TU"),
            handler=print,
            codec=TEXT,
            allocation=AllocateMessageQueueAveragelyByCircle(),
            limits=FlowLimits(),
            order="key",
            key=len,
            offset_directory=Path("."),
        )


class EffectTests(ClientTestCase):
    """That an option does what its text says, where nothing else shows it."""

    def make(self, **options):
        producer = Producer(self.client, "pg", options=ProducerOptions(**options))
        self.result_of(producer.start())
        return producer

    def test_max_pending(self):
        self.cluster.answer_310 = lambda address, request, fields: Deferred()
        producer = self.make(max_pending=2)
        sends = [Deferred.fromCoroutine(producer.send(Message("T", b"x"))) for _ in range(2)]
        error = self.failure_of(producer.send(Message("T", b"x")), TooManyRequestsError)
        self.assertIn("2 sends of producer pg are under way", str(error))
        self.assertTrue(error.retriable)
        self.failure_of(producer.send_batch([Message("T", b"x")]), TooManyRequestsError)
        sends[0].cancel()
        self.failureResultOf(sends[0])
        Deferred.fromCoroutine(producer.send(Message("T", b"x")))
        self.assertEqual(len(self.cluster.of(310)), 3)

    def test_create_topic_key(self):
        self.cluster.topics.add("Example")
        producer = self.make(create_topic_key="Example")
        self.result_of(producer.send(Message("New", b"x")))
        self.assertEqual([fields["topic"] for _, fields in self.cluster.of(105)], ["New", "Example"])
        self.assertEqual([fields["c"] for _, fields in self.cluster.of(310)], ["Example"])

    def test_default_topic_queues(self):
        self.cluster.topics.add("TBW102")  # eight queues
        for topic, most, queues in (("Few", 3, 3), ("Many", 20, 8)):
            producer = Producer(self.client, topic, options=ProducerOptions(default_topic_queues=most))
            self.result_of(producer.start())
            found = {self.result_of(producer.send(Message(topic, b"x"))).queue for _ in range(40)}
            self.assertEqual(len(found), 2 * queues)
            self.assertEqual(self.cluster.of(310)[-1][1]["d"], str(most))

    def test_retries(self):
        self.cluster.down |= {"a:10911", "b:10911"}
        self.failure_of(self.make(retries=4).send(Message("T", b"x")), UnreachableError)
        self.assertEqual(len(self.cluster.of(310)), 5)

    def test_transaction_threads(self):
        answer = self.cluster.answer_310

        def stored(address, request, fields):
            response = answer(address, request, fields)
            response.ext_fields["msgId"] = "0" * 32
            return response

        self.cluster.answer_310 = stored
        self.cluster.answer_37 = self.cluster.answer_35
        listener = Listener()
        self.addCleanup(listener.go_on.set)
        producer = Producer(self.client, "tx", options=ProducerOptions(transaction_threads=2), transactions=listener)
        self.result_of(producer.start())
        sends = [Deferred.fromCoroutine(producer.send_in_transaction(Message("T", b"x"), n)) for n in range(5)]
        names = {thread.name for thread in enumerate_threads() if thread.name.startswith("rocketd-transactions-tx-")}
        self.assertEqual((len(producer.threads.running), len(names)), (5, 2))
        listener.go_on.set()
        while not all(send.called for send in sends):
            self.clock.run_call()
        self.assertEqual(sorted(listener.running), [0, 1, 2, 3, 4])
        self.end_of(producer.stop())
