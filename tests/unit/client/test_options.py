"""Options of the wrong type or form are refused when a client is made, by one error that says what is accepted."""

import dataclasses
import inspect
import re
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_threads

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd import client
from rocketd.client import aio, sync
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragelyByCircle
from rocketd.client.consumer.options.flow_limits import FlowLimits
from rocketd.client.errors import (
    BrokerError,
    ClientStateError,
    IllegalGroupError,
    IllegalOptionError,
    IllegalTopicError,
    TooManyRequestsError,
)
from rocketd.client.faces.subscribing import SubscribingFace
from rocketd.client.messages.codec import TEXT
from rocketd.client.messages.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.transaction import TransactionState
from rocketd.client.settings.config import ClientConfig
from rocketd.client.settings.option_names import KNOWN_ELSEWHERE
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.settings import NettyClientConfig, TlsConfig
from tests.support.client_cluster import ClientTestCase

MAKERS = {
    "ClientConfig": ClientConfig,
    "Producer": lambda **options: sync.Producer("g", **options),
    "Consumer": lambda **options: sync.Consumer("g", **options),
    "LitePullConsumer": lambda **options: sync.LitePullConsumer("g", **options),
    "PullConsumer": lambda **options: sync.PullConsumer("g", **options),
    "Admin": sync.Admin,
}

FACES = (sync.Producer, sync.Consumer, sync.LitePullConsumer, sync.PullConsumer)

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
        ("tls", "x", "True or False, 'unverified' or a TlsConfig"),
        ("ca", 5, "a text, a path or None"),
        ("vip_channel", "yes", "True or False"),
        ("timeout", "1", "a timedelta or a number of seconds above 0"),
        ("hooks", [3], "a sequence, each a RequestHook (an object with after_response, before_request)"),
        ("hooks", 3, "a sequence, each a RequestHook"),
        ("remoting", 3, "a NettyClientConfig"),
        ("environment", 3, "a ClientEnvironment (an object with now_ms, reactor_on) or None"),
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
        ("begin", 5, "'latest', 'earliest' or a datetime"),
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
    def test_errors_name_option_value_and_accepted_values(self):
        for name, cases in WRONG.items():
            for option, value, accepted in cases:
                with self.subTest(name=name, option=option, value=value):
                    error = self.assertRaises(IllegalOptionError, MAKERS[name], **{option: value})
                    said, _, accepts = str(error).partition(": accepted is ")
                    self.assertEqual(said, f"{option}={value!r}")
                    self.assertIn(accepted, accepts)

    def test_every_option_refuses_values_of_other_types(self):
        for name, make in MAKERS.items():
            kind = make if inspect.isclass(make) else getattr(sync, name)
            for field in dataclasses.fields(kind):
                if field.name != "group":
                    with self.subTest(name=name, option=field.name):
                        self.assertRaises(IllegalOptionError, make, **{field.name: object()})

    def test_secrets_are_not_shown(self):
        error = self.assertRaises(IllegalOptionError, ClientConfig, credentials=("key", "s3cret"))
        self.assertEqual(str(error), "credentials is a tuple: accepted is a Credentials or None")

    def test_names_of_wrong_type_are_refused(self):
        for face in (client, aio, sync):
            for kind in (face.Producer, face.Consumer, face.LitePullConsumer, face.PullConsumer):
                self.assertRaises(IllegalGroupError, kind, 5)
            self.assertRaises(IllegalTopicError, face.Consumer, "g", topics=[5])

    def test_subscription_of_wrong_type_is_refused(self):
        self.assertRaisesRegex(
            IllegalOptionError, "5 cannot be subscribed to in topic T", sync.Consumer, "g", topics={"T": 5}
        )
        for kind in (client.Consumer, client.LitePullConsumer):
            self.assertTrue(issubclass(kind, SubscribingFace))
            self.assertRaises(IllegalOptionError, kind("g").subscribe, "T", 5)

    def test_values_of_the_right_type_are_accepted(self):
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
    """Options have the effect that their text describes, if no other test shows it."""

    def make(self, **options):
        producer = ProducerEngine(self.client, "pg", options=ProducerOptions(**options))
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
        for topic, limit, queues in (("Few", 3, 3), ("Many", 20, 8)):
            producer = ProducerEngine(self.client, topic, options=ProducerOptions(default_topic_queues=limit))
            self.result_of(producer.start())
            found = {self.result_of(producer.send(Message(topic, b"x"))).queue for _ in range(40)}
            self.assertEqual(len(found), 2 * queues)
            self.assertEqual(self.cluster.of(310)[-1][1]["d"], str(limit))

    def test_retries(self):
        self.cluster.refusals = {(310, "a:10911"): 1, (310, "b:10911"): 1}
        self.failure_of(self.make(retries=4).send(Message("T", b"x")), BrokerError)
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
        producer = ProducerEngine(
            self.client, "tx", options=ProducerOptions(transaction_threads=2), transactions=listener
        )
        self.result_of(producer.start())
        sends = [Deferred.fromCoroutine(producer.send_in_transaction(Message("T", b"x"), n)) for n in range(5)]
        names = {thread.name for thread in enumerate_threads() if thread.name.startswith("rocketd-transactions-tx-")}
        self.assertEqual((len(producer.threads.running), len(names)), (5, 2))
        listener.go_on.set()
        while not all(send.called for send in sends):
            self.clock.run_call()
        self.assertEqual(sorted(listener.running), [0, 1, 2, 3, 4])
        self.end_of(producer.stop())


class TlsTests(SynchronousTestCase):
    def test_true_verifies_by_authorities_of_system_or_file(self):
        for ca in (None, "ca.pem", Path("ca.pem")):
            settings = ClientConfig(tls=True, ca=ca).tls_settings()
            self.assertEqual((settings.test_mode_enable, settings.client_auth_server), (False, True))
            self.assertEqual(settings.client_trust_cert_path, None if ca is None else "ca.pem")

    def test_servers_are_trusted_unverified_only_by_that_name(self):
        self.assertTrue(ClientConfig(tls="unverified").tls_settings().test_mode_enable)
        self.assertIsNone(ClientConfig().tls_settings())
        for own in (TlsConfig(), TlsConfig(test_mode_enable=False, client_cert_path="client.pem")):
            self.assertIs(ClientConfig(tls=own).tls_settings(), own)

    def test_settings_without_effect_in_test_mode_are_refused(self):
        for option, value in (
            ("client_auth_server", True),
            ("client_trust_cert_path", "ca.pem"),
            ("client_cert_path", "client.pem"),
            ("client_key_path", "client.key"),
        ):
            error = self.assertRaises(IllegalOptionError, ClientConfig, tls=TlsConfig(**{option: value}))
            self.assertIn(f"{option}={value!r} of the TlsConfig has no effect with test_mode_enable=True", str(error))
            self.assertTrue(str(error).endswith(": add test_mode_enable=False"), str(error))

    def test_authorities_of_tls_config_without_verification_are_refused(self):
        tls = TlsConfig(test_mode_enable=False, client_trust_cert_path="ca.pem")
        error = self.assertRaises(IllegalOptionError, ClientConfig, tls=tls)
        self.assertTrue(str(error).endswith(": add client_auth_server=True"), str(error))

    def test_authorities_without_their_use_are_refused(self):
        for tls in (False, "unverified", TlsConfig()):
            self.assertRaisesRegex(
                IllegalOptionError, "^ca='ca.pem' is for tls=True", ClientConfig, tls=tls, ca="ca.pem"
            )


class UnknownOptionTests(SynchronousTestCase):
    def check(self, make, option, answer):
        error = self.assertRaises(TypeError, make, **{option: "x"})
        self.assertIn(f"has no option '{option}'", str(error))
        self.assertIn(answer, str(error))

    def test_options_of_other_clients_are_answered_with_the_right_one(self):
        for face in (client, aio, sync):
            for option, answer in (
                ("bootstrap_servers", "cluster="),
                ("group_id", "group="),
                ("auto_offset_reset", 'begin="earliest"'),
                ("start", 'use begin="earliest"'),
                ("tag", "use topics={topic:"),
                ("value_deserializer", "codec="),
                ("listener", "handler="),
                ("tls", "ClientConfig"),
                ("endpoints", "cluster="),
                ("nameserver", "cluster="),
                ("name_server", "cluster="),
                ("message_model", "broadcast="),
                ("thread_num", "concurrency="),
                ("workers", "concurrency="),
                ("max_workers", "concurrency="),
                ("filter", "use topics={topic:"),
            ):
                self.check(face.Consumer, option, answer)
            self.check(face.LitePullConsumer, "start", 'use begin="earliest"')
            self.check(face.Producer, "namesrv", "cluster=")
            self.check(face.Admin, "bootstrap_servers", "cluster=")
        self.check(ClientConfig, "bootstrap_servers", "use namesrv=")

    def test_every_answer_names_an_existing_option(self):
        known = {field.name for make in (*FACES, ClientConfig, FlowLimits) for field in dataclasses.fields(make)}
        for option, answer in KNOWN_ELSEWHERE.items():
            named = re.findall(r"(\w+)=", answer)
            self.assertTrue(named, option)
            self.assertLessEqual(set(named), known, option)

    def test_mistyped_option_is_answered_with_the_nearest(self):
        self.check(sync.Consumer, "concurency", "did you mean concurrency?")
        self.check(ClientConfig, "time_out", "did you mean timeout?")

    def test_unknown_option_names_the_face_of_the_program(self):
        error = self.assertRaises(TypeError, aio.Producer, "g", nothing_like_it=1)
        self.assertEqual(str(error), "rocketd.client.aio.Producer has no option 'nothing_like_it'")

    def test_subclass_with_its_own_init_takes_its_own_keywords(self):
        for face in (client, aio, sync):

            class ShopProducer(face.Producer):
                def __init__(self, *, shop):
                    super().__init__(f"shop-{shop}", retries=5)

            class ShopConfig(ClientConfig):
                def __init__(self, shop, *, tenant):
                    super().__init__(namespace=f"{tenant}-{shop}")

            class BookProducer(ShopProducer):
                pass

            producer = BookProducer(shop="books")
            self.assertEqual((producer.group, producer.retries), ("shop-books", 5))
            self.assertEqual(ShopConfig("books", tenant="north").namespace, "north-books")

    def test_subclass_without_init_refuses_unknown_options(self):
        class ShopProducer(sync.Producer):
            shop = "books"

        error = self.assertRaises(TypeError, ShopProducer, "g", shop="toys")
        self.assertIn("ShopProducer has no option 'shop'", str(error))


class FrozenOptionTests(SynchronousTestCase):
    def test_option_of_open_client_cannot_be_changed(self):
        producer = sync.Producer("g", "127.0.0.1:1")
        producer.retries = 5
        with producer:
            error = self.assertRaises(ClientStateError, setattr, producer, "retries", 7)
            self.assertIn("retries of this producer of group g cannot be changed any more", str(error))
            self.assertEqual(producer._engine.options.retries, 5)

    def test_unknown_attribute_is_refused(self):
        for face in (client, aio, sync):
            producer = face.Producer("g", "127.0.0.1:1")
            error = self.assertRaises(TypeError, setattr, producer, "foo", 7)
            self.assertEqual(str(error), f"{face.__name__}.Producer has no option 'foo'")
            error = self.assertRaises(TypeError, setattr, producer, "max_retries", 7)
            self.assertIn("use retries=", str(error))
            self.assertFalse(hasattr(producer, "foo"))

    def test_attribute_of_subclass_with_its_own_init_is_accepted(self):
        class ShopProducer(sync.Producer):
            def __init__(self, shop):
                super().__init__(f"shop-{shop}")
                self.shop = shop

        self.assertEqual(ShopProducer("books").shop, "books")

    def test_option_cannot_be_deleted(self):
        producer = sync.Producer("g", "127.0.0.1:1")
        error = self.assertRaises(TypeError, delattr, producer, "retries")
        self.assertIn("retries of this producer of group g cannot be deleted", str(error))
        self.assertEqual(producer.retries, 2)

    def test_invalid_value_before_open_is_refused_and_the_old_one_stays(self):
        for face in (client, aio, sync):
            for made, option, value in (
                (face.Producer("g"), "retries", -7),
                (face.Producer("g"), "send_timeout", "long"),
                (face.Consumer("g"), "concurrency", 0),
                (face.Consumer("g"), "order", "wat"),
                (face.LitePullConsumer("g"), "pull_batch", 0),
                (face.PullConsumer("g"), "persist_interval", 0),
                (face.Admin(), "cluster", 5),
            ):
                before = getattr(made, option)
                error = self.assertRaises(IllegalOptionError, setattr, made, option, value)
                self.assertIn(repr(value), str(error))
                self.assertEqual(getattr(made, option), before)

    def test_value_set_before_open_is_kept_as_one_of_the_call(self):
        consumer = sync.Consumer("g")
        consumer.order = "queue"
        self.assertIs(consumer.order, sync.Consumer("g", order="queue").order)
