"""Every recorded frame of Apache's servers and clients is understood, and written again the same."""

import json
import random
import zlib

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.bodies import admin as admin_bodies
from rocketd.remoting.bodies import tables as bodies
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.fastjson.convert import converter_for
from rocketd.remoting.headers import client as headers
from rocketd.remoting.wire.codes import LanguageCode, RequestCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.places import FRAMES


def records():
    for path in sorted(FRAMES.glob("*.jsonl")):
        if path.name == "ha-port.jsonl":
            continue
        with path.open() as lines:
            for number, line in enumerate(lines, 1):
                record = json.loads(line)
                record["where"] = f"{path.name}:{number} {record['name']} {record['kind']}"
                record["bytes"] = bytes.fromhex(record["hex"])
                yield record


RECORDS = list(records())


def command_of(record):
    (frame,) = FrameDecoder().feed(record["bytes"])
    return RemotingCommand.decode(frame)


REQUEST_HEADERS = {
    RequestCode.SEND_MESSAGE: headers.SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: headers.SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: headers.SendMessageRequestHeaderV2,
    RequestCode.SEND_REPLY_MESSAGE: headers.SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: headers.SendMessageRequestHeaderV2,
    RequestCode.PULL_MESSAGE: headers.PullMessageRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: headers.PullMessageRequestHeader,
    RequestCode.QUERY_MESSAGE: headers.QueryMessageRequestHeader,
    RequestCode.VIEW_MESSAGE_BY_ID: headers.ViewMessageRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: headers.ConsumerSendMsgBackRequestHeader,
    RequestCode.END_TRANSACTION: headers.EndTransactionRequestHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: headers.QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: headers.UpdateConsumerOffsetRequestHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: headers.SearchOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: headers.QueueRequestHeader,
    RequestCode.GET_MIN_OFFSET: headers.QueueRequestHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: headers.QueueRequestHeader,
    RequestCode.UNREGISTER_CLIENT: headers.UnregisterClientRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: headers.ConsumerGroupRequestHeader,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: headers.ConsumerGroupRequestHeader,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: headers.ConsumerGroupRequestHeader,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: headers.ProducerGroupRequestHeader,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: headers.DeleteSubscriptionGroupRequestHeader,
    RequestCode.UPDATE_AND_CREATE_TOPIC: headers.CreateTopicRequestHeader,
    RequestCode.DELETE_TOPIC_IN_BROKER: headers.TopicRequestHeader,
    RequestCode.GET_TOPIC_STATS_INFO: headers.TopicRequestHeader,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: headers.TopicRequestHeader,
    RequestCode.GET_KV_CONFIG: headers.KVKeyRequestHeader,
    RequestCode.DELETE_KV_CONFIG: headers.KVKeyRequestHeader,
    RequestCode.PUT_KV_CONFIG: headers.PutKVConfigRequestHeader,
    RequestCode.GET_KVLIST_BY_NAMESPACE: headers.KVNamespaceRequestHeader,
    RequestCode.REGISTER_BROKER: headers.RegisterBrokerRequestHeader,
    RequestCode.UNREGISTER_BROKER: headers.BrokerIdentityRequestHeader,
    RequestCode.QUERY_DATA_VERSION: headers.BrokerIdentityRequestHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: headers.GetRouteInfoRequestHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: headers.BrokerNameRequestHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: headers.BrokerNameRequestHeader,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: headers.DeleteTopicInNamesrvRequestHeader,
    RequestCode.GET_TOPICS_BY_CLUSTER: headers.ClusterRequestHeader,
}

SUCCESS_HEADERS = {
    RequestCode.SEND_MESSAGE: headers.SendMessageResponseHeader,
    RequestCode.SEND_MESSAGE_V2: headers.SendMessageResponseHeader,
    RequestCode.SEND_BATCH_MESSAGE: headers.SendMessageResponseHeader,
    RequestCode.PULL_MESSAGE: headers.PullMessageResponseHeader,
    RequestCode.QUERY_MESSAGE: headers.QueryMessageResponseHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: headers.OffsetResponseHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: headers.OffsetResponseHeader,
    RequestCode.GET_MAX_OFFSET: headers.OffsetResponseHeader,
    RequestCode.GET_MIN_OFFSET: headers.OffsetResponseHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: headers.TimestampResponseHeader,
    RequestCode.REGISTER_BROKER: headers.RegisterBrokerResponseHeader,
    RequestCode.QUERY_DATA_VERSION: headers.QueryDataVersionResponseHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: headers.WipeWritePermResponseHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: headers.AddWritePermResponseHeader,
}

REQUEST_BODIES = {
    RequestCode.HEART_BEAT: bodies.HeartbeatData,
    RequestCode.LOCK_BATCH_MQ: bodies.LockBatchRequestBody,
    RequestCode.UNLOCK_BATCH_MQ: bodies.LockBatchRequestBody,
    RequestCode.CHECK_CLIENT_CONFIG: bodies.CheckClientRequestBody,
    RequestCode.REGISTER_BROKER: bodies.RegisterBrokerBody,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: bodies.SubscriptionGroupConfig,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: admin_bodies.ResetOffsetBody,
}

RESPONSE_BODIES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: bodies.TopicConfigSerializeWrapper,
    RequestCode.GET_BROKER_RUNTIME_INFO: bodies.KVTable,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: bodies.GetConsumerListByGroupResponseBody,
    RequestCode.LOCK_BATCH_MQ: bodies.LockBatchResponseBody,
    RequestCode.GET_ALL_CONSUMER_OFFSET: bodies.ConsumerOffsetSerializeWrapper,
    RequestCode.GET_ALL_DELAY_OFFSET: bodies.DelayOffsetSerializeWrapper,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: admin_bodies.GetBrokerClusterAclConfigResponseBody,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: bodies.TopicRouteData,
    RequestCode.GET_BROKER_CLUSTER_INFO: bodies.ClusterInfo,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: bodies.SubscriptionGroupWrapper,
    RequestCode.GET_TOPIC_STATS_INFO: admin_bodies.TopicStatsTable,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: admin_bodies.ConsumerConnection,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: admin_bodies.ProducerConnection,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: bodies.TopicList,
    RequestCode.GET_CONSUME_STATS: admin_bodies.ConsumeStats,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: admin_bodies.ResetOffsetBody,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: admin_bodies.GroupList,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: bodies.TopicList,
    RequestCode.GET_CONSUMER_RUNNING_INFO: admin_bodies.ConsumerRunningInfo,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: admin_bodies.ConsumeMessageDirectlyResult,
    RequestCode.VIEW_BROKER_STATS_DATA: admin_bodies.BrokerStatsData,
    RequestCode.QUERY_CONSUME_QUEUE: admin_bodies.QueryConsumeQueueResponseBody,
    RequestCode.GET_ALL_PRODUCER_INFO: admin_bodies.ProducerTableInfo,
}


def is_java(record):
    return any(word in record["sender"] for word in ("Java", "broker", "namesrv"))


class GoldenFrameTests(SynchronousTestCase):
    def test_recordings_are_complete(self):
        self.assertEqual(len(RECORDS), 954)

    def test_headers_equal_recorded_values(self):
        for record in RECORDS:
            command = command_of(record)
            language = record["language"]
            self.assertEqual(command.language, LanguageCode[language] if isinstance(language, str) else language)
            self.assertEqual(command.serialize_type, SerializeType[record["serialization"]], record["where"])
            self.assertEqual(command.code, record.get("responseCode", record["code"]), record["where"])
            for name in ("opaque", "flag", "version"):
                self.assertEqual(getattr(command, name), record[name], record["where"])
            self.assertEqual(sorted(command.ext_fields or {}), record.get("extFieldNames", []), record["where"])
            # The recorder kept the beginning of long remarks.
            self.assertTrue((command.remark or "").startswith(record.get("remark") or ""), record["where"])
            self.assertEqual(len(command.body or b""), record["bodyLength"], record["where"])
            self.assertEqual(command.is_response, record["kind"] == "response")
            self.assertEqual(command.is_oneway, record["kind"] == "oneway request")

    def test_java_frames_are_encoded_to_same_bytes(self):
        written = 0
        for record in RECORDS:
            if is_java(record):
                self.assertEqual(command_of(record).encode(), record["bytes"], record["where"])
                written += 1
        self.assertGreater(written, 700)

    def test_frames_of_other_clients_keep_content(self):
        for record in RECORDS:
            if not is_java(record):
                command = command_of(record)
                (frame,) = FrameDecoder().feed(command.encode())
                again = RemotingCommand.decode(frame)
                for name in RemotingCommand.__slots__:
                    self.assertEqual(getattr(again, name), getattr(command, name), record["where"])

    def test_split_streams_give_same_frames(self):
        stream = b"".join(record["bytes"] for record in RECORDS)
        wanted = FrameDecoder().feed(stream)
        self.assertEqual(len(wanted), len(RECORDS))
        for seed in range(20):
            chance = random.Random(seed)
            decoder, frames, at = FrameDecoder(), [], 0
            while at < len(stream):
                size = chance.choice((1, 2, 3, 4, 5, 7, 8, 9, 100, 1460, 65536))
                frames += decoder.feed(stream[at : at + size])
                at += size
            self.assertEqual(frames, wanted)
            self.assertEqual(decoder.buffered, 0)

    def test_frames_are_decoded_byte_by_byte(self):
        for record in RECORDS:
            decoder, frames = FrameDecoder(), []
            for byte in record["bytes"]:
                self.assertEqual(frames, [])
                frames = decoder.feed(bytes((byte,)))
            self.assertEqual(frames, FrameDecoder().feed(record["bytes"]), record["where"])

    def check_header(self, record, header_type):
        command = command_of(record)
        header = headers.read_header(header_type, command)
        written = headers.write_header(header)
        self.assertEqual(headers.read_header(header_type, RemotingCommand(0, written)), header, record["where"])
        for name, text in (command.ext_fields or {}).items():
            if name in written:
                # C++ writes booleans as 0 and 1, which Java reads as false.
                meant = "false" if written[name] == "false" and text in ("0", "1") else text
                self.assertEqual(written[name], meant, record["where"])
        for name in header_type.__struct_encode_fields__:
            self.assertTrue(name in written or name not in (command.ext_fields or {}), record["where"])

    def test_typed_request_headers(self):
        for record in RECORDS:
            if record["kind"] != "response" and record["code"] in REQUEST_HEADERS:
                self.check_header(record, REQUEST_HEADERS[record["code"]])

    def test_typed_response_headers(self):
        for record in RECORDS:
            if record["kind"] == "response" and record["responseCode"] == 0 and record["code"] in SUCCESS_HEADERS:
                self.check_header(record, SUCCESS_HEADERS[record["code"]])

    def test_json_bodies_fit_their_types(self):
        for record in RECORDS:
            if not record["body"].startswith("json"):
                continue
            types = RESPONSE_BODIES if record["kind"] == "response" else REQUEST_BODIES
            data = command_of(record).body
            body = types[record["code"]].decode(data)
            self.assertEqual(converter_for(types[record["code"]])(fastjson.loads(data)), body, record["where"])
            self.assertEqual(types[record["code"]].decode(body.encode()), body, record["where"])
            self.assertEqual(types[record["code"]].decode(body.encode(standard=True)), body, record["where"])
            json.loads(body.encode(standard=True))
            if is_java(record) and "5.3.3" not in record["sender"]:  # whose bodies have members 4.9.7 does not know
                # Routes come in the standard form to those who understand no other.
                written = body.encode(standard=b'{"0":' in data)
                self.assertEqual(in_order(fastjson.loads(written)), in_order(fastjson.loads(data)), record["where"])
                self.assertEqual(len(written), len(data), record["where"])

    def test_compressed_registrations(self):
        seen = 0
        for record in RECORDS:
            if record["code"] == RequestCode.REGISTER_BROKER and record["body"] == "binary":
                command = command_of(record)
                header = headers.read_header(headers.RegisterBrokerRequestHeader, command)
                self.assertTrue(header.compressed)
                self.assertEqual(zlib.crc32(command.body) & 0x7FFFFFFF, header.body_crc32)
                body = bodies.RegisterBrokerBody.inflate(command.body)
                self.assertIn("TBW102", body.topic_config_serialize_wrapper.topic_config_table)
                self.assertEqual(zlib.decompress(body.deflate()), zlib.decompress(command.body))
                seen += 1
        self.assertEqual(seen, 3)


def in_order(value):
    """Sort the members of a Java set, whose order means nothing."""
    if isinstance(value, dict):
        return {name: in_order(member) for name, member in value.items()}
    return sorted(map(in_order, value), key=repr) if isinstance(value, list) else value
