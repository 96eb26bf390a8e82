"""The decoder of busy request codes: both ways give the same requests and the same refusals."""

import json

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.remoting.errors import FrameError, RequestError
from rocketd.remoting.headers.client import Header, Int
from rocketd.remoting.interfaces import IFieldsHook, IRPCHook
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.request_decoder import DecodedRequest, RequestDecoder
from rocketd.remoting.wire.codes import ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.broker import RecordingConnection

CODE, SHORT_CODE, OTHER_CODE = 310, 10, 105


class PlaceHeader(Header):
    topic: str
    queue_id: Int
    batch: bool = False


class ShortPlaceHeader(Header, rename={"topic": "a", "queue_id": "b", "batch": "m"}):
    topic: str
    queue_id: Int
    batch: bool = False


@implementer(IFieldsHook)
class FieldsHook:
    """Refuses the topic "secret", and records its calls."""

    def __init__(self):
        self.seen = []

    def before_fields(self, address, code, fields, body):
        self.seen.append((address, code, dict(fields), bytes(body)))
        self._check(fields)

    def before_request(self, address, request):
        self._check(request.ext_fields)

    def after_response(self, address, request, response):
        pass

    def _check(self, fields):
        if fields["a"] == "secret":
            raise RequestError(ResponseCode.NO_PERMISSION, "a secret")


@implementer(IRPCHook)
class CommandHook:
    """A hook that needs the command."""

    def __init__(self):
        self.codes = []

    def before_request(self, address, request):
        self.codes.append(request.code)

    def after_response(self, address, request, response):
        pass


class RequestDecoderTests(SynchronousTestCase):
    def setUp(self):
        self.calls = []
        self.connection = RecordingConnection()

    def decode(self, header, *hooks, serialize_type=SerializeType.JSON, body=b"x"):
        """Decode one frame with a new decoder."""
        dispatcher = Dispatcher(lambda function, *arguments: self.calls.append((function, arguments)), hooks)
        headers = {SHORT_CODE: PlaceHeader, CODE: ShortPlaceHeader}
        decoder = RequestDecoder(dispatcher, headers, DecodedRequest)
        decoder.refresh()
        self.dispatcher = dispatcher
        return decoder.decode(self.connection, (serialize_type, header, body))

    def header(self, code=CODE, flag=0, opaque=7, version=401, **fields):
        entries = {"code": code, "extFields": {"a": "T", "b": "3", **fields}, "flag": flag, "opaque": opaque}
        return json.dumps({**entries, "version": version}, separators=(",", ":")).encode()

    def assert_decoded(self, request, opaque=7, oneway=False, batch=False):
        self.assertEqual(
            (request.connection, request.opaque, request.is_oneway, request.version),
            (self.connection, opaque, oneway, 401),
        )
        header = request.header
        self.assertEqual((header.topic, header.queue_id, header.batch), ("T", 3, batch))

    def test_common_form_is_decoded(self):
        self.assert_decoded(self.decode(self.header()))
        self.assert_decoded(self.decode(self.header(flag=2, m="true")), oneway=True, batch=True)

    def test_each_code_has_its_header_class(self):
        request = self.decode(self.header(SHORT_CODE, topic="T", queueId="3"))
        self.assertIsInstance(request.header, PlaceHeader)
        self.assert_decoded(request)

    def test_unusual_forms_are_decoded(self):
        plus = self.header(b="+3")
        spaced = self.header().replace(b":", b" : ")
        for header in (plus, spaced):
            self.assert_decoded(self.decode(header))
        command = RemotingCommand(CODE, {"a": "T", "b": "3"}, opaque=7, version=401)
        command.serialize_type = SerializeType.ROCKETMQ
        data = command.encode()
        request = self.decode(data[8 : 8 + int.from_bytes(data[5:8], "big")], serialize_type=SerializeType.ROCKETMQ)
        self.assert_decoded(request)
        self.assertEqual(request.serialize_type, SerializeType.ROCKETMQ)

    def test_flag_that_is_one_is_false(self):
        for hooks in ((), (FieldsHook(),), (CommandHook(),)):
            self.assert_decoded(self.decode(self.header(m="1"), *hooks), batch=False)

    def test_fields_hook_sees_fields_and_body_once(self):
        hook = FieldsHook()
        self.assert_decoded(self.decode(self.header(), hook))
        self.assertEqual(hook.seen, [(self.connection.address, CODE, {"a": "T", "b": "3"}, b"x")])

    def test_command_hook_sees_command(self):
        hook = CommandHook()
        self.assert_decoded(self.decode(self.header(), hook))
        self.assertEqual(hook.codes, [CODE])

    def test_refusal_of_hook_is_answered(self):
        self.assertIsNone(self.decode(self.header(a="secret"), FieldsHook()))
        (answer,) = self.connection.answers()
        self.assertEqual((answer.code, answer.remark, answer.opaque), (ResponseCode.NO_PERMISSION, "a secret", 7))

    def test_oneway_refused_by_hook_is_counted_as_lost(self):
        self.assertIsNone(self.decode(self.header(a="secret", flag=2), FieldsHook()))
        self.assertEqual(self.connection.answers(), [])
        counts = {"one-way requests lost": 1, "one-way requests lost, no-permission": 1}
        self.assertEqual(self.dispatcher.limits.counts, counts)

    def test_header_without_required_field_is_refused_by_name(self):
        header = self.header().replace(b'"b":"3"', b'"c":"3"')
        self.assertIsNone(self.decode(header))
        (answer,) = self.connection.answers()
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("b", answer.remark)

    def test_header_that_names_another_code_as_well_is_refused(self):
        for hooks in ((), (FieldsHook(),), (CommandHook(),)):
            header = self.header().replace(b'"flag"', b'"code":%d,"flag"' % OTHER_CODE)
            self.assertIsNone(self.decode(header, *hooks))
        self.assertEqual(
            [answer.code for answer in self.connection.answers()], [ResponseCode.REQUEST_CODE_NOT_SUPPORTED] * 3
        )

    def test_response_goes_to_invoke_layer(self):
        for hooks in ((), (FieldsHook(),)):
            self.assertIsNone(self.decode(self.header(flag=1), *hooks))
            (function, (connection, response)) = self.calls.pop()
            self.assertEqual((function, connection), (self.dispatcher.answers.take_response, self.connection))
            self.assertEqual(response.opaque, 7)
        self.assertEqual(self.connection.answers(), [])

    def test_bytes_that_are_not_a_header_raise(self):
        self.assertRaises(FrameError, self.decode, b'{"code":310,')
