"""Makes requests that get past the headers: every code with all fields that it requires, and a body of its type.

The fields come from the header classes, so that a new field cannot be forgotten. In a share of the requests one field or
one part of the body is then broken. The opaque of a request tells its code, so that answers can be counted by code.
"""

import json
import struct
from collections.abc import Callable
from random import Random

from msgspec.structs import fields as struct_fields

from rocketd.remoting.bodies.tables import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    DataVersion,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    MessageQueue,
    ProducerData,
    RegisterBrokerBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketd.remoting.headers import acl as acl_headers
from rocketd.remoting.headers import admin as admin_headers
from rocketd.remoting.headers import client as headers
from rocketd.remoting.wire.codes import RequestCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand

HEADERS: dict[RequestCode, type[headers.Header] | None] = {
    RequestCode.SEND_MESSAGE: headers.SendMessageRequestHeader,
    RequestCode.PULL_MESSAGE: headers.PullMessageRequestHeader,
    RequestCode.QUERY_MESSAGE: headers.QueryMessageRequestHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: headers.QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: headers.UpdateConsumerOffsetRequestHeader,
    RequestCode.UPDATE_AND_CREATE_TOPIC: headers.CreateTopicRequestHeader,
    RequestCode.GET_ALL_TOPIC_CONFIG: None,
    RequestCode.UPDATE_BROKER_CONFIG: None,
    RequestCode.GET_BROKER_CONFIG: None,
    RequestCode.GET_BROKER_RUNTIME_INFO: None,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: headers.SearchOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: headers.QueueRequestHeader,
    RequestCode.GET_MIN_OFFSET: headers.QueueRequestHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: headers.QueueRequestHeader,
    RequestCode.VIEW_MESSAGE_BY_ID: headers.ViewMessageRequestHeader,
    RequestCode.HEART_BEAT: None,
    RequestCode.UNREGISTER_CLIENT: headers.UnregisterClientRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: headers.ConsumerSendMsgBackRequestHeader,
    RequestCode.END_TRANSACTION: headers.EndTransactionRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: headers.ConsumerGroupRequestHeader,
    RequestCode.LOCK_BATCH_MQ: None,
    RequestCode.UNLOCK_BATCH_MQ: None,
    RequestCode.GET_ALL_CONSUMER_OFFSET: None,
    RequestCode.GET_ALL_DELAY_OFFSET: None,
    RequestCode.CHECK_CLIENT_CONFIG: None,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: acl_headers.CreateAccessConfigRequestHeader,
    RequestCode.DELETE_ACL_CONFIG: acl_headers.DeleteAccessConfigRequestHeader,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: None,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: acl_headers.UpdateGlobalWhiteAddrsConfigRequestHeader,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: None,
    RequestCode.PUT_KV_CONFIG: headers.PutKVConfigRequestHeader,
    RequestCode.GET_KV_CONFIG: headers.KVKeyRequestHeader,
    RequestCode.DELETE_KV_CONFIG: headers.KVKeyRequestHeader,
    RequestCode.REGISTER_BROKER: headers.RegisterBrokerRequestHeader,
    RequestCode.UNREGISTER_BROKER: headers.BrokerIdentityRequestHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: headers.GetRouteInfoRequestHeader,
    RequestCode.GET_BROKER_CLUSTER_INFO: None,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: None,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: None,
    RequestCode.GET_TOPIC_STATS_INFO: headers.TopicRequestHeader,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: headers.ConsumerGroupRequestHeader,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: headers.ProducerGroupRequestHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: headers.BrokerNameRequestHeader,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: None,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: headers.DeleteSubscriptionGroupRequestHeader,
    RequestCode.GET_CONSUME_STATS: admin_headers.GetConsumeStatsRequestHeader,
    RequestCode.DELETE_TOPIC_IN_BROKER: headers.TopicRequestHeader,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: headers.DeleteTopicInNamesrvRequestHeader,
    RequestCode.GET_KVLIST_BY_NAMESPACE: headers.KVNamespaceRequestHeader,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: admin_headers.ResetOffsetRequestHeader,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: admin_headers.GetConsumerStatusRequestHeader,
    RequestCode.GET_TOPICS_BY_CLUSTER: headers.ClusterRequestHeader,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: headers.TopicRequestHeader,
    RequestCode.QUERY_CONSUME_TIME_SPAN: admin_headers.QueryConsumeTimeSpanRequestHeader,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: None,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: None,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: None,
    RequestCode.GET_CONSUMER_RUNNING_INFO: admin_headers.GetConsumerRunningInfoRequestHeader,
    RequestCode.QUERY_CORRECTION_OFFSET: admin_headers.QueryCorrectionOffsetHeader,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: admin_headers.ConsumeMessageDirectlyRequestHeader,
    RequestCode.SEND_MESSAGE_V2: headers.SendMessageRequestHeaderV2,
    RequestCode.GET_UNIT_TOPIC_LIST: None,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: None,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: None,
    RequestCode.CLONE_GROUP_OFFSET: admin_headers.CloneGroupOffsetRequestHeader,
    RequestCode.VIEW_BROKER_STATS_DATA: admin_headers.ViewBrokerStatsDataRequestHeader,
    RequestCode.CLEAN_UNUSED_TOPIC: None,
    RequestCode.GET_BROKER_CONSUME_STATS: admin_headers.GetConsumeStatsInBrokerHeader,
    RequestCode.UPDATE_NAMESRV_CONFIG: None,
    RequestCode.GET_NAMESRV_CONFIG: None,
    RequestCode.SEND_BATCH_MESSAGE: headers.SendMessageRequestHeaderV2,
    RequestCode.QUERY_CONSUME_QUEUE: admin_headers.QueryConsumeQueueRequestHeader,
    RequestCode.QUERY_DATA_VERSION: headers.BrokerIdentityRequestHeader,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: headers.ResumeCheckHalfMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE: headers.SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: headers.SendMessageRequestHeaderV2,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: headers.BrokerNameRequestHeader,
    RequestCode.GET_ALL_PRODUCER_INFO: None,
    RequestCode.DELETE_EXPIRED_COMMITLOG: None,
    RequestCode.GET_TOPIC_CONFIG: headers.TopicRequestHeader,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: headers.GroupRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: headers.PullMessageRequestHeader,
    RequestCode.GET_GROUP_PROBLEMS: admin_headers.GroupProblemsRequestHeader,
    RequestCode.GET_CONSUMER_LAG: admin_headers.ConsumerLagRequestHeader,
    RequestCode.AWAIT_TABLE_CHANGES: None,
    RequestCode.GET_ADMIN_CHANGES: admin_headers.AdminChangesRequestHeader,
}
"""The header of each code that a server of rocketd serves; None: it has no fields, or only free ones."""
_CODES = tuple(HEADERS)
_MARK = 1 << 30
"""Bit of the opaques of these requests; those of other frames stay below it."""
_BROKEN_SHARE = 0.25
TOPICS = (
    "FuzzTopic",
    "FuzzTopic",
    "Fuzz2",
    "%RETRY%fuzz-group",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
)
GROUPS = ("fuzz-group", "fuzz-group", "fuzz-2", "CID_ONSAPI_OWNER")
TEXTS: dict[str, tuple[str, ...]] = {
    "topic": TOPICS,
    "origin_topic": TOPICS,
    "default_topic": ("TBW102", "FuzzTopic"),
    "topic_filter_type": ("SINGLE_TAG", "MULTI_TAG"),
    "properties": (
        "", "TAGS\x01A\x02KEYS\x01k\x02a\x011\x02", "DELAY\x013\x02", "TRAN_MSG\x01true\x02PGROUP\x01fuzz-group\x02",
        "UNIQ_KEY\x017F000001000118B4AAC200000000000A\x02", "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02",
        "RECONSUME_TIME\x01x\x02", "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01c\x02CORRELATION_ID\x011\x02",
    ),
    "expression_type": ("TAG", "SQL92"),
    "msg_id": ("7F00000100002A9F0000000000000000", "7F00000100002A9F0000000000000123"),
    "stats_name": ("TOPIC_PUT_NUMS", "GROUP_GET_NUMS"),
    "stats_key": ("FuzzTopic", "FuzzTopic@fuzz-group"),
    "namespace": ("ORDER_TOPIC_CONFIG", "fuzz"),
    "broker_name": ("fuzz-broker", "fuzz-2"),
    "broker_addr": ("127.0.0.1:1", "127.0.0.1:2"),
    "ha_server_addr": ("127.0.0.1:3",),
    "white_remote_address": ("10.0.0.*",),
    "global_white_addrs": ("10.0.0.*",),
}  # fmt: skip
NUMBERS: dict[str, tuple[int, ...]] = {
    "queue_id": (0, 0, 1, 3, -1, 99),
    "sys_flag": (0, 1, 2, 4, 7, 8, 12, 6),
    "perm": (2, 4, 6),
    "read_queue_nums": (1, 4, 8),
    "write_queue_nums": (1, 4, 8),
    "topic_sys_flag": (0, 1, 2, 3),
    "commit_or_rollback": (0, 8, 12),
    "suspend_timeout_millis": (0, 1, 50),
    "max_msg_nums": (1, 32, 1000),
    "max_num": (1, 64, 1000),
    "delay_level": (-1, 0, 3, 18),
    "count": (0, 1, 100),
    "body_crc32": (0,),
}
OFFSETS = (0, 0, 1, 5, 100, 291, 2**31, 2**62)
SETTINGS = (
    b"traceOn=false",
    b"traceOn=true",
    b"regionId=fuzz",
    b"traceOn=x",
    b"noSuchSetting=1",
    b"slaveTimeout=-1",
    b"a\\u00",
)
"""Bodies of harmless changes of settings: later requests are not refused for them."""


class RequestMaker:
    """Makes requests from a source of chance. ``nonsense`` gives a text, ``odd_json`` a value to break things with."""

    def __init__(
        self, random: Random, sql: tuple[str, ...], nonsense: Callable[[], str], odd_json: Callable[[int], object]
    ) -> None:
        self._random = random
        self._sql = sql
        self._nonsense = nonsense
        self._odd_json = odd_json
        self._count = 0

    def frame(self) -> bytes:
        """Make a request of any code, most often a valid one."""
        return self.request(self._random.choice(_CODES), broken=self._random.random() < _BROKEN_SHARE).encode()

    def request(self, code: RequestCode, *, broken: bool = False) -> RemotingCommand:
        """Make a request of a code; ``broken`` has a field or a part of the body that is not as it should be."""
        random = self._random
        fields = self._fields(code)
        body = self.body(code, fields)
        if broken and body and random.random() < 0.5:
            body = self._break(body)
        elif broken and fields:
            name = random.choice(sorted(fields))
            fields[name] = self._nonsense()
            if random.random() < 0.2:
                del fields[name]
        self._count += 1
        return RemotingCommand(
            code,
            fields or None,
            body,
            opaque=_MARK | _CODES.index(code) << 16 | self._count & 0xFFFF,
            serialize_type=random.choice((SerializeType.JSON, SerializeType.ROCKETMQ)),
        )

    def _fields(self, code: RequestCode) -> dict[str, str]:
        if code == RequestCode.AWAIT_TABLE_CHANGES:
            return {name: self._random.choice(("", "0-0", "1-1")) for name in ("topics", "groups", "offsets")}
        header = HEADERS[code]
        if header is None:
            return {}
        return {
            field.encode_name: self._value(field.name, field.type)
            for field in struct_fields(header)
            if field.required or self._random.random() < 0.7
        }

    def _value(self, name: str, declared: object) -> str:
        random = self._random
        if name == "subscription":
            return random.choice(("*", "A", "A || B", *self._sql))
        if name in TEXTS:
            return random.choice(TEXTS[name])
        if name.endswith("group"):
            return random.choice(GROUPS)
        if "bool" in str(declared):
            return random.choice(("true", "false"))
        if "int" in str(declared):
            return str(
                random.choice(NUMBERS.get(name, OFFSETS[:6] if name.endswith(("nums", "times", "flag")) else OFFSETS))
            )
        return random.choice(("fuzz", "fuzz-client", "k", "FuzzTopic", "fuzz-key-123"))

    # ------------------------------------------------------------ bodies

    def body(self, code: RequestCode, fields: dict[str, str]) -> bytes | None:
        """Make the body of a code; fields describing it are set."""
        random = self._random
        match code:
            case RequestCode.SEND_BATCH_MESSAGE:
                fields["m"] = "true"
                return self.batch()
            case RequestCode.SEND_MESSAGE | RequestCode.SEND_MESSAGE_V2:
                return random.randbytes(random.randrange(1, 200))
            case RequestCode.SEND_REPLY_MESSAGE | RequestCode.SEND_REPLY_MESSAGE_V2:
                return b"reply"
            case RequestCode.HEART_BEAT:
                groups = [
                    ConsumerData(
                        random.choice(GROUPS),
                        random.choice(list(ConsumeType)),
                        random.choice(list(MessageModel)),
                        subscription_data_set=[self._subscription() for _ in range(random.randrange(3))],
                    )
                    for _ in range(random.randrange(3))
                ]
                return HeartbeatData("fuzz-client", [ProducerData("fuzz-group")], groups).encode()
            case RequestCode.CHECK_CLIENT_CONFIG:
                return CheckClientRequestBody("fuzz-client", "fuzz-group", self._subscription()).encode()
            case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
                queues = {MessageQueue(random.choice(TOPICS), "broker-a", random.randrange(8)) for _ in range(3)}
                return LockBatchRequestBody("fuzz-group", "fuzz-client", queues).encode()
            case RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
                return SubscriptionGroupConfig(
                    random.choice(GROUPS), retry_queue_nums=random.choice((0, 1, 99))
                ).encode()
            case RequestCode.REGISTER_BROKER:
                table = {topic: TopicConfig(topic, 4, 4) for topic in TOPICS[: random.randrange(4)]}
                content = RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, random.randrange(9))))
                return content.deflate() if fields.get("compressed") == "true" else content.encode()
            case RequestCode.QUERY_DATA_VERSION:
                return DataVersion(1, random.randrange(9)).encode()
            case RequestCode.UPDATE_BROKER_CONFIG | RequestCode.UPDATE_NAMESRV_CONFIG:
                return random.choice(SETTINGS)
        return None

    def batch(self, lying: bool = False) -> bytes:
        """Make the body of a batch; a lying one has a wrong length."""
        random = self._random
        parts = []
        for _ in range(random.randrange(1, 6)):
            body, properties = random.randbytes(random.randrange(1, 30)), b"TAGS\x01A\x02"
            size = 22 + len(body) + len(properties)
            said = random.choice((0, -1, 2**31 - 1, size - 3, size + 3)) if lying else size
            parts.append(struct.pack(">iiiii", said, 0, 0, 0, len(body)) + body)
            parts.append(struct.pack(">h", len(properties)) + properties)
        return b"".join(parts)

    def _subscription(self) -> SubscriptionData:
        kind = self._random.choice(("TAG", "SQL92"))
        text = self._random.choice(self._sql if kind == "SQL92" else ("*", "A", "A || B"))
        return SubscriptionData(self._random.choice(TOPICS), text, sub_version=1, expression_type=kind)

    def _break(self, body: bytes) -> bytes:
        random = self._random
        try:
            content = json.loads(body)
        except ValueError:
            if random.random() < 0.5:
                return self.batch(lying=True)
            position = random.randrange(len(body))
            return body[:position] + random.randbytes(3) + body[position + random.randrange(4) :]
        places: list[tuple[object, object]] = []
        _list_places(content, places)
        if not places:
            return b"null"
        holder, key = random.choice(places)
        holder[key] = self._odd_json(2)  # type: ignore[index]
        return json.dumps(content).encode()


def _list_places(value: object, places: list[tuple[object, object]]) -> None:
    """Collect every (list or dict, key) of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        places.append((value, key))
        _list_places(inner, places)


def code_of(opaque: int) -> RequestCode | None:
    """Return the code of the request of an answer, None if a `RequestMaker` did not make it."""
    number = (opaque - _MARK) >> 16
    return _CODES[number] if opaque >= _MARK and number < len(_CODES) else None
