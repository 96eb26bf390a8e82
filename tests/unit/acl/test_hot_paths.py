"""Sends and pulls under access control: no encoding of a request gets past the hooks."""

import json
import os
from struct import pack
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rocketd.acl.accounts import Account, AccountConfig
from rocketd.acl.addresses import address_rule
from rocketd.acl.credentials import Credentials
from rocketd.acl.rules import AccessRules
from rocketd.broker.access.access_control import AccessControl
from rocketd.broker.pull.processor import PullMessageProcessor
from rocketd.broker.send.processor import SendMessageProcessor
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IFieldsHook, IRPCHook
from rocketd.remoting.serving.answers import fields_hooks
from rocketd.remoting.wire.codes import ResponseCode, SerializeType
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from tests.support.broker import RecordingConnection, SmallBroker, job_of

USER = Credentials("userKey1", "userSecret1")
WRONG = Credentials("userKey1", "wrongSecret")
ACCOUNT = AccountConfig(
    "userKey1", "userSecret1", topic_perms=["Sent=PUB", "Read=SUB", "Both=PUB|SUB"], group_perms=["G=SUB"]
)
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


def send(topic, *, by=USER, code=310, flag=0, serialize_type=SerializeType.JSON, body=b"hello", batch="false"):
    values = ("P", topic, "TBW102", "4", "0", "0", "1700000000000", "0", "", "0", "false")
    names = (
        *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"),
        *("flag", "properties", "reconsumeTimes", "unitMode"),
    )
    fields = dict(zip(names if code == 10 else "abcdefghijk", values, strict=True))
    fields["batch" if code == 10 else "m"] = batch
    signed = by.sign(fields, body) if by else fields
    return RemotingCommand(code, signed, body, flag=flag, serialize_type=serialize_type)


def pull(topic="Read", group="G", *, by=USER, code=11, flag=0, serialize_type=SerializeType.JSON):
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "0",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
    }
    return RemotingCommand(code, by.sign(fields, None) if by else fields, flag=flag, serialize_type=serialize_type)


def two_codes(command, other):
    """Encode a request whose header names another code as well, behind the one that is peeked at."""
    header = json.dumps({"extFields": command.ext_fields, "opaque": command.opaque, "flag": 0, "version": 407})
    data = f'{{"code":{command.code},"code":{other},{header[1:]}'.encode()
    body = command.body or b""
    return pack(">II", 4 + len(data) + len(body), len(data)) + data + body


@implementer(IRPCHook)
class CountingHook:
    """A hook that needs commands."""

    def __init__(self, error=None):
        self.seen = []
        self._error = error

    def before_request(self, address, request):
        self.seen.append(request.code)
        if self._error:
            raise self._error

    def after_response(self, address, request, response):
        pass


class HotPathTestCase(SynchronousTestCase):
    processor_type = None

    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        for topic in ("Sent", "Read", "Both"):
            self.broker.topics.update(TopicConfig(topic, 1, 1))
        self.rules(AccessRules([Account.of(ACCOUNT)]))
        self.processor = self.processor_type(self.broker)
        self.connection = RecordingConnection()

    def rules(self, rules, **how):
        self.access = AccessControl(SimpleNamespace(rules=rules), **how)
        self.broker.dispatcher.answers.hooks = (self.access,)

    def process(self, *commands):
        self.processor.process_jobs([job_of(self.processor, self.connection, *commands)])
        return self.connection.answers()

    def refused(self, command):
        (answer,) = self.process(command)
        self.assertEqual((answer.code, answer.opaque), (ResponseCode.SYSTEM_ERROR, command.opaque))
        self.assertTrue(answer.remark.startswith(EXCEPTION), answer.remark)
        return answer.remark[len(EXCEPTION) :].partition("; cause: ")[0]


class SendTests(HotPathTestCase):
    processor_type = SendMessageProcessor

    def stored(self):
        return self.broker.store.messages_put

    def test_interface(self):
        verifyObject(IFieldsHook, self.access)

    def test_allowed_send_succeeds_in_every_form(self):
        for number, form in enumerate(
            (
                {},
                {"code": 10},
                {"serialize_type": SerializeType.ROCKETMQ},
                {"serialize_type": SerializeType.ROCKETMQ, "code": 10},
            ),
            1,
        ):
            (answer,) = self.process(send("Sent", **form))
            self.assertEqual(answer.code, ResponseCode.SUCCESS, f"{form} {answer.remark}")
            self.assertEqual(self.stored(), number)

    def test_refused_send_fails_in_every_form(self):
        for form in (
            {},
            {"code": 10},
            {"serialize_type": SerializeType.ROCKETMQ},
            {"serialize_type": SerializeType.ROCKETMQ, "code": 10},
        ):
            self.assertEqual(self.refused(send("Read", **form)), "No default permission for topic:Read")
            self.assertEqual(self.refused(send("Sent", by=None, **form)), "No accessKey is configured")
            self.assertEqual(
                self.refused(send("Sent", by=WRONG, **form)), "Check signature failed for accessKey=userKey1"
            )
            self.assertEqual(self.process(send("Read", flag=ONEWAY_FLAG, **form)), [])
        self.assertEqual(self.stored(), 0)

    def test_send_with_changed_body_is_refused(self):
        command = send("Sent")
        command.body = b"hellO"
        self.assertEqual(self.refused(command), "Check signature failed for accessKey=userKey1")

    def test_send_with_json_number_field_succeeds(self):
        command = send("Sent")
        header = {"code": 310, "extFields": {**command.ext_fields, "e": 0}, "opaque": 1, "flag": 0, "version": 407}
        data = json.dumps(header, separators=(",", ":")).encode()
        (answer,) = self.process(pack(">II", 4 + len(data) + 5, len(data)) + data + b"hello")
        self.assertEqual(answer.code, ResponseCode.SUCCESS, answer.remark)

    def test_refused_send_leaves_other_sends_of_chunk_alone(self):
        good, bad, more = send("Sent"), send("Read"), send("Both")
        answers = {answer.opaque: answer.code for answer in self.process(good, bad, more)}
        self.assertEqual(answers, {good.opaque: 0, bad.opaque: 1, more.opaque: 0})
        self.assertEqual(self.stored(), 2)

    def test_send_with_second_code_in_header_is_refused(self):
        for other in (28, 30, 36):
            (answer,) = self.process(two_codes(send("Read"), other))
            self.assertEqual(answer.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.assertEqual(self.stored(), 0)

    def test_strict_batch_send_needs_pub(self):
        record = pack(">iiiii", 27, 0, 0, 0, 5) + b"hello" + pack(">h", 0)
        command = send("Read", code=320, body=record, batch="true")
        (answer,) = self.process(command)
        self.assertEqual(answer.code, ResponseCode.SUCCESS)
        self.rules(AccessRules([Account.of(ACCOUNT)], strict=True), strict=True)
        self.assertEqual(self.refused(command), "No default permission for topic:Read")
        (answer,) = self.process(send("Sent", code=320, body=record, batch="true"))
        self.assertEqual(answer.code, ResponseCode.SUCCESS)

    def test_send_from_white_address_needs_no_signature(self):
        self.rules(AccessRules(white=[address_rule("127.0.0.1")]))
        (answer,) = self.process(send("Anything", by=None))
        self.assertEqual(answer.code, ResponseCode.SUCCESS)

    def test_replaced_rules_apply_to_next_request(self):
        manager = self.access.manager
        self.assertEqual(len(self.process(send("Sent"))), 1)
        manager.rules = AccessRules()
        self.assertEqual(self.refused(send("Sent")), "No acl config for userKey1")

    def test_command_hooks_see_every_send(self):
        hook = CountingHook()
        self.broker.dispatcher.answers.hooks = (self.access, hook)
        self.assertIsNone(fields_hooks(self.broker.dispatcher.answers.hooks))
        self.process(send("Sent"), send("Sent", code=10))
        self.assertEqual(hook.seen, [310, 10])
        self.broker.dispatcher.answers.hooks = (CountingHook(RequestError(16, "not today")),)
        (answer,) = self.process(send("Sent"))
        self.assertEqual((answer.code, answer.remark), (16, "not today"))


class PullTests(HotPathTestCase):
    processor_type = PullMessageProcessor

    def test_allowed_pull_passes_in_every_form(self):
        for form in ({}, {"code": 361}, {"serialize_type": SerializeType.ROCKETMQ}):
            (answer,) = self.process(pull(**form))
            # The group has no member here: the pull has come as far as that.
            self.assertEqual(answer.code, ResponseCode.SUBSCRIPTION_NOT_EXIST, answer.remark)

    def test_refused_pull_fails_in_every_form(self):
        for form in ({}, {"code": 361}, {"serialize_type": SerializeType.ROCKETMQ}):
            self.assertEqual(self.refused(pull("Sent", **form)), "No default permission for topic:Sent")
            self.assertEqual(self.refused(pull(group="H", **form)), "No default permission for group:H")
            self.assertEqual(self.refused(pull(by=None, **form)), "No accessKey is configured")
            self.assertEqual(self.process(pull("Sent", flag=ONEWAY_FLAG, **form)), [])

    def test_pull_with_second_code_in_header_is_refused(self):
        (answer,) = self.process(two_codes(pull("Sent"), 28))
        self.assertEqual(answer.code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def test_command_hooks_see_every_pull(self):
        hook = CountingHook()
        self.broker.dispatcher.answers.hooks = (hook,)
        self.process(pull())
        self.assertEqual(hook.seen, [11])
