"""Bodies exchanged by name server, broker and clients, and the JSON config files.

Counterpart: the classes in org.apache.rocketmq.common.protocol (body, heartbeat, route), and `TopicConfig`,
`DataVersion` and `SubscriptionGroupConfig` (Apache). Attributes are the snake-case form of the wire names. Missing
members get the defaults declared here, unknown ones are ignored. Bodies of administration are in ``admin``.
"""

import zlib
from enum import StrEnum
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, Self

import msgspec

from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.fastjson import dialect as fastjson

_INT = Struct(">i")

MAX_INFLATED_REGISTRATION: Final = 64 * 1024 * 1024
"""Greatest unpacked size in bytes of a compressed registration. Half a million topics fit, a zip bomb does not."""


class JavaEnum(StrEnum):
    """An enum written by name. The order of its members gives the ordinals sent by C++ peers."""


class _Coding:
    __slots__ = ()

    def encode(self, *, standard: bool = False) -> bytes:
        """Return the compact JSON. ``standard`` is that of ``fastjson.dumps``."""
        return fastjson.dumps(self, standard=standard)

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """Read a body. Raises FastJSONError (a RemotingCommandError) if it is missing or not of this type."""
        if not data:
            raise fastjson.FastJSONError("the body is missing")
        return fastjson.decode(data, cls)


# Unknown members are rejected by the fast reader only. The lenient reader, which ignores case, then reads the text.
class Body(_Coding, msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Base of mutable bodies."""


class FrozenBody(_Coding, msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Base of immutable bodies, usable as keys and defaults."""


# ---------------------------------------------------------------- topics and groups


class DataVersion(FrozenBody, frozen=True):
    """Version of a table: ``timestamp`` of the last change in milliseconds, ``counter`` of all changes."""

    timestamp: int = 0
    counter: int = 0

    def next_version(self, now_ms: int) -> "DataVersion":
        """Return the version after a change at ``now_ms``."""
        return DataVersion(now_ms, self.counter + 1)


class TopicFilterType(JavaEnum):
    """Whether messages of a topic have one tag or several. It has no effect."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(Body):
    """A topic of a broker. ``perm`` is 4 for reading plus 2 for writing (plus 1: topics created from it inherit)."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False

    def encode_text(self) -> str:
        """Return the short form for compressed registrations. It leaves out ``topic_sys_flag`` and ``order``."""
        return f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} {self.topic_filter_type.name}"

    @classmethod
    def decode_text(cls, text: str) -> Self:
        """Read the short form. Raises RemotingCommandError unless it has five valid parts."""
        try:
            name, read_queue_nums, write_queue_nums, perm, filter_type = text.split(" ")
            return cls(name, int(read_queue_nums), int(write_queue_nums), int(perm), TopicFilterType(filter_type))
        except ValueError:
            raise RemotingCommandError(f"not a topic config: {text!r:.300}") from None


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker: topics.json, the answer to GET_ALL_TOPIC_CONFIG (21), a part of registrations."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


class SubscriptionGroupConfig(Body):
    """A consumer group's settings at a broker. Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True


class SubscriptionGroupWrapper(Body):
    """All groups of a broker: subscriptionGroup.json and the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    data_version: DataVersion = DataVersion()


# ---------------------------------------------------------------- registration and routes


class RegisterBrokerBody(Body):
    """A broker's registration at the name server, REGISTER_BROKER (103)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []

    def deflate(self) -> bytes:
        """Return the compressed form, useful from some thousand topics on."""
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        parts = [_with_length(wrapper.data_version.encode()), _INT.pack(len(topics))]
        parts += [_with_length(topic.encode_text().encode()) for topic in topics]
        parts.append(_with_length(fastjson.dumps(self.filter_server_list)))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def inflate(cls, data: bytes | None) -> Self:
        """Read the compressed form. Raises RemotingCommandError if it is invalid or unpacks to too much."""
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(data or b"", MAX_INFLATED_REGISTRATION)
        except zlib.error as error:
            raise RemotingCommandError(f"the registration cannot be unpacked: {error}") from None
        if inflater.unconsumed_tail:
            raise RemotingCommandError(f"the registration unpacks to over {MAX_INFLATED_REGISTRATION} bytes")
        reader = _LengthReader(plain)
        version = DataVersion.decode(reader.take())
        configs = [TopicConfig.decode_text(reader.take().decode("utf-8", "replace")) for _ in range(reader.count())]
        servers = fastjson.decode(reader.take(), list[str])
        return cls(TopicConfigSerializeWrapper({config.topic_name: config for config in configs}, version), servers)


def _with_length(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


class _LengthReader:
    """Cuts unpacked bytes at their length fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        try:
            (number,) = _INT.unpack_from(self._data, self._at)
        except StructError:
            raise RemotingCommandError("the registration ends too early") from None
        self._at += 4
        return int(number)

    def take(self) -> bytes:
        length = self.count()
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise RemotingCommandError(f"the registration ends before the {length} bytes it announces")
        part, self._at = self._data[self._at : end], end
        return part


class QueueData(Body):
    """A topic's queues at one broker."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class BrokerData(Body):
    """The addresses (``host:port``) of one broker by broker id. 0 is the master.

    ``enable_acting_master`` is of 5.x: the Rust client requires it in a route, other clients ignore it.
    """

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}
    enable_acting_master: bool | None = None


class TopicRouteData(Body):
    """The route of a topic: the answer to GET_ROUTEINFO_BY_TOPIC (105)."""

    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """Read a route. In releases up to 4.6.0, a queue's flag is spelled ``topicSynFlag``."""
        return super().decode(data and data.replace(b'"topicSynFlag":', b'"topicSysFlag":'))


class ClusterInfo(Body):
    """All brokers and their clusters: the answer to GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, set[str]] = {}


class KVTable(Body):
    """Names and values: GET_KVLIST_BY_NAMESPACE (219), GET_BROKER_RUNTIME_INFO (28), the answer to a registration."""

    table: dict[str, str] = {}


class KVConfig(Body):
    """The name server's kvConfig.json: namespace to key to value."""

    config_table: dict[str, dict[str, str]] = {}


class TopicList(Body):
    """Topic names: the answer to 206, 224, 304, 305, 311, 312, 313."""

    topic_list: list[str] = []
    broker_addr: str | None = None


# ---------------------------------------------------------------- heartbeats


class ConsumeType(JavaEnum):
    """Whether the application pulls or the client pushes."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(JavaEnum):
    """Whether each consumer of a group gets all messages or a share of them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(JavaEnum):
    """Start of a group without offsets."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """A group's subscription to a topic. ``sub_version`` is its creation time in milliseconds; the newest counts."""

    topic: str
    sub_string: str = ""
    tags_set: set[str] = set()
    code_set: set[int] = set()
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ConsumerData(Body):
    """A consumer group within a client. Values not sent by the client are None."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(FrozenBody, frozen=True):
    """A producer group within a client."""

    group_name: str


class HeartbeatData(Body):
    """All groups of a client, HEART_BEAT (34)."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []


class CheckClientRequestBody(Body):
    """A subscription to check for a client, CHECK_CLIENT_CONFIG (46)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData


class GetConsumerListByGroupResponseBody(Body):
    """Client ids of a group: the answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = []


# ---------------------------------------------------------------- queues and offsets


class MessageQueue(FrozenBody, frozen=True, order=True):
    """One queue of a topic at a broker. May be a key of maps."""

    topic: str
    broker_name: str
    queue_id: int


class LockBatchRequestBody(Body):
    """Queues to lock or unlock for a client's group, LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    consumer_group: str
    client_id: str
    mq_set: set[MessageQueue] = set()


class LockBatchResponseBody(Body):
    """The locked queues."""

    lock_ok_mq_set: set[MessageQueue] = msgspec.field(default_factory=set, name="lockOKMQSet")


class ConsumerOffsetSerializeWrapper(Body):
    """``topic@group`` to queue id to offset: consumerOffset.json and the answer to GET_ALL_CONSUMER_OFFSET (43)."""

    offset_table: dict[str, dict[int, int]] = {}


class DelayOffsetSerializeWrapper(Body):
    """Delay level to queue offset: delayOffset.json and the answer to GET_ALL_DELAY_OFFSET (45)."""

    offset_table: dict[int, int] = {}


class BroadcastOffsetSerializeWrapper(Body):
    """A client's offsets.json of a group in the broadcasting model."""

    offset_table: dict[MessageQueue, int] = {}
