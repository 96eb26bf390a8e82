"""Bodies requested only by administration.

Counterpart: the classes in org.apache.rocketmq.common.protocol.body and .admin read by mqadmin and dashboards, and
`OffsetMovedEvent` (Apache). All times are Unix milliseconds. ``tps`` is messages per second.
"""

import msgspec

from rocketd.remoting.bodies.tables import (
    Body,
    ConsumeFromWhere,
    ConsumeType,
    JavaEnum,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from rocketd.remoting.wire.codes import LanguageCode

# ---------------------------------------------------------------- connections


class ConnectionInfo(Body):
    """One client of a group."""

    client_id: str
    client_addr: str
    language: LanguageCode = LanguageCode.JAVA
    version: int = 0


class ConsumerConnection(Body):
    """Answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[ConnectionInfo] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body):
    """Answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[ConnectionInfo] = []


class ProducerInfo(Body):
    """One client of a producer group; ``remote_ip`` is ``/host:port``."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: LanguageCode = LanguageCode.JAVA
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body):
    """All producer groups of a broker: the answer to GET_ALL_PRODUCER_INFO (328)."""

    data: dict[str, list[ProducerInfo]] = {}


class GroupList(Body):
    """Groups that consume a topic: the answer to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: list[str] = []


# ---------------------------------------------------------------- offsets and progress


class TopicOffset(Body):
    """Range of a queue. ``last_update_timestamp`` is 0 if it is empty."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(Body):
    """Answer to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class OffsetWrapper(Body):
    """A group's progress in a queue. ``last_timestamp`` is the store time of the last consumed message."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Body):
    """Answer to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(Body):
    """Answer to GET_BROKER_CONSUME_STATS (317): for each group, a map of the group to its topics' progress."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: int = 0


class ResetOffsetBody(Body):
    """New offsets: RESET_CONSUMER_CLIENT_OFFSET (220) and the answer to INVOKE_BROKER_TO_RESET_OFFSET (222)."""

    offset_table: dict[MessageQueue, int] = {}


class MessageQueueForC(Body):
    """A queue and its new offset, for clients without support for objects as keys."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class ResetOffsetBodyForC(Body):
    """New offsets for C++ clients (220)."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(Body):
    """Offsets held by clients: of one client (221), or of all by client id (223)."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}


class QueueTimeSpan(Body):
    """Store times of a queue's first and last message, and of the group's next one. ``delay_time`` is the age of the
    latter.
    """

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body):
    """Answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = []


class QueryCorrectionOffsetBody(Body):
    """Queue id to offset: the answer to QUERY_CORRECTION_OFFSET (308)."""

    correction_offsets: dict[int, int] = {}


class OffsetMovedEvent(Body):
    """Body of a message in OFFSET_MOVED_EVENT: a group requested ``offset_request`` and was sent to ``offset_new``."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: int
    offset_new: int


# ---------------------------------------------------------------- statistics and inspection


class BrokerStatsItem(Body):
    """Sum, rate and mean time in milliseconds over one span."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Answer to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem


class ConsumeQueueData(Body):
    """One entry of a consume queue. ``eval`` is the result of the requested filter."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Answer to QUERY_CONSUME_QUEUE (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0


class ProcessQueueInfo(Body):
    """State of a queue in a consumer."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(Body):
    """A topic's consumption in a consumer. Times in milliseconds."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body):
    """A consumer's report about itself: the answer to GET_CONSUMER_RUNNING_INFO (307)."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    jstack: str | None = None


class CMResult(JavaEnum):
    """Result of a message consumed on request."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body):
    """Answer to CONSUME_MESSAGE_DIRECTLY (309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0


# ---------------------------------------------------------------- access control


class PlainAccessConfig(Body):
    """One account. Unset values are absent. Holds its secret: never log it."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class GetBrokerClusterAclConfigResponseBody(Body):
    """Answer to GET_BROKER_CLUSTER_ACL_CONFIG (54)."""

    global_white_addrs: list[str] = []
    plain_access_configs: list[PlainAccessConfig] = []
