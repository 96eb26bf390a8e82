"""The pure parts of the pipeline's client: options, filters, messages, searches and the meaning of errors."""

import pickle
import struct
from dataclasses import replace
from datetime import datetime
from time import time
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.names import TOOLS_GROUP
from rocketd.protocol.message import property_text
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.spark.errors import ClusterError, NoAnswerError, OptionError
from rocketd.spark.ranges import Queue, ReadPlan
from rocketd.spark.wire import ClusterOptions, RawMessage, faults
from rocketd.spark.wire.faults import NoMasterError, patiently, refusal
from rocketd.spark.wire.message import MessageError, encode_batch, in_batches, may_batch
from rocketd.spark.wire.offsets import first_true
from rocketd.spark.wire.options import host_and_port, tls_context
from rocketd.spark.wire.pull import PipelinedPulls, subscription
from rocketd.spark.wire.request import make_request
from rocketd.spark.wire.unique_keys import unique_keys


class OptionsTests(SynchronousTestCase):
    def test_name_servers_are_parted(self):
        for text in ("a:1;b:2", " a:1 , b:2;", ["a:1", "b:2"], ["a:1;b:2", "a:1"]):
            self.assertEqual(ClusterOptions(text).namesrv, ("a:1", "b:2"))

    def test_addresses(self):
        self.assertEqual(host_and_port("[::1]:9876"), ("::1", 9876))
        self.assertEqual(host_and_port("mq.example:1"), ("mq.example", 1))
        for wrong in ("host", "host:", ":1", "::1:9876", "host:0", "host:65536", "host:x", "[::1]"):
            with self.assertRaisesRegex(OptionError, "HOST:PORT"):
                ClusterOptions(wrong)

    def test_incomplete_option_pairs_are_refused(self):
        for wrong, text in (
            ({"access_key": "a"}, "belong together"),
            ({"secret_key": "a"}, "belong together"),
            ({"security_token": "a"}, "needs the access key"),
            ({"tls_key": "a"}, "needs the certificate"),
            ({"timeout": 0}, "above zero"),
        ):
            with self.assertRaisesRegex(OptionError, text):
                ClusterOptions("a:1", **wrong)
        with self.assertRaisesRegex(OptionError, "no name server"):
            ClusterOptions(" ; ")

    def test_equal_options_are_equal_values(self):
        options = ClusterOptions("a:1", "key", "secret", timeout=3.0)
        self.assertEqual(pickle.loads(pickle.dumps(options)), options)
        self.assertEqual(hash(ClusterOptions("a:1", "key", "secret", timeout=3.0)), hash(options))
        self.assertEqual(replace(options, timeout=4.0).access_key, "key")
        self.assertNotIn("secret'", repr(options))

    def test_missing_tls_files_raise(self):
        with self.assertRaisesRegex(OptionError, "TLS files nowhere.pem cannot be used"):
            tls_context(ClusterOptions("a:1", tls=True, tls_ca="nowhere.pem"))


class FilterTests(SynchronousTestCase):
    def test_filter_expression_for_the_broker_has_its_tags(self):
        for tags, text in (
            (None, "*"),
            ({"a"}, "a"),
            ({"b", "a"}, "a || b"),
            ({"a", "*"}, "*"),  # the reader compares tags that no expression can name
            ({"a|b"}, "*"),
            ({"a", " b"}, "*"),
            ({""}, "*"),
        ):
            plan = ReadPlan(("body",), tags=None if tags is None else frozenset(tags))
            self.assertEqual(subscription(plan), ("TAG", text))
        self.assertEqual(subscription(ReadPlan(("body",), sql92="a > 1 ")), ("SQL92", "a > 1 "))

    def test_malformed_sql92_is_refused_before_the_request(self):
        for wrong in ("a >", "a = 1 b = 2", "a === 1"):
            with self.assertRaisesRegex(OptionError, "SQL92 filter"):
                subscription(ReadPlan(("body",), sql92=wrong))


class _Written:
    """Records the bytes that PipelinedPulls writes."""

    signs = False
    address = "here"

    def __init__(self):
        self.data = b""

    def expect(self):
        return 17

    def write(self, data, code):
        self.data += data


class PullTests(SynchronousTestCase):
    def test_pull_template_equals_the_encoded_header(self):
        for topic, expression in (("t", "*"), ("%RETRY%group", "a || b"), ("%d%%s%", 'x = "%d"'), ("bläu", "'")):
            connection = _Written()
            queue = Queue(topic, "broker-%d", 3)
            pulls = PipelinedPulls(connection, queue, 1234567890123, 1234567890133, TOOLS_GROUP, "TAG", expression)
            (frame,) = FrameDecoder().feed(connection.data)
            command = RemotingCommand.decode(frame)
            self.assertEqual((command.code, command.opaque), (11, 17))
            header = pulls._header(1234567890123, 10)
            self.assertEqual(command.ext_fields["queueOffset"], "1234567890123")
            self.assertEqual(command.ext_fields["maxMsgNums"], "10")
            self.assertEqual(command.ext_fields["topic"], header.topic)
            self.assertEqual(command.ext_fields["subscription"], expression)
            self.assertEqual(command.ext_fields["bname"], "broker-%d")


class SearchTests(SynchronousTestCase):
    @given(st.data())
    def test_first_true(self, data):
        lower = data.draw(st.integers(0, 50))
        upper = data.draw(st.integers(lower, lower + 200))
        first = data.draw(st.integers(lower, upper))
        hint = data.draw(st.integers(-10, upper + 10))
        asked = []

        def test(number):
            asked.append(number)
            return number >= first

        self.assertEqual(first_true(test, lower, upper, hint), first)
        self.assertEqual(len(set(asked)), len(asked))
        self.assertTrue(all(lower <= number < upper for number in asked))

    def test_a_good_hint_is_cheap(self):
        asked = []
        first_true(lambda number: asked.append(number) or number >= 500_000, 0, 1_000_000, 500_001)
        self.assertLess(len(asked), 6)


class MessageTests(SynchronousTestCase):
    def test_a_batch_holds_its_messages(self):
        messages = [RawMessage("t", b"one", "tag", "k1 k2", {"a": "ä"}, 5), RawMessage("t", b"two", unique_key="U")]
        batch = encode_batch(messages)
        position, found = 0, []
        while position < len(batch.body):
            size, magic, crc, flag, length = struct.unpack_from(">iiiii", batch.body, position)
            body = batch.body[position + 20 : position + 20 + length]
            (more,) = struct.unpack_from(">h", batch.body, position + 20 + length)
            text = batch.body[position + 22 + length : position + 22 + length + more].decode()
            self.assertEqual((size, magic, crc), (22 + length + more, 0, 0))
            found.append((flag, body, dict(entry.split("\x01") for entry in text.split("\x02") if entry)))
            position += size
        key, _ = batch.unique_keys
        self.assertEqual(
            found,
            [
                (5, b"one", {"a": "ä", "TAGS": "tag", "KEYS": "k1 k2", "UNIQ_KEY": key, "WAIT": "true"}),
                (0, b"two", {"UNIQ_KEY": "U", "WAIT": "true"}),
            ],
        )

    def test_batches_keep_the_order(self):
        messages = [RawMessage("t", b"x" * 1000) for _ in range(10)]
        messages[4] = RawMessage("t", b"later", delay_level=3)
        messages[7] = RawMessage("other", b"x")
        parts = list(in_batches(messages, 3600))
        self.assertEqual([one for part in parts for one in part], messages)
        self.assertEqual([len(part) for part in parts], [2, 2, 1, 2, 1, 2])
        for part in parts:
            make_request("g", Queue("t", "b", 0), part)

    @given(st.lists(st.tuples(st.sampled_from("tu"), st.integers(1, 50), st.booleans())), st.integers(1, 2000))
    def test_parts_can_be_sent(self, given_, limit):
        messages = [RawMessage(topic, b"x" * size, delay_level=int(late)) for topic, size, late in given_]
        parts = list(in_batches(messages, limit))
        self.assertEqual([one for part in parts for one in part], messages)
        self.assertTrue(all(len(part) == 1 or may_batch(part) for part in parts))

    def test_illegal_message_is_refused(self):
        queue = Queue("t", "b", 0)
        for message, text in (
            (RawMessage("t", b""), "body is empty"),
            (RawMessage("t t", b"x"), "illegal characters"),
            (RawMessage("t", b"x", properties={"a": "b\x02c\x01d"}), "separate properties"),
            (RawMessage("t", b"x", properties={"a": "b\x01c"}), "separate properties"),
            (RawMessage("t", b"x", properties={"a": "\ud800"}), "UTF-8"),
            (RawMessage("t", b"x", properties={"a": "x" * 32767}), "more than 32767"),
        ):
            with self.assertRaisesRegex(MessageError, text):
                make_request("g", queue, [message])
        with self.assertRaisesRegex(ValueError, "in_batches"):
            make_request("g", queue, [RawMessage("t", b"x"), RawMessage("u", b"x")])

    def test_a_stored_message_goes_as_it_was(self):
        message = RawMessage("t", b"x", properties={"UNIQ_KEY": "K", "TAGS": "a", "own": "1"})
        request = make_request("g", Queue("t", "b", 0), [message])
        self.assertEqual(request.unique_keys, ("K",))
        self.assertEqual(
            request.header.properties, property_text({"UNIQ_KEY": "K", "TAGS": "a", "own": "1", "WAIT": "true"})
        )

    def test_unique_keys(self):
        keys = [*unique_keys(70_000), *unique_keys(3)]
        self.assertEqual(len(set(keys)), 70_003)
        self.assertEqual({len(key) for key in keys}, {32})
        first = datetime.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()
        self.assertLess(abs(int(keys[0][20:28], 16) / 1000 - (time() - first)), 3600)
        with mock.patch("os.getpid", return_value=1):
            self.assertNotEqual(unique_keys(1)[0][:20], keys[0][:20])


class FaultTests(SynchronousTestCase):
    def _refusal(self, code, remark, request=310):
        return refusal("broker b at h:1", request, RemotingCommand.response(code, remark))

    def test_faults_are_classified_by_code_and_remark(self):
        for code, remark, retriable, doubtful in (
            (2, "[TIMEOUT_CLEAN_QUEUE]broker busy", True, False),
            (14, "service not available now", True, False),
            (1, "java.lang.NullPointerException", True, True),
            (1, "org.apache.rocketmq.acl.common.AclException: No acl config", False, False),
            (1, "request queueId[9] is illegal", False, False),
            (13, "the message is illegal", False, False),
            (16, "the topic[t] sending message is forbidden", False, False),
            (17, "topic[t] not exist, apply first please!\nSee more", False, False),
        ):
            error = self._refusal(code, remark)
            self.assertEqual((error.code, error.retriable, error.doubtful), (code, retriable, doubtful), remark)
            self.assertNotIn("\n", str(error))

    def test_fault_text_names_broker_code_and_remedy(self):
        self.assertEqual(
            str(self._refusal(17, "topic[t] not exist")),
            "broker b at h:1 refused SEND_MESSAGE_V2 (310): TOPIC_NOT_EXIST (17): topic[t] not exist; create the topic, or "
            "check its name",
        )
        self.assertIn("enablePropertyFilter=true", str(self._refusal(1, "does not support consumer to filter by", 11)))

    def test_patience(self):
        def failing(**how):
            def attempt():
                tries.append(1)
                raise NoMasterError("away", 5, **how)

            return attempt

        tries, clock = [], Clock()
        self.patch(faults, "monotonic", clock.seconds)
        self.patch(faults, "sleep", clock.advance)
        with self.assertRaisesRegex(NoMasterError, r"away \(tried 6 times in 2 s\)") as caught:
            patiently(failing(retriable=True, doubtful=True), 2)
        self.assertAlmostEqual(clock.seconds(), 0.05 + 0.1 + 0.2 + 0.4 + 0.8)
        self.assertEqual(
            (caught.exception.code, caught.exception.retriable, caught.exception.doubtful), (5, True, True)
        )
        self.assertIsInstance(caught.exception, NoAnswerError)
        for how, more in (({}, {}), ({"retriable": True, "doubtful": True}, {"repeat_doubtful": False})):
            tries.clear()
            with self.assertRaises(ClusterError):
                patiently(failing(**how), 60, **more)
            self.assertEqual(len(tries), 1)
