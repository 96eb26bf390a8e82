"""Messages that no broker would take are refused before they are sent, as are fields that would be lost on the way."""

from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.errors import IllegalMessageError, IllegalTopicError, UsageError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import Message
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.producer.transaction import TransactionState
from rocketd.client.settings.config import ClientConfig
from rocketd.remoting.bodies.tables import MessageQueue
from tests.support.client_cluster import ClientTestCase

ILLEGAL = (
    ({"flag": 2**31}, "flag=2147483648: accepted is a whole number from -2147483648 to 2147483647"),
    ({"flag": 2**40}, "flag=1099511627776"),
    ({"flag": -(2**31) - 1}, "flag=-2147483649"),
    ({"flag": True}, "flag=True"),
    ({"flag": "1"}, "flag='1'"),
    ({"delay_level": "3"}, "delay_level='3': accepted is a whole number from 0 to 2147483647"),
    ({"delay_level": -1}, "delay_level=-1"),
    ({"delay_level": 2**31}, "delay_level=2147483648"),
    ({"deliver_at": 5}, "deliver_at=5: accepted is a datetime"),
    ({"deliver_at": datetime.min}, "deliver_at=datetime.datetime(1, 1, 1, 0, 0): it is not a time here"),
    ({"deliver_after": "1s"}, "deliver_after='1s': accepted is a timedelta or a number"),
    ({"deliver_after": -1}, "deliver_after=-1"),
    ({"delay_level": 1, "deliver_after": 1}, "give one of delay_level"),
    ({"deliver_at": datetime.now(UTC), "deliver_after": 1}, "give one of delay_level"),
    ({"keys": ["a b"]}, "key 'a b': a key is not empty and has no blank"),
    ({"keys": ["a", ""]}, "key '': a key"),
    ({"keys": "ab"}, "keys='ab': keys are a sequence of texts"),
    ({"keys": [5]}, "key is 5: it has to be text"),
    ({"keys": 5}, "keys=5"),
    ({"keys": None}, "keys=None"),
    ({"tags": 0}, "tag is 0: it has to be text"),
    ({"properties": {"": "x"}}, "property '' is 'x': neither name nor value may be empty or blank"),
    ({"properties": {"x": ""}}, "property 'x' is ''"),
    ({"properties": {"x": " \t\0"}}, "property 'x' is ' \\t\\x00'"),
    ({"properties": {" ": "x"}}, "property ' ' is 'x'"),
    ({"properties": {"x": None}}, "property 'x' is None: it has to be text"),
    ({"properties": {5: "x"}}, "property is 5: it has to be text"),
    ({"properties": [("x", "y")]}, "properties=[('x', 'y')]"),
    ({"properties": None}, "properties=None"),
)


class MessageTests(SynchronousTestCase):
    def test_illegal_fields_are_refused(self):
        for fields, text in ILLEGAL:
            with self.subTest(fields=fields):
                error = self.assertRaises(IllegalMessageError, Message("T", b"x", **fields).check)
                self.assertIn(text, str(error))
                self.assertTrue(issubclass(IllegalMessageError, UsageError))

    def test_topics_of_wrong_type_are_refused(self):
        for topic in (None, 5, b"T"):
            self.assertRaises(IllegalTopicError, Message(topic, b"x").check)

    def test_legal_fields_are_accepted(self):
        for fields in (
            {"flag": 2**31 - 1},
            {"flag": -(2**31)},
            {"delay_level": 18},
            {"keys": ("a\tb",)},
            {"keys": {"a"}},
            {"keys": []},
            {"tags": "a b"},
            {"properties": {"x": "\u2003"}},  # Java takes it for no blank
            {"properties": {"x y": " z "}},
            {"deliver_at": datetime(2026, 1, 1)},
            {"deliver_after": timedelta(0)},
        ):
            message = Message("T", b"x", **fields)
            message.check()
            message.wire_properties("ID")


class Listener:
    def execute(self, message, arg, transaction_id):
        return TransactionState.COMMIT

    def check(self, message):
        return TransactionState.COMMIT


class ProducerTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.producer = ProducerEngine(self.client, "pg", transactions=Listener())
        self.result_of(self.producer.start())

    def test_send_of_wrong_type_is_refused(self):
        producer = self.producer
        for call in (producer.send, producer.send_oneway, producer.request, producer.send_in_transaction):
            for given in ("x", None, b"x", ("T", b"x")):
                error = self.failure_of(call(given), IllegalMessageError)
                self.assertIn(f"{type(given).__name__} cannot be sent: make a Message(topic, body)", str(error))
        for batch in ("xy", Message("T", b"x"), None, [b"x"], [Message("T", b"x"), None]):
            self.failure_of(producer.send_batch(batch), IllegalMessageError)
        self.failure_of(producer.reply("x", b"y"), IllegalMessageError)
        self.failure_of(producer.request(Message("T", b"x", flag=2**40)), IllegalMessageError)
        self.failure_of(producer.send(Message(None, b"x")), IllegalTopicError)
        self.assertEqual(self.cluster.asked, [])

    def test_queue_or_selector_of_wrong_type_is_refused(self):
        for where in ({"queue": "a"}, {"queue": 1}, {"selector": 5}, {"selector": "hash"}):
            for call in (self.producer.send, self.producer.send_oneway, self.producer.request):
                self.failure_of(call(Message("T", b"x"), **where), UsageError)

    def test_selector_result_outside_queues_is_refused(self):
        spaced = ClientInstance(
            self.clock,
            ClientConfig(namesrv=["ns:9876"], client_ip="10.0.0.9", instance_name="spaced", namespace="space"),
            remoting=self.cluster,
        )
        self.cluster.topics.add("space%T")
        other = ProducerEngine(spaced, "pg")
        self.result_of(other.start())
        for producer in (self.producer, other):
            for chosen in (None, 0, "a"):
                sending = producer.send(Message("T", b"x"), selector=lambda queues, message, key, it=chosen: it)
                error = self.failure_of(sending, UsageError)
                self.assertIn(f"the selector chose {chosen!r} for topic", str(error))
        self.assertEqual(self.cluster.of(310), [])
        select = lambda queues, message, key: MessageQueue(message.topic, "b", 0)  # noqa: E731
        for producer in (self.producer, other):
            self.assertEqual(self.result_of(producer.send(Message("T", b"x"), selector=select)).queue.broker_name, "b")
