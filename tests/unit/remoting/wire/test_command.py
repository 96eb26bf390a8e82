from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.errors import FrameError
from rocketd.remoting.wire.codes import LanguageCode, RequestCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.examples import examples

SEND_V2 = bytes.fromhex(
    "000000920100008e013600019700000003000000000000000000000079000161000000027067000162000000015400016300000006544257"
    "313032000164000000013400016500000001310001660000000130000167000000013100016800000001300001690000000361016200016a"
    "000000013000016b0000000566616c736500016d0000000566616c736500016e000000026272"
)
SEND_V2_FIELDS = {
    "a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0", "i": "a\x01b\x02"[:3],
    "j": "0", "k": "false", "m": "false", "n": "br",
}  # fmt: skip


def through(command):
    (frame,) = FrameDecoder().feed(command.encode())
    return RemotingCommand.decode(frame)


def json_command(text, body=b""):
    return RemotingCommand.decode((0, text if isinstance(text, bytes) else text.encode(), body))


class RemotingCommandTests(SynchronousTestCase):
    def test_opaque_counts_up(self):
        self.assertEqual(RemotingCommand(10).opaque + 1, RemotingCommand(10).opaque)

    def test_response_and_oneway_flags(self):
        self.assertFalse(RemotingCommand(10).is_response)
        self.assertFalse(RemotingCommand(10).is_oneway)
        self.assertTrue(RemotingCommand(10, flag=2).is_oneway)
        self.assertTrue(RemotingCommand.response().is_response)

    def test_answer_has_opaque_and_serialization_of_request(self):
        request = RemotingCommand(10, opaque=77, serialize_type=SerializeType.ROCKETMQ)
        answer = RemotingCommand.response(3, "why").answering(request)
        self.assertEqual((answer.opaque, answer.flag, answer.serialize_type), (77, 1, SerializeType.ROCKETMQ))

    def test_both_forms_carry_everything(self):
        for serialize_type in SerializeType:
            command = RemotingCommand(
                310, {"a": "ä €", "b": '"\\\n\x01'}, b"\x00body", remark="r\tä", flag=3, opaque=-5,
                language=LanguageCode.GO, version=479, serialize_type=serialize_type,
            )  # fmt: skip
            again = through(command)
            for name in RemotingCommand.__slots__:
                self.assertEqual(getattr(again, name), getattr(command, name), name)

    def test_encode_parts_does_not_copy_body(self):
        body = b"x" * 1_000_000
        for serialize_type in SerializeType:
            command = RemotingCommand(310, {"a": "b"}, body, serialize_type=serialize_type)
            header, sent = command.encode_parts()
            self.assertIs(sent, body)
            self.assertEqual(header, command.encode_header(len(body)))
            self.assertEqual(command.encode(), header + body)
            views = (memoryview(body)[:10], memoryview(body)[10:])
            answer = RemotingCommand.response(buffers=views)
            self.assertIs(answer.encode_parts()[1], views[0])
            self.assertEqual(through(answer).body, body)

    def test_absent_and_empty_body_are_the_same(self):
        self.assertIsNone(through(RemotingCommand(10, body=b"")).body)
        self.assertIsNone(through(RemotingCommand(10)).body)

    def test_repr_is_short_and_names_the_code(self):
        text = repr(RemotingCommand(310, {"i": "x" * 10_000}, b"12", remark="r" * 1000))
        self.assertIn("request SEND_MESSAGE_V2 (310)", text)
        self.assertIn("body=2 bytes", text)
        self.assertLess(len(text), 800)
        self.assertIn("response 3", repr(RemotingCommand.response(3)))
        self.assertIn("oneway 9999", repr(RemotingCommand(9999, flag=2)))


class JSONHeaderTests(SynchronousTestCase):
    def test_json_header_equals_java(self):
        command = RemotingCommand(105, {"topic": "TBW102"}, opaque=0, language=LanguageCode.JAVA)
        self.assertEqual(
            command.encode()[8:],
            b'{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA","opaque":0,'
            b'"serializeTypeCurrentRPC":"JSON","version":407}',
        )
        answer = RemotingCommand.response().answering(RemotingCommand(0, opaque=1))
        answer.language = LanguageCode.JAVA
        self.assertEqual(
            answer.encode()[8:],
            b'{"code":0,"flag":1,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":407}',
        )

    def test_text_is_not_escaped_beyond_need(self):
        header = RemotingCommand(1, {"a": "ä/\n\x01"}, remark='"').encode()[8:].decode()
        self.assertIn('"extFields":{"a":"ä/\\n\\u0001"}', header)
        self.assertIn('"remark":"\\""', header)

    def test_json_headers_of_cpp_and_node_are_read(self):
        command = json_command(
            '{"code":"10","extFields":{"queueId":3,"batch":false,"x":null,"f":1.5},"flag":0,"language":1,"opaque":"7",'
            '"remark":"","version":63}\n'
        )
        self.assertEqual(command.code, 10)
        self.assertEqual(command.opaque, 7)
        self.assertEqual(command.language, LanguageCode.CPP)
        self.assertEqual(command.remark, "")
        self.assertEqual(command.ext_fields, {"queueId": "3", "batch": "false", "f": "1.5"})

    def test_absent_json_members_have_defaults(self):
        command = json_command("{}")
        self.assertEqual((command.code, command.opaque, command.flag, command.version), (0, 0, 0, 0))
        self.assertIsNone(command.ext_fields)
        self.assertIsNone(command.remark)

    def test_unknown_json_languages_are_other(self):
        for sent, read in (('"go"', "GO"), ('"KLINGON"', "OTHER"), ("99", "OTHER"), ("null", "OTHER"), ("12", "RUST")):
            self.assertEqual(json_command(f'{{"language":{sent}}}').language, LanguageCode[read], sent)

    def test_malformed_json_header_is_a_frame_error(self):
        for text in (
            b"", b"[]", b"1", b"null", b"{", b'{"code":1}x', b'{"code":[]}', b'{"code":"x"}', b'{"code":1,"extFields":[]}',
            b'{"opaque":{}}', b"\xff\xfe", b'{"a":' * 10_000, b"[" * 1_000_000, b'{"flag":1e999}',
        ):  # fmt: skip
            with self.assertRaises(FrameError, msg=text[:30]):
                json_command(text)

    def test_odd_utf8_becomes_the_replacement_character(self):
        self.assertEqual(json_command(b'{"code":1,"remark":"a\xff"}').remark, "a\ufffd")

    @given(st.binary(max_size=200))
    @settings(max_examples=examples(300), deadline=None)
    def test_any_bytes_are_a_command_or_a_frame_error(self, data):
        for kind in (0, 1):
            try:
                RemotingCommand.decode((kind, data, b"")).encode()
            except FrameError:
                pass


class BinaryHeaderTests(SynchronousTestCase):
    def refused(self, header, pattern):
        with self.assertRaisesRegex(FrameError, pattern):
            RemotingCommand.decode((1, header, b""))

    def test_recorded_binary_header_is_read(self):
        (frame,) = FrameDecoder().feed(SEND_V2)
        command = RemotingCommand.decode(frame)
        self.assertEqual(command.code, RequestCode.SEND_MESSAGE_V2)
        self.assertEqual(command.language, LanguageCode.JAVA)
        self.assertEqual((command.version, command.opaque, command.flag), (407, 3, 0))
        self.assertIsNone(command.remark)
        self.assertIsNone(command.body)
        self.assertEqual(command.ext_fields, SEND_V2_FIELDS)
        self.assertEqual(command.encode(), SEND_V2)

    def test_smallest_binary_header(self):
        command = RemotingCommand(105, opaque=1, serialize_type=1, language=0)
        self.assertEqual(command.encode()[8:].hex(), "006900019700000001000000000000000000000000")
        self.assertIsNone(through(command).ext_fields)

    def test_empty_text_reads_as_absent(self):
        command = RemotingCommand(1, {"a": "", "b": "x"}, remark="", serialize_type=1)
        self.assertEqual(through(command).ext_fields, {"b": "x"})
        self.assertIsNone(through(command).remark)

    def test_code_and_version_must_fit(self):
        for command in (
            RemotingCommand(70_000, serialize_type=1),
            RemotingCommand(1, version=40_000, serialize_type=1),
        ):
            with self.assertRaises(FrameError):
                command.encode()

    def test_unknown_language_reads_as_other(self):
        header = pack(">hBhiiii", 1, 200, 407, 1, 0, 0, 0)
        self.assertEqual(RemotingCommand.decode((1, header, b"")).language, LanguageCode.OTHER)

    def test_truncated_binary_headers_are_refused(self):
        (frame,) = FrameDecoder().feed(SEND_V2)
        for size in range(len(frame[1])):
            self.refused(frame[1][:size], ".")

    def test_lengths_beyond_header_are_refused(self):
        fixed = pack(">hBhii", 1, 0, 407, 1, 0)
        self.refused(fixed + pack(">ii", -1, 0), "remark of -1 bytes")
        self.refused(fixed + pack(">ii", 1, 0), "remark of 1 bytes")
        self.refused(fixed + pack(">ii", 0, 5), "fields of 5 bytes")
        self.refused(fixed + pack(">ii", 0, -5), "fields of -5 bytes")
        self.refused(fixed + pack(">ii", 2**31 - 1, 0), "remark of 2147483647 bytes")
        self.refused(fixed + pack(">iiH", 0, 2, 9), "field name extends beyond")
        self.refused(fixed + pack(">ii", 0, 1) + b"x", "field name's length is cut off")
        self.refused(fixed + pack(">iiHsi", 0, 7, 1, b"k", 1), "field value extends beyond")
        self.refused(fixed + pack(">iiHsi", 0, 7, 1, b"k", -1), "field value extends beyond")

    def test_value_beyond_fields_is_refused(self):
        header = pack(">hBhiiiiHsi", 1, 0, 407, 1, 0, 0, 7, 1, b"k", 3) + b"abc"
        self.refused(header, "field value extends beyond")

    def test_invalid_utf8_is_refused(self):
        self.refused(pack(">hBhiii", 1, 0, 407, 1, 0, 1) + b"\xff" + pack(">i", 0), "cannot be decoded")
