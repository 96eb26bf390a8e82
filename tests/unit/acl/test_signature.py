"""Signatures, compared with those of Apache's clients."""

import base64
import hmac
import json
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.acl.credentials import Credentials
from rocketd.acl.credentials_file import read_credentials
from rocketd.acl.errors import AclFileError
from rocketd.acl.signature import Secret, _signed_values, signed_content
from rocketd.remoting.calling.signing import SigningHook
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.places import FRAMES

RECORDED = FRAMES / "acl4.jsonl"
SECRETS = {"adminKey": Secret(b"adminSecret1"), "userKey1": Secret(b"userSecret1")}
STOCK = Secret(b"12345678")


def recorded():
    """Yield the place in the file and the command of every recorded request."""
    for number, line in enumerate(RECORDED.read_text().splitlines(), 1):
        entry = json.loads(line)
        if entry["kind"] == "request":
            (frame,) = FrameDecoder().feed(bytes.fromhex(entry["hex"]))
            yield number, RemotingCommand.decode(frame)


class SignatureTests(SynchronousTestCase):
    def test_signature_of_known_request(self):
        content = signed_content({"topic": "TopicTest", "queueId": "3", "AccessKey": "RocketMQ"}, b"hello")
        self.assertEqual(content, b"RocketMQ3TopicTesthello")
        self.assertEqual(STOCK.sign(content), b"481uDC2zg2EaErJJQ/+C6SFdJxM=")

    def test_signatures_of_recorded_requests(self):
        good = 0
        for number, request in recorded():
            fields = request.ext_fields
            secret = SECRETS.get(fields["AccessKey"])
            # The recording has requests of a client with a wrong secret, by design.
            right = secret is not None and secret.has_signed(signed_content(fields, request.body), fields["Signature"])
            self.assertEqual(right, number not in (17, 19, 22), f"line {number}")
            good += right
        self.assertEqual(good, 14)

    def test_keys_of_every_length(self):
        for length in (0, 1, 63, 64, 65, 200):
            key = bytes(range(256))[:length]
            expected = base64.b64encode(hmac.digest(key, b"content", "sha1"))
            self.assertEqual(Secret(key).sign(b"content"), expected, length)

    def test_signed_content_leaves_out_signature_and_unique_key_flag(self):
        fields = {"b": "2", "Signature": "x", "_UNIQUE_KEY_QUERY": "true", "a": "1"}
        self.assertEqual(signed_content(fields, None), b"12")

    def test_requests_with_unusual_field_counts_are_not_cached(self):
        before = _signed_values.cache_info()
        for number in range(3):
            fields = {f"f{number}-{n}": str(n % 10) for n in range(100)}
            self.assertEqual(signed_content(fields, None).decode(), "".join(fields[name] for name in sorted(fields)))
        self.assertEqual(_signed_values.cache_info(), before)

    def test_wrong_or_missing_signature_is_refused(self):
        for signature in (None, "", "481uDC2zg2EaErJJQ/+C6SFdJxM", "ž", "A" * 28):
            self.assertFalse(STOCK.has_signed(b"RocketMQ3TopicTesthello", signature))

    def test_signed_content_replaces_lone_surrogate(self):
        self.assertEqual(signed_content({"a": "\ud800"}, b""), b"?")


class CredentialsTests(SynchronousTestCase):
    def write(self, text):
        path = self.mktemp()
        Path(path).write_text(text)
        return path

    def test_sign_adds_access_key_and_signature(self):
        signed = Credentials("RocketMQ", "12345678").sign({"topic": "TopicTest", "queueId": "3"}, b"hello")
        self.assertEqual(signed["Signature"], "481uDC2zg2EaErJJQ/+C6SFdJxM=")
        self.assertEqual(list(signed), ["topic", "queueId", "AccessKey", "Signature"])

    def test_security_token_is_signed(self):
        signed = Credentials("key", "secret", "token").sign(None, None)
        self.assertEqual(signed_content(signed, None), b"keytoken")
        self.assertTrue(Secret(b"secret").has_signed(b"keytoken", signed["Signature"]))

    def test_sign_twice_gives_same_fields(self):
        credentials = Credentials("RocketMQ", "12345678")
        once = credentials.sign({"a": "1"}, None)
        self.assertEqual(credentials.sign(once, None), once)

    def test_signing_hook_signs_request(self):
        hook = SigningHook(Credentials("RocketMQ", "12345678"))
        verifyObject(IRPCHook, hook)
        request = RemotingCommand(34, None, b"{}")
        hook.before_request("127.0.0.1:10911", request)
        self.assertTrue(STOCK.has_signed(b"RocketMQ{}", request.ext_fields["Signature"]))

    def test_read_credentials_of_file(self):
        credentials = read_credentials(self.write("accessKey: rocketmq2\nsecretKey: 01234567\n"))
        self.assertEqual(credentials.sign({}, None), Credentials("rocketmq2", "01234567").sign({}, None))
        self.assertNotIn("01234567", str(vars(credentials)))

    def test_read_credentials_of_malformed_file_fails_without_secret(self):
        for text, what in (
            ("accessKey: rocketmq2\n", "accessKey and secretKey must both be present"),
            ("- a\n", "accessKey and secretKey must both be present"),
            ("accessKey: a\nsecretKey: b: s3cret\n", "line 2, column 13"),
            ("secretKey: !s3cret x\n", "line 1, column 12"),
            ("secretKey: *s3cret\n", "line 1, column 12"),
        ):
            error = str(self.assertRaises(AclFileError, read_credentials, self.write(text)))
            self.assertIn(what, error)
            self.assertNotIn("s3cret", error)

    def test_read_credentials_of_missing_file_fails(self):
        path = os.path.join(self.mktemp(), "tools.yml")
        self.assertIn("No such file", str(self.assertRaises(AclFileError, read_credentials, path)))
