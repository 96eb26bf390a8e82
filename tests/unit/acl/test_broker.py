"""Access control in the broker: recorded requests get the answers they got from Apache's, and accounts are administered."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rocketd.acl.credentials import Credentials
from rocketd.acl.permissions import Permission
from rocketd.broker.access.access_control import AccessControl, make_access_control, signing_hooks
from rocketd.broker.admin.accounts import AclConfigProcessor
from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.logs.throttle import INTERVAL, KINDS
from rocketd.common.message_properties import encode_properties
from rocketd.common.settings.declaration import ConfigError
from rocketd.remoting.bodies.tables import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionData,
)
from rocketd.remoting.errors import RequestError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.interfaces import IRequestProcessor, IRPCHook
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.format.record import encode_record
from rocketd.store.state.audit_file import AuditFile
from rocketd.store.testing import STORE_HOST, make_message
from tests.support.broker import RecordingConnection
from tests.support.places import FRAMES
from twisted.plugins import rocketd_broker_processors

RECORDED = FRAMES / "acl4.jsonl"
PEER = "10.0.0.9:4097"
NOW = 1_795_000_000_000
ADMIN = Credentials("adminKey", "adminSecret1")
USER = Credentials("userKey1", "userSecret1")
# The file of the recorded broker.
ACCOUNTS = """\
accounts:
- accessKey: adminKey
  secretKey: adminSecret1
  admin: true
- accessKey: userKey1
  secretKey: userSecret1
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - AclPub=PUB|SUB
  - AclSubOnly=SUB
"""
PUB, SUB = Permission.PUB, Permission.SUB


def recorded():
    """Yield each recorded command with its notes."""
    for line in RECORDED.read_text().splitlines():
        entry = json.loads(line)
        data = bytes.fromhex(entry["hex"])
        frames = FrameDecoder().feed(data)
        yield entry, RemotingCommand.decode(frames[0])


def record(topic, real_topic=None):
    """A record of a message; `real_topic` makes it a delayed or half message."""
    table = {} if real_topic is None else {"REAL_TOPIC": real_topic}
    message = make_message(b"x", topic=topic, properties=encode_properties(table).encode())
    return encode_record(message, STORE_HOST, 0, 0, 0)


class AccessTestCase(SynchronousTestCase):
    def setUp(self):
        self.home = os.path.abspath(self.mktemp())
        self.file = os.path.join(self.home, "conf", "plain_acl.yml")
        os.makedirs(os.path.dirname(self.file))
        Path(self.file).write_text(ACCOUNTS)
        os.chmod(self.file, 0o600)
        self.now = NOW
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def settings(self, **options):
        given = {"rocketmqHome": self.home, "aclEnable": "true", "brokerName": "broker-a", **options}
        settings, _ = BrokerSettings.load(None, list(given.items()))
        return settings

    def access(self, look=None, **options):
        access = make_access_control(self.settings(**options).broker, lambda: self.now, look)
        assert access is not None
        return access

    def lines(self, level):
        lines = [formatEvent(event) for event in self.events if event["log_level"] == level]
        self.events.clear()
        return lines


class HookTests(AccessTestCase):
    def refused(self, access, request, address=PEER):
        with self.assertRaises(RequestError) as caught:
            access.before_request(address, request)
        self.assertEqual(caught.exception.code, ResponseCode.SYSTEM_ERROR)
        return caught.exception.remark

    def signed(self, code, fields=None, body=None, by=USER):
        return RemotingCommand(int(code), by.sign(fields, body), body)

    def test_interface(self):
        verifyObject(IRPCHook, self.access())

    def test_signer_is_known_unless_the_address_needs_no_signature(self):
        access = self.access()
        request = self.signed(RequestCode.GET_BROKER_CONFIG)
        self.assertEqual(access.signer(PEER, request), USER.access_key)
        self.assertIsNone(access.signer("127.0.0.1:5", RemotingCommand(26)))
        access.manager.set_white_addresses([PEER.rpartition(":")[0]])
        self.assertIsNone(access.signer(PEER, request))

    def test_recorded_requests_get_the_recorded_answers(self):
        access = self.access()
        answers = {(entry["connection"], entry["opaque"]): c for entry, c in recorded() if entry["kind"] == "response"}
        compared = refused = 0
        for entry, request in recorded():
            if entry["kind"] != "request" or entry["receiver"] != "broker":
                continue
            answer = answers[entry["connection"], entry["opaque"]]
            compared += 1
            try:
                access.before_request(PEER, request)
            except RequestError as error:
                refused += 1
                self.assertEqual(error.code, answer.code)
                # Without the line of Java's source, which another release has elsewhere.
                apaches = answer.remark.partition(", org.apache")[0]
                self.assertTrue(error.remark.startswith(apaches + "; "), error.remark)
            else:
                self.assertEqual(answer.code, 0, entry)
        self.assertGreater(compared, 12)
        self.assertGreater(refused, 2)

    def test_refusal_remarks_have_cause_and_id(self):
        access = self.access()
        for request, begin, end in (
            (
                RemotingCommand(28),
                "No accessKey is configured; cause: the request is not signed, and 10.0.0.9",
                "access-key]",
            ),
            (
                self.signed(28, by=Credentials("nobodyKey", "x")),
                "No acl config for nobodyKey",
                "[acl-unknown-access-key]",
            ),
            (
                self.signed(28, by=Credentials("userKey1", "x")),
                "Check signature failed for accessKey=userKey1",
                "-wrong]",
            ),
            (
                self.signed(17, {"topic": "T"}),
                "Need admin permission for request code=17, but accessKey=userKey1 is not",
                "[acl-admin-needed]",
            ),
            (
                self.signed(310, {"a": "P", "b": "AclSubOnly"}),
                "No default permission for topic:AclSubOnly; cause: account userKey1 needs PUB and has SUB",
                "[acl-forbidden]",
            ),
        ):
            remark = self.refused(access, request)
            self.assertTrue(remark.startswith("org.apache.rocketmq.acl.common.AclException: " + begin), remark)
            self.assertTrue(remark.endswith(end), remark)

    def test_resources_of_requests_by_code(self):
        access = self.access()
        consumer = ConsumerData("G", subscription_data_set=[SubscriptionData("T"), SubscriptionData("%RETRY%G")])
        heartbeat = HeartbeatData("c", [], [consumer]).encode()
        offset = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}
        for code, fields, body, touched in (
            (10, {"producerGroup": "P", "topic": "T"}, b"", {"T": PUB}),
            (10, {"group": "G", "topic": "%RETRY%G"}, b"", {"%RETRY%G": SUB}),
            (10, {"topic": "%RETRY%G"}, b"", {}),
            (310, {"a": "P", "b": "T"}, b"", {"T": PUB}),
            (310, {"a": "G", "b": "%RETRY%G"}, b"", {"%RETRY%G": SUB}),
            (320, {"a": "P", "b": "T"}, b"", {}),
            (36, {"group": "G"}, b"", {"%RETRY%G": SUB}),
            (11, {"topic": "T", "consumerGroup": "G"}, b"", {"T": SUB, "%RETRY%G": SUB}),
            (361, {"topic": "T", "consumerGroup": "G"}, b"", {"T": SUB, "%RETRY%G": SUB}),
            (12, {"topic": "T"}, b"", {"T": SUB}),
            (34, None, heartbeat, {"%RETRY%G": SUB, "T": SUB}),
            (35, {"clientID": "c", "producerGroup": "P"}, b"", {}),
            (35, {"clientID": "c", "consumerGroup": "G"}, b"", {"%RETRY%G": SUB}),
            (38, {"consumerGroup": "G"}, b"", {"%RETRY%G": SUB}),
            (15, offset, b"", {"%RETRY%G": SUB, "T": SUB}),
            (14, offset, b"", {}),
            (28, None, b"", {}),
        ):
            self.assertEqual(access.resources_of(RemotingCommand(code, fields, body)), touched, f"{code} {fields}")

    def test_strict_looks_at_batches_and_replies(self):
        for code, fields in ((320, {"a": "P", "b": "T"}), (325, {"a": "P", "b": "T"}), (324, {"topic": "T"})):
            request = RemotingCommand(code, fields)
            self.assertEqual(self.access().resources_of(request), {}, code)
            self.assertEqual(self.access(aclStrict="true").resources_of(request), {"T": PUB}, code)

    def test_strict_send_back_checks_retry_topic_in_v2_field(self):
        request = RemotingCommand(310, {"a": "mine", "b": "%RETRY%theirs"})
        self.assertEqual(self.access().resources_of(request), {"%RETRY%mine": SUB})
        self.assertEqual(self.access(aclStrict="true").resources_of(request), {"%RETRY%theirs": SUB})

    def test_strict_lock_requests_check_group_and_topics(self):
        loose, strict = self.access(), self.access(aclStrict="true")

        def body(group, *topics):
            return LockBatchRequestBody(group, "c", {MessageQueue(topic, "broker-a", 0) for topic in topics}).encode()

        mine = body("G", "AclPub", "AclSubOnly", "%RETRY%G")
        touched = {"%RETRY%G": SUB, "AclPub": SUB, "AclSubOnly": SUB}
        for code in (41, 42):
            self.assertEqual(loose.resources_of(RemotingCommand(code, None, mine)), {}, code)
            self.assertEqual(strict.resources_of(RemotingCommand(code, None, mine)), touched, code)
            strict.before_request(PEER, self.signed(code, body=mine))
            strict.before_request(PEER, self.signed(code, body=body("G")))
            others = self.signed(code, body=body("G", "Others"))
            loose.before_request(PEER, others)
            self.assertIn("No default permission for topic:Others", self.refused(strict, others))
            strict.before_request(PEER, self.signed(code, body=body("G", "Others"), by=ADMIN))
            unreadable = self.signed(code, body=b"{}")
            self.assertTrue(self.refused(strict, unreadable).endswith("[acl-request-unreadable]"))

    def test_strict_lock_of_denied_group_is_refused(self):
        Path(self.file).write_text(ACCOUNTS + "  groupPerms:\n  - Theirs=DENY\n")
        theirs = LockBatchRequestBody("Theirs", "c", {MessageQueue("AclPub", "broker-a", 0)}).encode()
        for code in (41, 42):
            self.access().before_request(PEER, self.signed(code, body=theirs))
            remark = self.refused(self.access(aclStrict="true"), self.signed(code, body=theirs))
            self.assertIn("No default permission for group:Theirs", remark)

    def test_strict_requests_for_any_message_need_admin(self):
        view = {"offset": "0"}
        self.access().before_request(PEER, self.signed(33, view))
        access = self.access(aclStrict="true")
        self.assertIn("Need admin permission for request code=33", self.refused(access, self.signed(33, view)))
        access.before_request(PEER, self.signed(33, view, by=ADMIN))

    def test_strict_send_back_checks_topic_of_stored_message(self):
        look = {7: record("AclPub"), 8: record("Others"), 9: record("%RETRY%G"), 10: b"rubbish"}.get
        loose, strict = self.access(look), self.access(look, aclStrict="true")

        def request(offset, by=USER):
            return self.signed(36, {"group": "G", "offset": str(offset), "originTopic": "AclPub"}, by=by)

        for offset in (7, 9, 10, 11):
            strict.before_request(PEER, request(offset))
        loose.before_request(PEER, request(8))
        self.assertIn("No default permission for topic:Others", self.refused(strict, request(8)))
        strict.before_request(PEER, request(8, by=ADMIN))
        for offset in ("", "-1", "x", "9" * 20):
            self.assertIn("offset is not an offset of the log", self.refused(strict, request(offset)))

    def test_strict_end_transaction_checks_topic_of_half_message(self):
        halves = {at: record("RMQ_SYS_TRANS_HALF_TOPIC", topic) for at, topic in enumerate(("AclPub", "AclSubOnly"))}
        look = {**halves, 5: record("Others")}.get
        loose, strict = self.access(look), self.access(look, aclStrict="true")

        def request(offset):
            return self.signed(37, {"commitLogOffset": str(offset), "producerGroup": "P"})

        loose.before_request(PEER, request(1))
        for offset in (0, 5, 6):
            strict.before_request(PEER, request(offset))
        self.assertIn("No default permission for topic:AclSubOnly", self.refused(strict, request(1)))

    def test_strict_config_needs_admin_and_queue_dump_needs_sub(self):
        loose, strict = self.access(), self.access(aclStrict="true")
        config = self.signed(26)
        queue = self.signed(321, {"topic": "Others", "queueId": "0", "index": "0", "count": "9"})
        for request in (config, queue):
            loose.before_request(PEER, request)
        self.assertIn("Need admin permission for request code=26", self.refused(strict, config))
        self.assertIn("No default permission for topic:Others", self.refused(strict, queue))
        strict.before_request(PEER, self.signed(321, {"topic": "AclSubOnly"}))

    def test_extension_requests_need_same_rights_as_group_requests(self):
        fields = {"consumerGroup": "G", "topic": "Others"}
        for access in (self.access(), self.access(aclStrict="true")):
            for code in (203, 208, 30001, 30002):
                access.before_request(PEER, self.signed(code, fields))
                for request, remark in (
                    (RemotingCommand(code, dict(fields)), "No accessKey is configured"),
                    (self.signed(code, fields, by=Credentials("nobodyKey", "x")), "No acl config for nobodyKey"),
                    (self.signed(code, fields, by=Credentials("userKey1", "x")), "Check signature failed for"),
                ):
                    self.assertIn(remark, self.refused(access, request), code)

    def test_strict_account_requests_need_admin(self):
        access = self.access(aclStrict="true")
        self.assertIn("Need admin permission for request code=54", self.refused(access, self.signed(54)))
        access.before_request(PEER, self.signed(54, by=ADMIN))

    def test_unreadable_requests_are_refused(self):
        access = self.access()
        for request in (self.signed(34, body=b"{"), self.signed(38, {}), self.signed(15, {"consumerGroup": "G"})):
            self.assertTrue(self.refused(access, request).endswith("[acl-request-unreadable]"))

    def test_refusal_is_logged_once_a_minute(self):
        clock = Clock()
        access = AccessControl(self.access().manager, seconds=clock.seconds)
        self.events.clear()
        for _ in range(3):
            self.refused(access, self.signed(17))
        self.refused(access, self.signed(25))
        first, second = self.lines(LogLevel.warn)
        self.assertIn("10.0.0.9:4097: request 17 refused: 'Need admin permission", first)
        self.assertIn("request 25", second)
        clock.advance(INTERVAL)
        self.refused(access, self.signed(17))
        (line,) = self.lines(LogLevel.warn)
        self.assertTrue(line.endswith(" (2 more like this were not logged)"), line)

    def test_long_refusal_is_shortened_in_the_log(self):
        access = self.access()
        self.events.clear()
        self.refused(access, self.signed(28, by=Credentials("k" * 100_000, "x")))
        self.assertLess(len(self.lines(LogLevel.warn)[0]), 600)

    def test_refusals_of_many_kinds_do_not_fill_log(self):
        clock = Clock()
        access = AccessControl(self.access().manager, seconds=clock.seconds)
        self.events.clear()

        def refuse(count, prefix):
            for number in range(count):
                self.refused(access, self.signed(28, by=Credentials(f"{prefix}{number}", "x")))
            return len(self.lines(LogLevel.warn))

        self.assertEqual(refuse(1200, "first"), KINDS + 1)
        clock.advance(INTERVAL)
        self.assertEqual(refuse(5, "second"), 5)


class MakeTests(AccessTestCase):
    def fault(self, **options):
        return str(self.assertRaises(ConfigError, self.access, **options))

    def test_disabled_acl_makes_no_access_control(self):
        settings = self.settings(aclEnable="false", rocketmqHome="/nowhere")
        self.assertIsNone(make_access_control(settings.broker, lambda: NOW))

    def test_accounts_file_is_below_home(self):
        self.assertEqual(self.access().manager.default_file, self.file)
        os.rename(self.file, os.path.join(self.home, "mine.yml"))
        access = self.access(**{"rocketmq.acl.plain.file": "mine.yml"})
        self.assertEqual(set(access.manager.rules.accounts), {"adminKey", "userKey1"})

    def test_start_without_home_and_file(self):
        self.assertIn("rocketmqHome, which is not set", self.fault(rocketmqHome=""))
        access = self.access(rocketmqHome="", **{"rocketmq.acl.plain.file": self.file})
        self.assertEqual(len(access.manager.rules.accounts), 2)

    def test_broken_accounts_file_fails_start_with_its_line(self):
        Path(self.file).write_text(ACCOUNTS + "  whiteRemoteAddress: nobody\n")
        fault = self.fault()
        self.assertIn(f"aclEnable = true: {self.file}: line 5, accounts number 2: Netaddress examine", fault)

    def test_credentials_of_the_broker(self):
        Path(self.home, "conf", "tools.yml").write_text("accessKey: adminKey\nsecretKey: adminSecret1\n")
        self.assertEqual(signing_hooks(self.settings().broker), [])
        (hook,) = signing_hooks(self.settings(aclCredentialsFile="conf/tools.yml").broker)
        request = RemotingCommand(21)
        hook.before_request("10.0.0.1:10911", request)
        self.access().before_request(PEER, request)
        settings = self.settings(aclCredentialsFile="conf/none.yml").broker
        self.assertIn("aclCredentialsFile: ", str(self.assertRaises(ConfigError, signing_hooks, settings)))


class ProcessorTests(AccessTestCase):
    def setUp(self):
        super().setUp()
        audit = Audit(AuditFile(RealFileSystem(), os.path.join(self.home, "audit.log")), lambda: NOW)
        self.broker = SimpleNamespace(
            access=self.access(), settings=self.settings(), address="127.0.0.1:31921", audit=audit
        )
        self.processor = AclConfigProcessor(self.broker)

    def ask(self, code, **fields):
        context = SimpleNamespace(connection=RecordingConnection())
        return self.processor.process(RemotingCommand(int(code), fields), context)

    def refused(self, code, **fields):
        error = self.assertRaises(RequestError, self.ask, code, **fields)
        return error.code, error.remark

    def test_interface(self):
        verifyObject(IRequestProcessor, self.processor)

    def test_recorded_requests_get_the_recorded_answers(self):
        answers = {(entry["connection"], entry["opaque"]): c for entry, c in recorded() if entry["kind"] == "response"}
        compared = []
        for entry, request in recorded():
            if entry["kind"] != "request" or request.code not in rocketd_broker_processors.acl_config.codes:
                continue
            expected = answers[entry["connection"], entry["opaque"]]
            context = SimpleNamespace(connection=RecordingConnection())
            answer = self.processor.process(request, context)
            self.assertEqual((answer.code, answer.remark), (expected.code, expected.remark), entry["name"])
            if request.code == RequestCode.GET_BROKER_CLUSTER_ACL_INFO:
                self.compare_versions(answer.ext_fields, expected.ext_fields)
            else:
                self.assertEqual(answer.ext_fields or {}, expected.ext_fields or {}, entry["name"])
            self.assertEqual(answer.body, expected.body, entry["name"])
            compared.append(request.code)
        self.assertEqual(compared, [52, 54, 50, 53, 54, 51])

    def compare_versions(self, ours, apaches):
        apaches = {**apaches, "version": f'{{"counter":0,"timestamp":{NOW}}}'}
        apaches["allAclFileVersion"] = f'{{"{self.file}":{apaches["version"]}}}'
        self.assertEqual(ours, apaches)

    def test_account_change_applies_at_once_and_raises_version(self):
        self.now += 7
        self.ask(50, accessKey="newKey1", secretKey="newSecret1", admin="true", whiteRemoteAddress="10.0.0.9")
        account = self.broker.access.manager.rules.accounts["newKey1"]
        self.assertTrue(account.admin)
        version = json.loads(self.ask(52).ext_fields["version"])
        self.assertEqual(version, {"counter": 1, "timestamp": NOW + 7})
        (config,) = [
            entry
            for entry in fastjson.loads(self.ask(54).body)["plainAccessConfigs"]
            if entry["accessKey"] == "newKey1"
        ]
        self.assertEqual(
            config,
            {"accessKey": "newKey1", "admin": True, "secretKey": "newSecret1", "whiteRemoteAddress": "10.0.0.9"},
        )

    def test_account_requests_with_invalid_values_are_refused(self):
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        self.assertEqual(
            self.refused(50, accessKey="short", secretKey="newSecret1"),
            (failed, "The accessKey=short and secretKey=newSecret1 cannot be null and length should longer than 6"),
        )
        code, remark = self.refused(50, accessKey="newKey1", secretKey="newSecret1", topicPerms="T=PUB,U")
        self.assertEqual((code, remark.splitlines()[0]), (failed, "Parse Resource format error for U."))
        self.assertEqual(
            self.refused(51, accessKey="nobodyKey"),
            (
                ResponseCode.DELETE_ACL_CONFIG_FAILED,
                "The accesskey[nobodyKey] corresponding to accessConfig has been deleted failed.",
            ),
        )
        self.assertEqual(
            self.refused(53, globalWhiteAddrs="10.0.0.1", aclFileFullPath="/etc/none.yml"),
            (
                ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
                "The globalWhiteAddresses[10.0.0.1] has been updated failed.",
            ),
        )
        self.assertEqual(
            self.refused(53, globalWhiteAddrs="10.0.0.1,nobody"),
            (ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, "Netaddress examine Exception netaddress is nobody"),
        )
        self.assertEqual(Path(self.file).read_text(), ACCOUNTS)

    def test_account_requests_without_required_fields_are_refused(self):
        for code, name in ((50, "accessKey"), (51, "accessKey"), (53, "globalWhiteAddrs")):
            self.assertEqual(
                self.refused(code, secretKey="newSecret1"),
                (ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null"),
            )

    def test_account_update_with_unwritable_file_fails(self):
        os.rename(os.path.dirname(self.file), os.path.join(self.home, "gone"))
        code, remark = self.refused(50, accessKey="newKey1", secretKey="newSecret1")
        self.assertEqual(code, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)
        self.assertIn("No such file", remark)

    def test_access_control_is_off(self):
        self.broker.access = None
        for code, answered in (
            (50, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED),
            (51, ResponseCode.DELETE_ACL_CONFIG_FAILED),
            (52, ResponseCode.SYSTEM_ERROR),
            (53, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED),
            (54, ResponseCode.SYSTEM_ERROR),
        ):
            self.assertEqual(self.refused(code), (answered, "access control is off at this broker: aclEnable=false"))

    def test_internal_fault_remark_is_error_class_only(self):
        def fail(_):
            raise ValueError("broken")

        self.broker.access.manager.set_account = fail
        code, remark = self.refused(50, accessKey="newKey1", secretKey="newSecret1")
        self.assertEqual((code, remark), (ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, "ValueError"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        (line,) = self.lines(LogLevel.critical)
        self.assertIn("request 50 about accounts failed", line)
        self.assertNotIn("newSecret1", line)

    def test_account_changes_are_logged_without_secrets(self):
        self.ask(50, accessKey="newKey1", secretKey="newSecret1")
        self.ask(54)
        self.refused(50, accessKey="short", secretKey="newSecret1")
        lines = self.lines(LogLevel.info) + self.lines(LogLevel.warn) + self.lines(LogLevel.error)
        self.assertTrue(any("sets account newKey1" in line for line in lines))
        self.assertFalse([line for line in lines if "Secret1" in line])
