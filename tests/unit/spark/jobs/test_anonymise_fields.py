import hashlib
import hmac
import json

import pyarrow as pa
from twisted.trial import unittest

from rocketd.spark.columns import arrow_schema
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.anonymise.fields import Action, Anonymiser, rule

SECRET = b"0123456789abcdef"


def token(text):
    return hmac.new(SECRET, text.encode(), hashlib.sha256).hexdigest()[:32]


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns, schema=arrow_schema(list(columns)))


def anonymiser(hashed=(), dropped=()):
    rules = [rule(field, Action.HASH) for field in hashed] + [rule(field, Action.DROP) for field in dropped]
    return Anonymiser(rules, SECRET)


class AnonymiserTests(unittest.TestCase):
    def test_keys_change_one_by_one_and_in_the_properties_too(self):
        worker = anonymiser(hashed=["keys"])
        changed = worker.apply(
            batch(keys=["a b", None], properties=[[("KEYS", "a b"), ("other", "x")], []], body=[b"1", b"2"])
        )
        both = f"{token('a')} {token('b')}"
        self.assertEqual(changed["keys"].to_pylist(), [both, None])
        self.assertEqual(changed["properties"].to_pylist(), [[("KEYS", both), ("other", "x")], []])
        self.assertEqual(changed["body"].to_pylist(), [b"1", b"2"])
        self.assertEqual(worker.touched, {"keys": 1})

    def test_property_rule_changes_the_matching_column(self):
        worker = anonymiser(hashed=["properties.TAGS"], dropped=["properties.phone"])
        changed = worker.apply(batch(tags=["x", None], properties=[[("TAGS", "x"), ("phone", "1")], [("phone", "2")]]))
        self.assertEqual(changed["tags"].to_pylist(), [token("x"), None])
        self.assertEqual(changed["properties"].to_pylist(), [[("TAGS", token("x"))], []])
        self.assertEqual(worker.touched, {"properties.TAGS": 1, "properties.phone": 2})

    def test_fields_of_json_bodies_are_changed(self):
        worker = anonymiser(hashed=["body.user.mail", "body.items.id"], dropped=["body.card"])
        document = {"user": {"mail": "a@b", "age": 3}, "items": [{"id": 1}, {"id": "2"}, {}], "card": 5}
        (changed,) = worker.apply(batch(body=[json.dumps(document).encode()]))["body"].to_pylist()
        self.assertEqual(
            json.loads(changed),
            {"user": {"mail": token("a@b"), "age": 3}, "items": [{"id": token("1")}, {"id": token("2")}, {}]},
        )
        self.assertEqual(worker.touched, {"body.user.mail": 1, "body.items.id": 2, "body.card": 1})

    def test_a_body_without_the_field_stays_byte_for_byte(self):
        (changed,) = anonymiser(hashed=["body.mail"]).apply(batch(body=[b'{ "x" : 1 }']))["body"].to_pylist()
        self.assertEqual(changed, b'{ "x" : 1 }')

    def test_half_a_pair_of_surrogates_stays_json(self):
        body = rb'{"name": "\ud800", "text": "\udc00"}'
        (changed,) = Anonymiser([rule("body.name", Action.HASH)], SECRET).apply(batch(body=[body]))["body"].to_pylist()
        self.assertEqual(json.loads(changed)["text"], "\udc00")

    def test_body_without_json_raises(self):
        with self.assertRaisesRegex(SparkError, "not JSON, so it has no body.mail"):
            anonymiser(hashed=["body.mail"]).apply(batch(body=[b"\xff"]))

    def test_whole_bodies_and_hosts(self):
        worker = anonymiser(hashed=["body", "born_host"])
        changed = worker.apply(batch(body=[b"x", None], born_host=["10.0.0.1:5", "[::1]:6"]))
        self.assertEqual(changed["body"].to_pylist(), [token("x").encode(), None])
        self.assertEqual(changed["born_host"].to_pylist(), [f"{token('10.0.0.1')}:5", f"{token('[::1]')}:6"])
        dropped = anonymiser(dropped=["body"]).apply(batch(body=[b"x"]))
        self.assertEqual(dropped["body"].to_pylist(), [b""])

    def test_another_secret_gives_other_tokens(self):
        one = Anonymiser([rule("tags", Action.HASH)], SECRET).token(b"x")
        other = Anonymiser([rule("tags", Action.HASH)], SECRET[::-1]).token(b"x")
        self.assertNotEqual(one, other)

    def test_unknown_field_and_short_secret_are_refused(self):
        for field in ("topic", "properties", "keys.x", "body.", ""):
            with self.assertRaisesRegex(OptionError, "there are keys, tags"):
                rule(field, Action.HASH)
        with self.assertRaisesRegex(OptionError, "the secret has 3 bytes; 16 or more"):
            Anonymiser([], b"abc")
