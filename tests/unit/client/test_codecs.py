"""Codecs for pydantic, msgspec, Avro and Protocol Buffers, and the content type of their messages."""

from dataclasses import dataclass

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client import BYTES, JsonCodec, Message
from rocketd.client.codecs import AvroCodec, MsgspecCodec, ProtobufCodec, PydanticCodec
from rocketd.client.errors import IllegalMessageError, IllegalOptionError
from rocketd.client.producer.outgoing import batch_part, outgoing_message
from rocketd.client.settings import packages
from rocketd.client.sync import Consumer, Producer
from rocketd.common.message_properties import decode_properties
from rocketd.testing import Cluster
from tests.support.lacking import need_package


@dataclass
class Order:
    number: int
    fruit: str = "pear"


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "int"}, {"name": "fruit", "type": "string", "default": "pear"}],
}
OLDER = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}


class MsgspecTests(SynchronousTestCase):
    def test_value_is_read_back_in_both_forms(self):
        for form, content_type in (("json", "application/json"), ("msgpack", "application/msgpack")):
            codec = MsgspecCodec(Order, form=form)
            self.assertEqual(codec.decode(codec.encode(Order(17))), Order(17))
            self.assertEqual(codec.content_types[0], content_type)
            self.assertIn("not the expected", str(self.assertRaises(ValueError, codec.decode, b"\xc1")))
            self.assertIn("can be made of object", str(self.assertRaises(ValueError, codec.encode, object())))

    def test_value_that_could_not_be_read_is_not_sent(self):
        for codec in (MsgspecCodec(Order), MsgspecCodec(Order, form="msgpack"), JsonCodec(Order)):
            for wrong in ({"other": 1}, None, Order("x")):
                error = self.assertRaises(ValueError, codec.encode, wrong)
                self.assertIn(f"{type(wrong).__name__} does not suit this codec", str(error))
            self.assertEqual(codec.decode(codec.encode({"number": 17})), Order(17))

    def test_deeply_nested_body_is_refused(self):
        for codec, body in (
            (MsgspecCodec(), b"[" * 100_000),
            (MsgspecCodec(form="msgpack"), b"\x91" * 100_000),
            (JsonCodec(), b"[" * 100_000),
        ):
            self.assertIn("the body is not the", str(self.assertRaises(ValueError, codec.decode, body)))

    def test_unknown_form_is_refused(self):
        self.assertRaises(IllegalOptionError, MsgspecCodec, Order, form="xml")


class PydanticTests(SynchronousTestCase):
    def setUp(self):
        need_package("pydantic")
        from pydantic import BaseModel, Field

        class Payment(BaseModel):
            number: int
            amount: float = Field(alias="sum")

        self.payment = Payment
        self.codec = PydanticCodec(Payment)

    def test_model_is_sent_and_read_by_its_aliases(self):
        body = self.codec.encode(self.payment(number=17, sum=2.5))
        self.assertEqual(body, b'{"number":17,"sum":2.5}')
        self.assertEqual(self.codec.decode(body), self.payment(number=17, sum=2.5))

    def test_mismatches_are_named_without_values(self):
        error = self.assertRaises(ValueError, self.codec.decode, b'{"number":"secret"}')
        self.assertEqual(
            str(error),
            "the body does not suit: number: Input should be a valid integer, unable to parse string as an integer; "
            "sum: Field required",
        )
        self.assertIn("does not suit: body: Invalid JSON", str(self.assertRaises(ValueError, self.codec.decode, b"{")))

    def test_value_of_other_type_is_not_sent(self):
        for wrong in (
            None,
            {"number": 17},
            self.payment.model_construct(number="x", amount=1.0),
            self.payment.model_construct(number=None, amount=1.0),
        ):
            self.assertRaises(ValueError, self.codec.encode, wrong)

    def test_other_types_than_models_are_supported(self):
        codec = PydanticCodec(list[int])
        self.assertEqual(codec.decode(codec.encode([1, 2])), [1, 2])


class AvroTests(SynchronousTestCase):
    def setUp(self):
        need_package("fastavro")
        self.codec = AvroCodec(SCHEMA)

    def test_record_is_read_back(self):
        body = self.codec.encode({"number": 17, "fruit": "apple"})
        self.assertEqual((body[:2], body[10:]), (b"\xc3\x01", b"\x22\x0aapple"))
        self.assertEqual(self.codec.decode(body), {"number": 17, "fruit": "apple"})

    def test_fingerprint_is_that_of_the_specification(self):
        # The example of the specification: 0x63DD24E7CC258F8A for the schema "null".
        self.assertEqual(AvroCodec({"type": "null"}).encode(None), bytes.fromhex("c3018a8f25cce724dd63"))

    def test_body_of_older_schema_is_read_as_the_present_one(self):
        body = AvroCodec(OLDER).encode({"number": 17})
        self.assertEqual(AvroCodec(SCHEMA, older=[OLDER]).decode(body), {"number": 17, "fruit": "pear"})
        error = self.assertRaises(ValueError, self.codec.decode, body)
        self.assertIn(f"unknown schema of fingerprint {body[2:10].hex()}: give it in older=", str(error))

    def test_bad_bodies_are_refused(self):
        body = self.codec.encode({"number": 17, "fruit": "apple"})
        for wrong in (b"", body[:9], b"{}" + body[2:], body[:-1], body + b"x", body[:11] + b"\x0f"):
            self.assertRaises(ValueError, self.codec.decode, wrong)

    def test_bad_values_and_schemas_are_refused(self):
        for wrong in ({"number": "x", "fruit": "y"}, {}, None, {"number": 2**40, "fruit": "y"}):
            self.assertRaises(ValueError, self.codec.encode, wrong)
        for wrong in ({"type": "nothing"}, {"type": "record"}):
            self.assertRaises(IllegalOptionError, AvroCodec, wrong)


class ProtobufTests(SynchronousTestCase):
    def setUp(self):
        need_package("google")
        from google.protobuf.timestamp_pb2 import Timestamp

        self.kind = Timestamp
        self.codec = ProtobufCodec(Timestamp)

    def test_message_is_read_back(self):
        self.assertEqual(self.codec.decode(self.codec.encode(self.kind(seconds=17))), self.kind(seconds=17))

    def test_other_bytes_values_and_classes_are_refused(self):
        self.assertIn("not a Timestamp", str(self.assertRaises(ValueError, self.codec.decode, b"\xff")))
        self.assertIn("dict is not a Timestamp", str(self.assertRaises(ValueError, self.codec.encode, {})))
        self.assertRaises(IllegalOptionError, ProtobufCodec, Order)


class PackageTests(SynchronousTestCase):
    def test_missing_package_is_named_with_the_command_that_installs_it(self):
        self.patch(packages, "find_spec", lambda name: None)
        for codec, package, extra in (
            (PydanticCodec, "pydantic", "pydantic"),
            (AvroCodec, "fastavro", "avro"),
            (ProtobufCodec, "google.protobuf", "protobuf"),
        ):
            error = self.assertRaises(IllegalOptionError, codec, {})
            text = f"{codec.__name__} needs the package {package}, which is not installed: "
            self.assertEqual(str(error), f"{text}pip install 'rocketd[{extra}]'")


class ContentTypeTests(SynchronousTestCase):
    def properties(self, message, codec):
        return decode_properties(outgoing_message(message, codec, "K", limit=1000, compress_over=1000).properties)

    def test_sent_message_has_content_type_of_codec(self):
        codec = MsgspecCodec(Order)
        self.assertEqual(self.properties(Message("T", Order(17)), codec)["content-type"], "application/json")
        own = Message("T", Order(17), properties={"content-type": "application/vnd.order+json"})
        self.assertEqual(self.properties(own, codec)["content-type"], "application/vnd.order+json")
        self.assertNotIn("content-type", self.properties(Message("T", b"x"), BYTES))
        part = batch_part(Message("T", Order(17)), codec, "K", limit=1000)
        self.assertIn(b"content-type\x01application/json", part.entry)

    def test_message_that_does_not_decode_or_has_other_content_type_becomes_dead_letter_with_reason(self):
        bodies = (
            (b'{"number":17}', "application/json; charset=utf-8"),
            (b'{"number":18}', "application/vnd.order+json"),
            (b'{"number":19}', None),
            (b'{"number":"x"}', "application/json"),
            (b"\xc3\x01", "application/avro"),
        )
        got = []
        with Cluster(topics=["T"]) as cluster:
            options = cluster.client_options()
            consumer = {"topics": "T", "handler": got.append, "codec": MsgspecCodec(Order), "max_reconsume_times": 0}
            with Producer("PG", **options) as producer, Consumer("CG", **consumer, **options):
                for body, content_type in bodies:
                    properties = {} if content_type is None else {"content-type": content_type}
                    producer.send(Message("T", body, properties=properties))
                cluster.advance(seconds=10)
            dead = cluster.messages("%DLQ%CG")
        self.assertEqual(sorted(message.body.number for message in got), [17, 18, 19])
        reasons = sorted(letter.properties["DEAD_LETTER_REASON"].partition("): ")[2] for letter in dead)
        self.assertEqual(len(reasons), 2)
        self.assertEqual(reasons[0], "the body is application/avro, the codec reads application/json")
        self.assertIn("the body is not the expected json", reasons[1])

    def test_batch_and_single_send_reach_consumer_as_values(self):
        got = []
        with Cluster(topics=["T"]) as cluster:
            options = {"codec": MsgspecCodec(Order, form="msgpack"), **cluster.client_options()}
            with (
                Producer("PG", **options) as producer,
                Consumer("CG", topics="T", handler=got.append, **options),
            ):
                producer.send(Message("T", Order(1)))
                producer.send_batch([Message("T", Order(2)), Message("T", Order(3))])
                cluster.settle()
                wrong = self.assertRaises(IllegalMessageError, producer.send, Message("T", object()))
        self.assertEqual(sorted(message.body.number for message in got), [1, 2, 3])
        self.assertIn("cannot be encoded: no msgpack can be made", str(wrong))
