"""The processors on real tables and a real store; the answers are compared with those that Apache's broker gave."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rocketd.broker.admin import changes as admin
from rocketd.broker.admin import query, statistics
from rocketd.broker.admin import state as admin_state
from rocketd.broker.admin.runtime_info import bytes_text, duration_text, ratio_text
from rocketd.broker.base.extensions import Extensions
from rocketd.broker.base.interfaces import IBroker
from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.message_hooks import MessageHooks
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.clients import consumer_requests as consumer_manage
from rocketd.broker.clients import heartbeats as client_manage
from rocketd.broker.clients import queue_lock_requests as queue_lock
from rocketd.broker.clients.broker_to_client import BrokerToClient
from rocketd.broker.clients.consumers import ConsumerManager
from rocketd.broker.clients.last_subscriptions import LastSubscriptions, LastSubscriptionWrapper
from rocketd.broker.clients.producers import ProducerManager
from rocketd.broker.clients.queue_lock_table import RebalanceLockManager
from rocketd.broker.lag.group_guard import GroupGuard
from rocketd.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketd.broker.stats.store_stats import StoreStats
from rocketd.broker.tables.filters.consumer_filter_file import ConsumerFilterWrapper
from rocketd.broker.tables.filters.consumer_filters import ConsumerFilterManager
from rocketd.broker.tables.groups import SubscriptionGroupManager
from rocketd.broker.tables.offsets import ConsumerOffsetManager
from rocketd.broker.tables.topics import TopicConfigManager
from rocketd.broker.transaction.processor import EndTransactionProcessor
from rocketd.common.stamp_clock import StampClock
from rocketd.remoting.bodies.tables import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.errors import RemotingCommandError, RequestError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.interfaces import IConnection, IRequestContext, IRequestProcessor
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.serving.third_party.running_calls import PluginCalls
from rocketd.remoting.wire.codes import LanguageCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import audit_path
from rocketd.store.format.message import MessageInner
from rocketd.store.message_store import MessageStore
from rocketd.store.state.audit_file import AuditFile
from tests.support.broker import RecordingInvoke, RecordingReplication
from tests.support.descriptors import codes_of
from tests.support.places import FRAMES

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
BORN = b"\x7f\x00\x00\x01\x00\x00\x10\x01"
PROCESSORS = {
    code: processor
    for processor in (
        client_manage.ClientManageProcessor,
        consumer_manage.ConsumerManageProcessor,
        query.QueryMessageProcessor,
        query.QueueOffsetProcessor,
        queue_lock.QueueLockProcessor,
        admin.AdminBrokerProcessor,
        admin_state.AdminStateProcessor,
        statistics.StatisticsProcessor,
    )
    for code in codes_of(processor)
}


@implementer(IConnection)
class MemoryConnection:
    def __init__(self, address="127.0.0.1:50556"):
        self.address = address
        self.host = BORN
        self.closed = False

    def send(self, command):
        """Nothing is sent without being asked in these tests."""

    def close(self):
        self.closed = True


@implementer(IRequestContext)
class Context:
    received_ms = 0

    def __init__(self, connection):
        self.connection = connection
        self.answered = None

    def answer(self, response):
        self.answered = response


class InlinePools:
    """Pools whose work is done by the caller."""

    queued_requests = 3

    def __init__(self):
        self.limits = LimitLog(Logger())
        self.plugin_calls = PluginCalls()

    def head_wait_ms(self, now_ms):
        return 12

    def waiting_requests(self, handler_type):
        return {EndTransactionProcessor: 4}[handler_type]

    def refused_by_address(self):
        return {"adminWritesRefused": 0}

    def pool(self, name):
        return self

    def call(self, function):
        function()


@implementer(IBroker)
class Tables:
    """A broker's tables and store, without a service around them."""

    access = None
    told = 0

    def __init__(self, directory):
        self.clock = Clock()
        self.clock.advance(1_795_000_000)
        self.settings, _ = BrokerSettings.load(
            None,
            [
                ("storePathRootDir", directory),
                ("brokerName", "broker-a"),
                ("mappedFileSizeCommitLog", str(1 << 20)),
                ("mappedFileSizeConsumeQueue", "6000"),
                ("maxHashSlotNum", "100"),
                ("maxIndexNum", "400"),
            ],
        )
        self.file_system = RealFileSystem()
        self.topics = TopicConfigManager(
            self.settings.broker, self.json_file("topics.json", TopicConfigSerializeWrapper), self.now_ms
        )
        self.groups = SubscriptionGroupManager(
            self.settings.broker, self.json_file("subscriptionGroup.json", SubscriptionGroupWrapper), self.now_ms
        )
        self.offsets = ConsumerOffsetManager(self.json_file("consumerOffset.json", ConsumerOffsetSerializeWrapper))
        self.consumers = ConsumerManager(self.now_ms)
        self.filters = ConsumerFilterManager(
            self.settings.broker, self.json_file("consumerFilter.json", ConsumerFilterWrapper), self.now_ms
        )
        self.producers = ProducerManager(self.now_ms)
        self.last_subscriptions = LastSubscriptions(
            self.groups, self.consumers, self.json_file("lastSubscription.json", LastSubscriptionWrapper)
        )
        self.locks = RebalanceLockManager(self.now_ms)
        self.group_guard = GroupGuard(self)
        self.invoke = RecordingInvoke()
        self.to_clients = BrokerToClient(self.settings.broker, self.invoke)
        self.schedule = SimpleNamespace(progress=lambda: iter([(1, 2, 3)]))
        self.transactions = None
        self.extensions = None
        self.timers = SimpleNamespace(table=dict)
        self.replication = RecordingReplication()
        self.dispatcher = InlinePools()
        self.stamps = StampClock(self.clock.seconds, self.clock.seconds)
        self.address = "127.0.0.1:10911"
        self.store_host = HOST
        self.store = MessageStore(self.settings.store, HOST, clock=self.clock.seconds, monotonic=self.clock.seconds)
        self.stats = StoreStats(self.now_ms, self.clock_ms, lambda: self.store.messages_put)
        self.store.put_listener = self.stats.puts_took
        self.message_hooks = MessageHooks()
        self.audit = Audit(AuditFile(self.file_system, audit_path(directory)), self.now_ms)
        self.extensions = Extensions(self)
        self.broker_stats = BrokerStatsManager("DefaultCluster", self.now_ms)
        self.registrations = []
        self.topics.on_change(self.register_with_name_servers)

    def json_file(self, name, content_type):
        return JsonFile(
            os.path.join(self.settings.store.store_path_root_dir, "config", name), content_type, self.file_system
        )

    def now_ms(self):
        return int(self.clock.seconds() * 1000)

    def clock_ms(self):
        return self.now_ms()

    def delay_offsets(self):
        return DelayOffsetSerializeWrapper({1: 1})

    def when_registered(self, callback):
        self.told += 1
        callback()

    def register_with_name_servers(self, reason):
        self.registrations.append(reason)

    def put(self, topic, *bodies, queue_id=0, key="k"):
        properties = f"KEYS\x01{key}".encode()
        results = []
        for body in bodies:
            message = MessageInner(
                topic, queue_id, 0, 0, self.now_ms(), BORN, 0, 0, body, properties, 0, index_keys=(key,)
            )
            results += self.store.put_messages([message])
            self.clock.advance(1)
        while self.store.dispatch_behind_bytes():
            pass
        return results


def shape(value):
    """Names and kinds of all members of a JSON value; the entries of maps with free keys count as one."""
    if isinstance(value, dict):
        if "table" in value or not all(isinstance(key, str) for key in value):
            return "map"
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [shape(member) for member in value[:1]]
    return type(value).__name__


def golden_answers(code, file="mqadmin4.jsonl"):
    for line in (FRAMES / file).read_text().splitlines():
        record = json.loads(line)
        if record["code"] == code and record["kind"] == "response" and record["sender"] == "broker":
            (frame,) = FrameDecoder().feed(bytes.fromhex(record["hex"]))
            yield RemotingCommand.decode(frame)


class ProcessorsTestCase(SynchronousTestCase):
    def setUp(self):
        self.broker = Tables(os.path.abspath(self.mktemp()))
        self.broker.store.start()
        self.addCleanup(self.broker.store.stop)
        self.made = {processor: processor(self.broker) for processor in PROCESSORS.values()}
        self.connection = MemoryConnection()

    def ask(self, code, fields=None, body=None, connection=None, language=LanguageCode.JAVA):
        request = RemotingCommand(code, fields, body, language=language)
        context = Context(connection or self.connection)
        response = self.made[PROCESSORS[code]].process(request, context)
        response = context.answered if response is None else response
        if response is not None and response.buffers:
            response.body = b"".join(response.buffers)
        return response

    def refused(self, code, fields=None, body=None):
        error = self.assertRaises(RequestError, self.ask, code, fields, body)
        return error.code, error.remark

    def heartbeat(self, client_id="one", groups=("G",), producers=("P",), connection=None, **more):
        data = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [
                {
                    "groupName": name,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
                    **more,
                }
                for name in groups
            ],
        }
        return self.ask(34, body=json.dumps(data).encode(), connection=connection)

    def assert_like(self, response, golden):
        """Same code, remark, header fields and members of the body."""
        self.assertEqual((response.code, response.remark), (golden.code, golden.remark))
        # A header without fields is read back as none at all from binary headers, so both count as none.
        self.assertEqual(sorted(response.ext_fields or {}), sorted(golden.ext_fields or {}))
        self.assertEqual(response.ext_fields is None, golden.ext_fields is None)
        if golden.body is None:
            self.assertIsNone(response.body)
        else:
            self.assertEqual(shape(fastjson.loads(response.body)), shape(fastjson.loads(golden.body)))

    def assert_like_apache(self, response, code, file="mqadmin4.jsonl"):
        """Like one of Apache's recorded answers with the same response code."""
        (golden, *_) = [answer for answer in golden_answers(code, file) if answer.code == response.code]
        self.assert_like(response, golden)


class InterfaceTests(ProcessorsTestCase):
    def test_broker_and_processors_provide_their_interfaces(self):
        verifyObject(IBroker, self.broker)
        for processor in self.made.values():
            verifyObject(IRequestProcessor, processor)


class ClientManageTests(ProcessorsTestCase):
    def test_heartbeat_creates_group_retry_topic_and_members(self):
        self.assert_like_apache(self.heartbeat(), 34, "java4.jsonl")
        self.assertIn("G", self.broker.groups.snapshot().subscription_group_table)
        self.assertEqual(self.broker.topics.select("%RETRY%G"), TopicConfig("%RETRY%G", 1, 1, 6))
        self.assertEqual(self.broker.consumers.find("G").client_ids(), ["one"])
        self.assertEqual(len(self.broker.registrations), 1)
        self.heartbeat()
        self.assertEqual(len(self.broker.registrations), 1)

    def test_heartbeat_gives_retry_topic_as_many_queues_as_its_group(self):
        self.heartbeat()
        self.ask(200, body=b'{"groupName":"G","retryQueueNums":3}')
        self.heartbeat()
        self.assertEqual(self.broker.topics.select("%RETRY%G"), TopicConfig("%RETRY%G", 3, 3, 6))
        self.assertEqual(len(self.broker.registrations), 2)

    def test_unit_heartbeat_marks_retry_topic(self):
        self.heartbeat(unitMode=True)
        self.assertEqual(self.broker.topics.select("%RETRY%G").topic_sys_flag, 2)

    def test_heartbeat_without_auto_create_registers_members_only(self):
        self.broker.settings.broker.auto_create_subscription_group = False
        self.heartbeat()
        self.assertIsNone(self.broker.topics.select("%RETRY%G"))
        self.assertEqual(self.broker.consumers.find("G").client_ids(), ["one"])

    def test_recorded_heartbeats_are_accepted(self):
        count = 0
        for path in sorted(FRAMES.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                record = json.loads(line)
                if record.get("code") == 34 and record.get("kind") == "request":
                    (frame,) = FrameDecoder().feed(bytes.fromhex(record["hex"]))
                    request = RemotingCommand.decode(frame)
                    processor = self.made[client_manage.ClientManageProcessor]
                    self.assertEqual(processor.process(request, Context(MemoryConnection(f"10.0.0.1:{count}"))).code, 0)
                    count += 1
        self.assertGreater(count, 10)

    def test_malformed_heartbeat_is_refused(self):
        self.assertRaises(RemotingCommandError, self.ask, 34, None, b"{")
        self.assertRaises(RemotingCommandError, self.ask, 34)

    def test_unregister_client_leaves_groups(self):
        self.heartbeat()
        response = self.ask(35, {"clientID": "one", "producerGroup": "P", "consumerGroup": "G"})
        self.assert_like_apache(response, 35, "java4.jsonl")
        self.assertIsNone(self.broker.consumers.find("G"))
        self.assertEqual(self.broker.producers.clients("P"), [])
        self.assertEqual(self.ask(35, {"clientID": "one"}).code, 0)

    def test_heartbeat_registers_sql_filters(self):
        subscription = {"topic": "T", "subString": "a > 1", "subVersion": 7, "expressionType": "SQL92"}
        self.heartbeat(subscriptionDataSet=[subscription])
        known = self.broker.filters.get("T", "G")
        self.assertEqual((known.expression, known.client_version, known.is_dead), ("a > 1", 7, False))
        self.heartbeat(subscriptionDataSet=[subscription | {"subString": "a >", "subVersion": 8}])
        self.assertIsNone(self.broker.filters.get("T", "G"))

    def test_check_client_config(self):
        def check(kind, expression="a > 1"):
            subscription = {"topic": "T", "expressionType": kind, "subString": expression}
            return json.dumps({"clientId": "c", "group": "G", "subscriptionData": subscription}).encode()

        self.assertEqual(self.ask(46, body=check("TAG")).code, 0)
        self.assertEqual(self.ask(46).code, 0)
        code, remark = self.refused(46, body=check("SQL92"))
        self.assertEqual(code, 1)
        self.assertTrue(remark.startswith("The broker does not support consumer to filter message by SQL92; cause: "))
        self.broker.settings.broker.enable_property_filter = True
        self.assertEqual(self.ask(46, body=check("SQL92")).code, 0)
        for kind, expression in (("SQL92", "a >"), ("SQL92", ""), ("SQL93", "a > 1")):
            code, remark = self.refused(46, body=check(kind, expression))
            self.assertEqual(code, 23)
            self.assertTrue(remark.startswith("the filter expression cannot be used; cause: "), remark)


class ConsumerManageTests(ProcessorsTestCase):
    def setUp(self):
        super().setUp()
        self.broker.topics.update(TopicConfig("T", 4, 4))

    def test_consumer_list_of_group(self):
        response = self.ask(38, {"consumerGroup": "G"})
        self.assertEqual(response.remark, "no consumer for this group, G")
        self.assert_like(response, self._without_group_name(38, response.remark))
        self.heartbeat("one")
        self.heartbeat("two", connection=MemoryConnection("10.0.0.1:2"))
        response = self.ask(38, {"consumerGroup": "G"})
        self.assertEqual(response.body, b'{"consumerIdList":["one","two"]}')
        self.assert_like_apache(response, 38, "java4.jsonl")

    def _without_group_name(self, code, remark):
        (golden, *_) = [answer for answer in golden_answers(code, "java4.jsonl") if answer.code == 1]
        self.assertTrue(golden.remark.startswith("no consumer for this group, "))
        golden.remark = remark
        return golden

    def commit(self, offset):
        fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": str(offset), "bname": "b"}
        return self.ask(15, fields)

    def query(self, queue_id=0):
        return self.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": str(queue_id)})

    def test_commit_and_query(self):
        self.broker.put("T", *[b"x"] * 7)
        self.assert_like_apache(self.commit(7), 15, "go.jsonl")
        response = self.query()
        self.assertEqual(response.ext_fields, {"offset": "7"})
        self.assert_like_apache(response, 14, "go.jsonl")

    def test_query_offset_of_young_queue_is_its_first_message(self):
        self.assertEqual(self.query().ext_fields, {"offset": "0"})
        self.broker.put("T", b"a", b"b")
        self.assertEqual(self.query().ext_fields, {"offset": "0"})

    def test_query_offset_of_old_queue_for_new_group_is_not_found(self):
        self.broker.put("T", b"a")
        self.patch(self.broker.store, "is_on_disk", lambda topic, queue_id, offset: True)
        response = self.query()
        self.assertEqual(
            (response.code, response.remark, response.ext_fields),
            (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first", {}),
        )

    def test_consumer_requests_without_required_fields_are_refused(self):
        self.assertRaises(RemotingCommandError, self.ask, 15, {"consumerGroup": "G"})
        self.assertRaises(RemotingCommandError, self.ask, 38)


class QueryTests(ProcessorsTestCase):
    def query(self, key, topic="T", unique=None, max_num=32):
        fields = {
            "topic": topic, "key": key, "maxNum": str(max_num), "beginTimestamp": "0", "endTimestamp": str(1 << 60)
        }  # fmt: skip
        return self.ask(12, fields if unique is None else fields | {"_UNIQUE_KEY_QUERY": unique})

    def test_query_message_by_key(self):
        (first, second) = self.broker.put("T", b"a", b"b", key="k1")
        self.broker.put("T", b"c", key="k2")
        response = self.query("k1", unique="false")
        self.assertEqual((response.code, len(response.body)), (0, first.size + second.size))
        self.assertEqual(sorted(response.ext_fields), ["indexLastUpdatePhyoffset", "indexLastUpdateTimestamp"])
        self.assertEqual(response.body[: first.size], bytes(self.broker.store.look_message(first.physical_offset)))

    def test_query_without_match_returns_index_progress(self):
        self.assert_like_apache(self.query("nobody"), 12, "go.jsonl")

    def test_query_by_unique_key_ignores_max_num(self):
        self.broker.put("T", b"a", b"b", key="k1")
        one = self.query("k1", max_num=1)
        both = self.query("k1", unique="true", max_num=1)
        self.assertLess(len(one.body), len(both.body))

    def test_query_result_is_limited_to_frame_size(self):
        (first, _) = self.broker.put("T", b"a" * 1000, b"b" * 1000)
        self.patch(query, "MAX_BODY", first.size + 10)
        self.assertEqual(len(self.query("k").body), first.size)

    def test_view_message_by_offset(self):
        (result,) = self.broker.put("T", b"body")
        response = self.ask(33, {"offset": str(result.physical_offset)})
        self.assertEqual(len(response.body), result.size)
        self.assertIsNone(response.ext_fields)
        for offset in (result.size * 5, -1, 3):
            self.assertEqual(
                self.refused(33, {"offset": str(offset)}), (1, f"can not find message by the offset, {offset}")
            )

    def test_ends_of_queues(self):
        start = self.broker.now_ms()
        self.broker.put("T", b"a", b"b", b"c")
        queue = {"topic": "T", "queueId": "0", "bname": "broker-a"}
        for code, file, fields, expected in (
            (30, "go.jsonl", queue, {"offset": "3"}),
            (31, "go.jsonl", queue, {"offset": "0"}),
            (32, "java4.jsonl", queue, {"timestamp": str(start)}),
            (29, "java4.jsonl", queue | {"timestamp": str(start + 1000)}, {"offset": "1"}),
        ):
            response = self.ask(code, fields)
            self.assertEqual(response.ext_fields, expected, code)
            self.assert_like_apache(response, code, file)
        unknown = {"topic": "Nowhere", "queueId": "9"}
        self.assertEqual(self.ask(30, unknown).ext_fields, {"offset": "0"})
        self.assertEqual(self.ask(32, unknown).ext_fields, {"timestamp": "-1"})


class QueueLockTests(ProcessorsTestCase):
    def body(self, client):
        return json.dumps(
            {"consumerGroup": "G", "clientId": client, "mqSet": [{"topic": "T", "brokerName": "b", "queueId": 0}]}
        ).encode()

    def test_lock_and_unlock(self):
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.heartbeat("one")
        response = self.ask(41, body=self.body("one"))
        self.assertEqual(response.body, b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}')
        self.assert_like_apache(response, 41, "go.jsonl")
        self.assertEqual(self.ask(41, body=self.body("two")).body, b'{"lockOKMQSet":[]}')
        self.assert_like_apache(self.ask(42, body=self.body("one")), 42, "go.jsonl")
        self.assertIn(b"queueId", self.ask(41, body=self.body("two")).body)


class AdminTests(ProcessorsTestCase):
    def create(self, topic="T", **changed):
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "5", "perm": "6",
            "topicFilterType": "MULTI_TAG", "topicSysFlag": "1", "order": "true",
        }  # fmt: skip
        return fields | changed

    def test_create_topic(self):
        response = self.ask(17, self.create())
        self.assert_like_apache(response, 17, "acl4.jsonl")
        self.assertEqual(self.broker.topics.select("T"), TopicConfig("T", 4, 5, 6, "MULTI_TAG", 1, order=False))
        self.assertEqual(len(self.broker.registrations), 1)

    def test_topic_with_impossible_number_of_queues_is_not_created(self):
        for name in ("readQueueNums", "writeQueueNums"):
            for count in (-1, 65_537, 2**31 - 1):
                expected = (1, f"{name} is {count}: a topic has 0 to 65536 queues")
                self.assertEqual(self.refused(17, self.create(**{name: str(count)})), expected)
        self.assertIsNone(self.broker.topics.select("T"))

    def test_create_topic_with_invalid_settings_is_refused(self):
        self.assertEqual(
            self.refused(17, self.create("TBW102")), (1, "The topic[TBW102] is conflict with system topic.")
        )
        self.assertEqual(self.refused(17, self.create(" "))[1], "The specified topic is blank.")
        self.assertEqual(
            self.refused(17, self.create(topicFilterType="NONE")), (1, "topicFilterType = [NONE] value invalid")
        )
        self.assertEqual(self.broker.registrations, [])

    def test_slave_refuses_topic_and_group_changes(self):
        self.broker.settings.store.broker_role = "SLAVE"
        for code in (17, 215, 200, 207):
            self.assertEqual(
                self.refused(code),
                (
                    1,
                    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
                ),
            )

    def test_delete_topic_with_its_messages(self):
        self.ask(17, self.create())
        self.assertEqual(self.broker.told, 1)
        self.broker.put("T", b"a")
        self.broker.offsets.commit("h:1", "G", "T", 0, 1)
        self.assert_like_apache(self.ask(215, {"topic": "T"}), 215)
        self.assertIsNone(self.broker.topics.select("T"))
        self.assertEqual(self.broker.offsets.query("G", "T", 0), -1)
        self.broker.put("U", b"b")
        self.assertEqual(self.broker.store.get_max_offset("T", 0), 0)
        self.assertEqual(self.refused(215, {"topic": "SELF_TEST_TOPIC"})[0], 1)

    def test_topic_being_deleted_is_marked_until_its_deletion_is_recorded(self):
        """Delayed messages that are due in between must not create it again."""
        marked = []
        self.ask(17, self.create())
        delete = self.broker.store.delete_topic
        self.patch(
            self.broker.store,
            "delete_topic",
            lambda name: marked.append(set(self.broker.topics.deleting)) or delete(name),
        )
        self.ask(215, {"topic": "T"})
        self.assertEqual((marked, self.broker.topics.deleting), ([{"T"}], set()))

    def test_delete_topic_disk_error_is_answered(self):
        def fail(topic):
            raise OSError(5, "Input/output error")

        self.patch(self.broker.store, "delete_topic", fail)
        response = self.ask(215, {"topic": "T"})
        self.assertEqual((response.code, response.remark), (1, "[Errno 5] Input/output error"))
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_get_all_topics_and_groups(self):
        self.heartbeat()
        for code in (21, 201):
            response = self.ask(code)
            (golden, *_) = golden_answers(code, "broker-to-broker-and-namesrv.jsonl")
            self.assertEqual(response.ext_fields, golden.ext_fields)
            ours, theirs = fastjson.loads(response.body), fastjson.loads(golden.body)
            self.assertEqual(sorted(ours), sorted(theirs))
            self.assertEqual(sorted(ours["dataVersion"]), sorted(theirs["dataVersion"]))
            (table,) = set(ours) - {"dataVersion"}
            entry = "SELF_TEST_TOPIC" if code == 21 else "TOOLS_CONSUMER"
            self.assertEqual(ours[table][entry], theirs[table][entry])

    def test_group_is_updated_and_deleted(self):
        body = b'{"groupName":"G","retryMaxTimes":5,"consumeBroadcastEnable":false}'
        self.assert_like_apache(self.ask(200, body=body), 200)
        self.assertEqual(self.broker.groups.find("G").retry_max_times, 5)
        self.broker.offsets.commit("h:1", "G", "T", 0, 5)
        self.ask(207, {"groupName": "G"})
        self.assertEqual(self.broker.offsets.query("G", "T", 0), 5)
        self.assert_like_apache(self.ask(207, {"groupName": "G", "removeOffset": "true"}), 207)
        self.assertEqual(self.broker.offsets.query("G", "T", 0), -1)
        self.assertRaises(RemotingCommandError, self.ask, 200)

    def test_group_with_name_too_long_for_its_retry_topic_is_not_created(self):
        group = "g" * 121
        error = self.assertRaises(RequestError, self.ask, 200, body=b'{"groupName":"%b"}' % group.encode())
        self.assertEqual((error.code, self.broker.groups.get(group)), (1, None))
        self.broker.groups.update(SubscriptionGroupConfig(group))
        self.ask(200, body=b'{"groupName":"%b","retryMaxTimes":5}' % group.encode())
        self.assertEqual(self.broker.groups.get(group).retry_max_times, 5)


class BrokerConfigTests(ProcessorsTestCase):
    def version(self):
        return json.loads(self.ask(26).ext_fields["version"])

    def test_get_config_returns_settings(self):
        response = self.ask(26)
        lines = dict(line.split("=", 1) for line in response.body.decode().splitlines())
        self.assertEqual((lines["brokerName"], lines["autoCreateTopicEnable"]), ("broker-a", "true"))
        (golden, *_) = golden_answers(26)
        self.assertEqual(sorted(response.ext_fields), sorted(golden.ext_fields))
        self.assertEqual(self.version(), {"counter": 0, "timestamp": 1_795_000_000_000})

    def test_update_config_applies_settings(self):
        self.broker.clock.advance(1)
        self.assert_like_apache(self.ask(25, body=b"autoCreateTopicEnable=false\nbrokerPermission=4\n"), 25)
        self.assertFalse(self.broker.settings.broker.auto_create_topic_enable)
        self.assertEqual(self.version(), {"counter": 1, "timestamp": 1_795_000_001_000})
        self.assertEqual(self.broker.registrations, ["brokerPermission was changed"])
        self.assertEqual(self.broker.topics.data_version.counter, 1)

    def test_accepted_value_is_written_to_config_file(self):
        path = os.path.join(self.broker.settings.store.store_path_root_dir, "broker.conf")
        Path(path).write_text("# mine\nlongPollingEnable = true\nbrokerName=broker-a\n")
        self.broker.settings.config_file = path
        self.ask(25, body=b"longPollingEnable=false\n")
        self.assertEqual(Path(path).read_text(), "# mine\nlongPollingEnable=false\nbrokerName=broker-a\n")

    def test_update_of_restart_setting_is_remarked_shown_and_kept(self):
        root = self.broker.settings.store.store_path_root_dir
        path = os.path.join(root, "broker.conf")
        Path(path).write_text("# mine\n")
        for config_file, kept in ((None, os.path.join(root, "config", "changedByRequest.properties")), (path, path)):
            self.broker.settings.config_file = config_file
            answer = self.ask(25, body=b"listenPort=1\nlongPollingEnable=true\n")
            self.assertEqual((answer.code, answer.remark), (0, "listenPort: no effect before the next start"))
            lines = self.ask(26).body.decode().splitlines()
            self.assertIn(f"listenPort={self.broker.settings.server.listen_port}", lines)
            self.assertIn("rocketd.pending.listenPort=1", lines)
            self.assertIn("\nlistenPort=1\n", Path(kept).read_text())
        self.assertIsNone(self.ask(25, body=b"longPollingEnable=true\n").remark)

    def test_update_with_failed_write_names_file_in_error(self):
        self.broker.settings.config_file = "/nowhere/broker.conf"
        code, remark = self.refused(25, body=b"longPollingEnable=false\n")
        self.assertEqual(code, 1)
        self.assertRegex(remark, "^the accepted values are lost at the next start: .* to /nowhere/broker.conf: ")
        self.assertFalse(self.broker.settings.broker.long_polling_enable)
        self.flushLoggedErrors()

    def test_unwritten_value_is_not_pending_and_earlier_one_stays(self):
        root = self.broker.settings.store.store_path_root_dir
        path = self.broker.settings.config_file = os.path.join(root, "broker.conf")
        Path(path).write_text("")
        self.ask(25, body=b"serverSocketBacklog=7\n")
        os.remove(path)
        for text in (b"serverSocketBacklog=8\nlistenPort=1\n", b"serverSocketBacklog=1024\n"):
            self.assertIn("lost at the next start", self.refused(25, body=text)[1])
            waiting = [line for line in self.ask(26).body.decode().splitlines() if line.startswith("rocketd.pending.")]
            self.assertEqual(waiting, ["rocketd.pending.serverSocketBacklog=7"])
        self.flushLoggedErrors()

    def test_value_for_given_file_replaces_older_kept_value(self):
        root = self.broker.settings.store.store_path_root_dir
        self.ask(25, body=b"serverSocketBacklog=77\n")
        path = self.broker.settings.config_file = os.path.join(root, "broker.conf")
        Path(path).write_text("")
        self.ask(25, body=b"serverSocketBacklog=88\nlistenPort=1\n")
        kept = Path(root, "config", "changedByRequest.properties").read_text().splitlines()
        self.assertEqual(kept[1:], ["serverSocketBacklog=88"])

    def test_update_of_a_setting_without_effect_says_so(self):
        answer = self.ask(25, body=b"highSpeedMode=true\n")
        self.assertEqual((answer.code, answer.remark), (0, "highSpeedMode: has no effect in rocketd"))
        self.assertIn("highSpeedMode=true", self.ask(26).body.decode().splitlines())

    def test_update_of_restart_setting_is_logged(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.ask(25, body=b"listenPort=1\nlongPollingEnable=true\n")
        lines = [formatEvent(event) for event in events]
        for what in ("sets listenPort: needs restart", "sets longPollingEnable: applied now"):
            self.assertTrue(any(line.endswith(what) for line in lines), lines)

    def test_update_with_refused_keys_names_them_and_applies_rest(self):
        code, remark = self.refused(25, body=b"longPollingEnable=maybe\nnoSuchKey=1\nautoCreateTopicEnable=false")
        self.assertEqual(code, 1)
        self.assertIn("longPollingEnable: bad value", remark)
        self.assertIn("noSuchKey: unknown key", remark)
        self.assertFalse(self.broker.settings.broker.auto_create_topic_enable)
        self.assertTrue(self.broker.settings.broker.long_polling_enable)

    def test_update_with_malformed_properties_is_refused(self):
        self.assertEqual(self.refused(25, body=b"a=\\u12"), (1, "string2Properties error"))
        self.assertEqual(self.ask(25).code, 0)


class AdminStateTests(ProcessorsTestCase):
    def test_topic_stats(self):
        self.broker.topics.update(TopicConfig("T", 2, 2))
        self.broker.put("T", b"a", b"b")
        response = self.ask(202, {"topic": "T"})
        self.assert_like_apache(response, 202)
        table = {dict(queue)["queueId"]: entry for queue, entry in fastjson.loads(response.body)["offsetTable"].items()}
        last = 1_795_000_001_000
        self.assertEqual(table[0], {"lastUpdateTimestamp": last, "maxOffset": 2, "minOffset": 0})
        self.assertEqual(table[1], {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0})
        self.assertEqual(self.refused(202, {"topic": "X"}), (17, "topic[X] not exist"))

    def test_consumer_connections(self):
        self.assertEqual(self.refused(203, {"consumerGroup": "G"}), (206, "the consumer group[G] not online"))
        self.heartbeat()
        response = self.ask(203, {"consumerGroup": "G"})
        (golden, *_) = [answer for answer in golden_answers(203) if answer.code == 0]
        ours, theirs = fastjson.loads(response.body), fastjson.loads(golden.body)
        self.assertEqual(sorted(ours), sorted(theirs))
        self.assertEqual(
            ours["connectionSet"],
            [{"clientAddr": "127.0.0.1:50556", "clientId": "one", "language": "JAVA", "version": 407}],
        )
        self.assertEqual(
            sorted(ours["subscriptionTable"]["T"]), sorted(next(iter(theirs["subscriptionTable"].values())))
        )

    def test_producer_connections(self):
        self.assertEqual(self.refused(204, {"producerGroup": "P"}), (1, "the producer group[P] not exist"))
        self.heartbeat()
        self.assert_like_apache(self.ask(204, {"producerGroup": "P"}), 204)
        response = self.ask(328)
        (golden, *_) = golden_answers(328)
        ours, theirs = fastjson.loads(response.body), fastjson.loads(golden.body)
        self.assertEqual(shape(ours["data"]["P"]), shape(theirs["data"]["CLIENT_INNER_PRODUCER"]))
        self.assertEqual(ours["data"]["P"][0]["remoteIP"], "/127.0.0.1:50556")

    def test_one_topic_and_one_group_are_described_as_tools_of_5x_ask(self):
        topic = fastjson.loads(self.ask(351, {"topic": "TBW102", "lo": "true"}).body)
        self.assertEqual((topic["topicName"], topic["perm"]), ("TBW102", 7))
        self.assertEqual(self.refused(351, {"topic": "X"}), (17, "No topic in this broker. topic: X"))
        self.assertEqual(self.refused(352, {"group": "G"}), (26, "No group in this broker"))
        self.broker.groups.find("G")
        group = fastjson.loads(self.ask(352, {"group": "G"}).body)
        self.assertEqual((group["groupName"], group["retryMaxTimes"]), ("G", 16))

    def test_groups_of_topic(self):
        self.heartbeat()
        self.broker.offsets.commit("h:1", "Gone", "T", 0, 5)
        response = self.ask(300, {"topic": "T"})
        self.assertEqual(response.body, b'{"groupList":["G","Gone"]}')
        self.assert_like_apache(response, 300)

    def test_system_topics(self):
        response = self.ask(305)
        (golden, *_) = golden_answers(305)
        self.assertEqual(
            sorted(fastjson.loads(response.body)["topicList"]), sorted(fastjson.loads(golden.body)["topicList"])
        )

    def test_offsets_for_slaves(self):
        self.broker.offsets.commit("h:1", "G", "T", 0, 5)
        self.assertEqual(self.ask(43).body, b'{"offsetTable":{"T@G":{0:5}}}')
        self.assertEqual(self.ask(45).body, b'{"offsetTable":{1:1}}')
        self.assertIsNone(self.ask(43).ext_fields)

    WHAT_CLUSTER_LIST_READS = (
        "putTps",
        "getTransferedTps",
        "sendThreadPoolQueueSize",
        "pullThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "brokerVersionDesc",
        *(
            f"msg{what}Total{when}"
            for what in ("Put", "Get")
            for when in ("YesterdayMorning", "TodayMorning", "TodayNow")
        ),
    )

    def test_runtime_info(self):
        self.broker.put("T", b"a")
        self.broker.clock.advance(90061)
        table = fastjson.loads(self.ask(28).body)["table"]
        (golden, *_) = golden_answers(28)
        theirs = {name for name in fastjson.loads(golden.body)["table"] if "/" not in name}
        self.assertEqual({name for name in theirs - set(table) if not name.startswith("scheduleMessageOffset_")}, set())
        unknown = set(table) - theirs
        self.assertEqual({name for name in unknown if not name.startswith(("commitLogDiskRatio_", "ha"))}, set())
        self.assertTrue(all(isinstance(value, str) for value in table.values()))
        self.broker.dispatcher.limits.count("one-way requests lost", 2)
        self.assertEqual(fastjson.loads(self.ask(28).body)["table"]["limitOneWayRequestsLost"], "2")
        self.assertEqual(table["brokerVersionDesc"], "V4_9_7")
        self.assertEqual(table["runtime"], "[ 1 days, 1 hours, 1 minutes, 2 seconds ]")
        self.assertEqual(table["earliestMessageTimeStamp"], "1795000000000")
        self.assertEqual(table["sendThreadPoolQueueSize"], "3")
        self.assertEqual(table["pullThreadPoolQueueHeadWaitTimeMills"], "12")
        self.assertEqual((table["putMessageTimesTotal"], table["msgPutTotalTodayNow"]), ("1", "1"))
        self.assertEqual(table["putMessageSizeTotal"], table["commitLogMaxOffset"])
        self.assertEqual(table["putMessageAverageSize"], str(float(table["commitLogMaxOffset"])))
        self.assertEqual((table["putMessageFailedTimes"], table["putMessageEntireTimeMax"]), ("0", "0"))
        self.assertEqual((table["putLatency99"], table["putLatency999"]), ("0.00", "0.00"))
        self.assertEqual((table["getMessageEntireTimeMax"], table["dispatchMaxBuffer"]), ("0", "0"))
        self.assertEqual(table["putMessageDistributeTime"], "null")
        self.assertEqual(table["remainTransientStoreBufferNumbs"], "2147483647")
        self.assertEqual(table["EndTransactionQueueSize"], "4")
        self.assertEqual(table["EndTransactionThreadPoolQueueCapacity"], "100000")
        for name in self.WHAT_CLUSTER_LIST_READS:
            self.assertIn(name, table)
        self.assertEqual(table["scheduleMessageOffset_1"], "2,3")
        self.assertEqual(table["haSlavesBehindBytes"], "7")
        self.assertEqual(table["dispatchBehindBytes"], "0")
        self.assertRegex(table["commitLogDiskRatio"], r"^[01]\.\d{1,2}$")

    def test_runtime_info_of_an_empty_store(self):
        table = fastjson.loads(self.ask(28).body)["table"]
        self.assertEqual(table["earliestMessageTimeStamp"], "-1")
        self.assertEqual((table["putMessageTimesTotal"], table["msgPutTotalTodayNow"]), ("1", "0"))


class ReplayTests(ProcessorsTestCase):
    """Every recorded request of our codes is answered with the header fields and remark of Apache's answer."""

    WITHOUT_THE_RECORDED_STATE = {12: {22}, 15: {1, 17}, 33: {1}, 38: {1}, 315: {1}}
    """How requests about messages and groups end that this broker does not have."""

    def recorded(self):
        """Yield file, connection, request and answer; requests without an answer have None."""
        for path in sorted(FRAMES.glob("*.jsonl")):
            if path.name in ("ha-port.jsonl", "acl4.jsonl"):
                continue
            waiting = {}
            for line in path.read_text().splitlines():
                record = json.loads(line)
                (frame,) = FrameDecoder().feed(bytes.fromhex(record["hex"]))
                command = RemotingCommand.decode(frame)
                key = (record["connection"], command.opaque)
                if not command.is_response and record["receiver"] == "broker" and command.code in PROCESSORS:
                    waiting[key] = command
                elif command.is_response and record["sender"] == "broker" and key in waiting:
                    yield path.name, record["connection"], waiting.pop(key), command

    def test_recorded_requests_get_apaches_header_fields_and_remarks(self):
        self.broker.settings.broker.enable_property_filter = True
        connections = {}
        count = 0
        for file, number, request, golden in self.recorded():
            connection = connections.setdefault((file, number), MemoryConnection(f"10.0.0.1:{len(connections)}"))
            context = Context(connection)
            try:
                answer = self.made[PROCESSORS[request.code]].process(request, context) or context.answered
            except RequestError as error:
                answer = RemotingCommand.response(error.code, error.remark)
            where = f"{file}: {request} answered {answer}, by Apache {golden}"
            if answer.code != golden.code:
                self.assertIn(answer.code, self.WITHOUT_THE_RECORDED_STATE.get(request.code, ()), where)
                continue
            count += 1
            self.assertEqual(sorted(answer.ext_fields or {}), sorted(golden.ext_fields or {}), where)
            self.assertEqual(answer.body is None, golden.body is None, where)
            if request.code == 25 and answer.remark:  # Apache does not name values lost at a restart
                self.assertRegex(answer.remark, "^flushDelayOffsetInterval: no effect before the next start")
            elif golden.code == 23:  # its remark has the error of Apache's parser
                self.assertIn("; cause: > in line 1, column 4 does not fit there; ", answer.remark)
            elif request.code != 38:  # its remark names the group
                self.assertEqual(answer.remark, golden.remark, where)
            if golden.serialize_type == SerializeType.JSON:  # a binary header cannot tell none from no fields
                self.assertEqual(answer.ext_fields is None, golden.ext_fields is None, where)
        self.assertGreater(count, 150)


class TextTests(SynchronousTestCase):
    def test_byte_count_text(self):
        for count, text in (
            (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (8602, "8.4 KiB"), (270582939648, "252.0 GiB"),
        ):  # fmt: skip
            self.assertEqual(bytes_text(count), text)

    def test_ratio_text(self):
        for used, available, text in ((27, 73, "0.27"), (270001, 729999, "0.28"), (0, 5, "0.0"), (5, 0, "1.0")):
            self.assertEqual(ratio_text(used, available), text)

    def test_duration_text(self):
        self.assertEqual(duration_text(86_999), "[ 0 days, 0 hours, 1 minutes, 26 seconds ]")
