import json
import random
import re
import zlib
from struct import pack
from unittest.mock import patch

from msgspec import inspect as kinds
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.bodies import admin as admin_bodies
from rocketd.remoting.bodies import groups as group_bodies
from rocketd.remoting.bodies import lag as lag_bodies
from rocketd.remoting.bodies import tables as bodies
from rocketd.remoting.bodies.tables import (
    BrokerData,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    DataVersion,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicRouteData,
)
from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.wire.codes import LanguageCode

QUEUE = MessageQueue("T", "b", 0)
QUEUE_JSON = b'{"brokerName":"b","queueId":0,"topic":"T"}'


def sequence_fields():
    """All members of all bodies that are lists or sets of structs or scalars."""
    for module in (bodies, admin_bodies, group_bodies, lag_bodies):
        for body_type in vars(module).values():
            if isinstance(body_type, type) and issubclass(body_type, bodies.Body | bodies.FrozenBody):
                if body_type.__module__ != module.__name__:
                    continue
                for field in kinds.type_info(body_type).fields:
                    if isinstance(
                        field.type, kinds.ListType | kinds.SetType | kinds.FrozenSetType | kinds.VarTupleType
                    ):
                        yield body_type, field


def value_of(type_):
    """A value that a required member takes."""
    if isinstance(type_, kinds.EnumType):
        return next(iter(type_.cls)).value
    plain = {kinds.StrType: "x", kinds.IntType: 1, kinds.FloatType: 1.5, kinds.BoolType: True, kinds.ListType: []}
    return plain.get(type(type_), {})


class BodyTests(SynchronousTestCase):
    def test_absent_body_is_an_error(self):
        for data in (None, b""):
            for body_type in (HeartbeatData, TopicRouteData):
                with self.assertRaisesRegex(RemotingCommandError, "body is missing"):
                    body_type.decode(data)

    def test_null_or_mistyped_list_items_are_refused_in_every_body(self):
        checked = 0
        for body_type, field in sequence_fields():
            required = {
                other.encode_name: value_of(other.type) for other in kinds.type_info(body_type).fields if other.required
            }
            items = [None] if isinstance(field.type.item_type, kinds.StrType) else [None, "", [[]]]
            for item in items:
                text = json.dumps({**required, field.encode_name: [item]}).encode()
                with self.assertRaisesRegex(RemotingCommandError, re.escape(f"{field.encode_name}[0]"), msg=text):
                    body_type.decode(text)
                checked += 1
        self.assertGreater(checked, 40)

    def test_bodies_of_defaults_are_written_and_read(self):
        seen = 0
        for module in (bodies, admin_bodies):
            for body_type in vars(module).values():
                if isinstance(body_type, type) and issubclass(body_type, bodies.Body | bodies.FrozenBody):
                    try:
                        body = body_type()
                    except TypeError:
                        continue
                    self.assertEqual(body_type.decode(body.encode()), body)
                    self.assertEqual(body_type.decode(body.encode(standard=True)), body)
                    seen += 1
        self.assertGreater(seen, 25)

    def test_unknown_members_are_ignored_and_names_match_in_any_case(self):
        version = DataVersion.decode(b'{"stateVersion":3,"TimeStamp":5,"counter":"7"}')
        self.assertEqual(version, DataVersion(5, 7))
        config = TopicConfig.decode(b'{"topicName":"T","attributes":{"+a":"b"},"perm":4}')
        self.assertEqual(config, TopicConfig("T", perm=4))

    def test_body_members_are_those_of_protocol(self):
        self.assertEqual(
            TopicConfig("T").encode(),
            b'{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"T",'
            b'"topicSysFlag":0,"writeQueueNums":16}',
        )
        self.assertEqual(
            bodies.SubscriptionGroupConfig("G").encode(),
            b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
            b'"groupName":"G","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
            b'"whichBrokerWhenConsumeSlowly":1}',
        )
        self.assertEqual(bodies.TopicList(["T"], "a:1").encode(), b'{"brokerAddr":"a:1","topicList":["T"]}')
        self.assertEqual(bodies.TopicList().encode(), b'{"topicList":[]}')
        self.assertEqual(bodies.KVTable({"k": "v"}).encode(), b'{"table":{"k":"v"}}')
        self.assertEqual(
            admin_bodies.ConsumerRunningInfo(mq_table={QUEUE: admin_bodies.ProcessQueueInfo(droped=True)}).encode(),
            b'{"mqTable":{' + QUEUE_JSON + b':{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,'
            b'"cachedMsgSizeInMiB":0,"commitOffset":0,"droped":true,"lastConsumeTimestamp":0,"lastLockTimestamp":0,'
            b'"lastPullTimestamp":0,"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,'
            b'"transactionMsgMinOffset":0,"tryUnlockTimes":0}},"properties":{},"statusTable":{},"subscriptionSet":[]}',
        )
        self.assertEqual(
            admin_bodies.ConsumeMessageDirectlyResult(consume_result=admin_bodies.CMResult.CR_LATER).encode(),
            b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"spentTimeMills":0}',
        )
        self.assertEqual(
            admin_bodies.ProducerInfo("c", "/1.2.3.4:5", LanguageCode.GO, 407, 9).encode(),
            b'{"clientId":"c","language":"GO","lastUpdateTimestamp":9,"remoteIP":"/1.2.3.4:5","version":407}',
        )

    def test_config_files(self):
        wrapper = TopicConfigSerializeWrapper({"T": TopicConfig("T")}, DataVersion(5, 6))
        text = fastjson.dumps_pretty(wrapper)
        self.assertTrue(text.startswith(b'{\n\t"dataVersion":{\n\t\t"counter":6,\n\t\t"timestamp":5\n\t},\n\t"topicCo'))
        self.assertEqual(TopicConfigSerializeWrapper.decode(text), wrapper)
        offsets = bodies.ConsumerOffsetSerializeWrapper.decode(b'{"offsetTable":{"T@G":{0:5,"1":7}}}')
        self.assertEqual(offsets.offset_table, {"T@G": {0: 5, 1: 7}})
        self.assertEqual(offsets.encode(), b'{"offsetTable":{"T@G":{0:5,1:7}}}')
        delays = bodies.DelayOffsetSerializeWrapper.decode(b'{\n\t"offsetTable":{1:100,3:20\n\t}\n}')
        self.assertEqual(delays.offset_table, {1: 100, 3: 20})
        broadcast = bodies.BroadcastOffsetSerializeWrapper.decode(b'{"offsetTable":{%b:5}}' % QUEUE_JSON)
        self.assertEqual(broadcast.offset_table, {QUEUE: 5})


class DataVersionTests(SynchronousTestCase):
    def test_next_version_keeps_original(self):
        version = DataVersion(5, 6)
        self.assertEqual(version.next_version(9), DataVersion(9, 7))
        self.assertEqual(version, DataVersion(5, 6))
        self.assertNotEqual(version, DataVersion(5, 7))
        self.assertNotEqual(version, DataVersion(6, 6))


class HeartbeatTests(SynchronousTestCase):
    def test_heartbeat_of_java_is_read(self):
        data = (
            b'{"clientID":"1.1.1.1@1#2","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
            b'"consumeType":"CONSUME_PASSIVELY","groupName":"cg","messageModel":"CLUSTERING","subscriptionDataSet":'
            b'[{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
            b'"subVersion":1795251841780,"tagsSet":["TagA","TagB"],"topic":"T"}],"unitMode":false}],'
            b'"producerDataSet":[{"groupName":"pg"}]}'
        )
        body = HeartbeatData.decode(data)
        self.assertEqual(
            body.consumer_data_set,
            [
                ConsumerData(
                    "cg",
                    ConsumeType.CONSUME_PASSIVELY,
                    MessageModel.CLUSTERING,
                    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                    [SubscriptionData("T", "TagA || TagB", {"TagA", "TagB"}, {2598919, 2598920}, 1795251841780)],
                )
            ],
        )
        self.assertEqual(body.encode(), data)

    def test_heartbeat_with_ordinals_and_absent_members(self):
        body = HeartbeatData.decode(
            b'{"ClientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":'
            b'"Clustering","subscriptionDataSet":[{"subString":"*","subVersion":"179","topic":"T"}]}]}\n'
        )
        (consumer,) = body.consumer_data_set
        self.assertIs(consumer.consume_from_where, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        self.assertIs(consumer.consume_type, ConsumeType.CONSUME_PASSIVELY)
        self.assertIs(consumer.message_model, MessageModel.CLUSTERING)
        self.assertIs(consumer.unit_mode, False)
        (subscription,) = consumer.subscription_data_set
        self.assertEqual(subscription, SubscriptionData("T", "*", set(), set(), 179, "TAG", False))
        self.assertEqual(body.producer_data_set, [])

    def test_unknown_enum_names_read_as_none(self):
        body = HeartbeatData.decode(
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_POP","messageModel":"LITE"}]}'
        )
        self.assertEqual(body.consumer_data_set, [ConsumerData("g")])

    def test_heartbeat_without_client_id_is_refused(self):
        with self.assertRaisesRegex(RemotingCommandError, "clientID: the member is missing"):
            HeartbeatData.decode(b'{"producerDataSet":[]}')

    def test_ordinals_are_those_of_java(self):
        self.assertEqual([member.name for member in MessageModel], ["BROADCASTING", "CLUSTERING"])
        self.assertEqual(list(ConsumeType)[1], "CONSUME_PASSIVELY")
        self.assertEqual(list(ConsumeFromWhere)[5], "CONSUME_FROM_TIMESTAMP")
        self.assertTrue(all(int(member) == index for index, member in enumerate(LanguageCode)))


class RouteTests(SynchronousTestCase):
    route = TopicRouteData(
        [bodies.QueueData("ä", 4, 4, 6, 0)], [BrokerData("c", "ä", {0: "1.2.3.4:10911", 1: "1.2.3.5:10911"})]
    )

    def test_for_new_and_old_clients(self):
        self.assertEqual(
            self.route.encode(),
            '{"brokerDatas":[{"brokerAddrs":{0:"1.2.3.4:10911",1:"1.2.3.5:10911"},"brokerName":"ä","cluster":"c"}],'
            '"filterServerTable":{},"queueDatas":[{"brokerName":"ä","perm":6,"readQueueNums":4,"topicSysFlag":0,'
            '"writeQueueNums":4}]}'.encode(),
        )
        standard = self.route.encode(standard=True)
        self.assertTrue(standard.isascii())
        self.assertEqual(json.loads(standard)["brokerDatas"][0]["brokerAddrs"]["1"], "1.2.3.5:10911")
        for data in (self.route.encode(), standard):
            self.assertEqual(TopicRouteData.decode(data), self.route)

    def test_old_spelling_of_topic_flag_is_read(self):
        route = TopicRouteData.decode(b'{"queueDatas":[{"brokerName":"b","perm":6,"topicSynFlag":2}]}')
        self.assertEqual(route.queue_datas, [bodies.QueueData("b", perm=6, topic_sys_flag=2)])

    def test_acting_master_member_is_written_if_set(self):
        self.assertNotIn(b"enableActingMaster", BrokerData("c", "b").encode())
        self.assertIn(b'"enableActingMaster":false', BrokerData("c", "b", {}, False).encode())

    def test_cluster_info(self):
        info = bodies.ClusterInfo({"b": BrokerData("c", "b", {0: "a:1"})}, {"c": {"b2", "b"}})
        self.assertEqual(
            info.encode(),
            b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}},'
            b'"clusterAddrTable":{"c":["b","b2"]}}',
        )
        self.assertEqual(bodies.ClusterInfo.decode(info.encode()), info)


class RegistrationTests(SynchronousTestCase):
    body = RegisterBrokerBody(
        TopicConfigSerializeWrapper(
            {"T": TopicConfig("T"), "ä": TopicConfig("ä", 1, 2, 4, TopicFilterType.MULTI_TAG)}, DataVersion(5, 6)
        ),
        ["1.2.3.4:1"],
    )

    def refused(self, plain, pattern):
        with self.assertRaisesRegex(RemotingCommandError, pattern):
            RegisterBrokerBody.inflate(zlib.compress(plain))

    def test_plain_registration_is_read_back(self):
        self.assertEqual(RegisterBrokerBody.decode(self.body.encode()), self.body)

    def test_compressed_registration_is_read_back(self):
        data = self.body.deflate()
        self.assertEqual(data[:2], b"\x78\xda")
        self.assertEqual(RegisterBrokerBody.inflate(data), self.body)
        version = b'{"counter":6,"timestamp":5}'
        topics = b"T 16 16 6 SINGLE_TAG", "ä 1 2 4 MULTI_TAG".encode()
        plain = [pack(">i", 27), version, pack(">i", 2)]
        for part in (*topics, b'["1.2.3.4:1"]'):
            plain += [pack(">i", len(part)), part]
        self.assertEqual(zlib.decompress(data), b"".join(plain))

    def test_empty_registration_is_inflated(self):
        self.assertEqual(RegisterBrokerBody.inflate(RegisterBrokerBody().deflate()), RegisterBrokerBody())

    def test_short_topic_form_loses_order_and_flags(self):
        body = RegisterBrokerBody(TopicConfigSerializeWrapper({"T": TopicConfig("T", order=True, topic_sys_flag=3)}))
        again = RegisterBrokerBody.inflate(body.deflate())
        self.assertEqual(again.topic_config_serialize_wrapper.topic_config_table, {"T": TopicConfig("T")})

    def test_malformed_or_cut_zlib_is_refused(self):
        for data in (None, b"", b"no zlib", self.body.deflate()[:40]):
            with self.assertRaises(RemotingCommandError):
                RegisterBrokerBody.inflate(data)

    def test_wrong_lengths_are_refused(self):
        version = pack(">i", 2) + b"{}"
        self.refused(b"", "ends too early")
        self.refused(pack(">i", 100) + b"{}", "ends before the 100 bytes")
        self.refused(pack(">i", -1), "ends before the -1 bytes")
        self.refused(version + pack(">i", 2**31 - 1), "ends too early")
        self.refused(version + pack(">ii", 1, 3) + b"T 1", "not a topic config")
        self.refused(version + pack(">ii", 1, 10) + b"T 1 1 x AB", "not a topic config")
        self.refused(version + pack(">ii", 0, 1) + b"[", "ends too early")

    def test_zip_bombs_are_not_unpacked(self):
        bomb = zlib.compress(bytes(3_000_000), 9)
        self.assertLess(len(bomb), 5000)
        with (
            patch.object(bodies, "MAX_INFLATED_REGISTRATION", 100_000),
            self.assertRaisesRegex(RemotingCommandError, "over 100000 bytes"),
        ):
            RegisterBrokerBody.inflate(bomb)

    def test_damaged_registration_is_error_or_other_body(self):
        plain = zlib.decompress(self.body.deflate())
        chance = random.Random(7)
        for _ in range(2000):
            damaged = bytearray(plain)
            damaged[chance.randrange(len(plain))] = chance.randrange(256)
            try:
                RegisterBrokerBody.inflate(zlib.compress(bytes(damaged), 1))
            except RemotingCommandError:
                pass


class QueueTests(SynchronousTestCase):
    def test_queues_are_keys_and_sorted(self):
        self.assertEqual({QUEUE: 1}[MessageQueue("T", "b", 0)], 1)
        self.assertLess(QUEUE, MessageQueue("T", "b", 1))

    def test_lock_bodies(self):
        request = bodies.LockBatchRequestBody("g", "c", {QUEUE, MessageQueue("T", "b", 1)})
        self.assertEqual(
            request.encode(),
            b'{"clientId":"c","consumerGroup":"g","mqSet":[%b,{"brokerName":"b","queueId":1,"topic":"T"}]}'
            % QUEUE_JSON,
        )
        self.assertEqual(bodies.LockBatchRequestBody.decode(request.encode() + b"\n"), request)
        self.assertEqual(bodies.LockBatchResponseBody({QUEUE}).encode(), b'{"lockOKMQSet":[%b]}' % QUEUE_JSON)

    def test_offsets_for_java_and_cpp(self):
        body = admin_bodies.ResetOffsetBody({QUEUE: 5})
        self.assertEqual(body.encode(), b'{"offsetTable":{%b:5}}' % QUEUE_JSON)
        self.assertEqual(admin_bodies.ResetOffsetBody.decode(body.encode()), body)
        self.assertEqual(
            admin_bodies.ResetOffsetBodyForC([admin_bodies.MessageQueueForC("T", "b", 0, 5)]).encode(),
            b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"}]}',
        )

    def test_statistics_are_written_with_their_fractions(self):
        stats = admin_bodies.ConsumeStats({QUEUE: admin_bodies.OffsetWrapper(3, 2, 1)})
        self.assertEqual(
            stats.encode(),
            b'{"consumeTps":0.0,"offsetTable":{%b:{"brokerOffset":3,"consumerOffset":2,"lastTimestamp":1}}}'
            % QUEUE_JSON,
        )
