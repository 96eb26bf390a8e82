"""The broker's own request processors, found by ``twisted.plugin`` as those of third parties are.

The codes that each one handles are declared here alone; those of sends and pulls, which their hot paths check, in
``rocketd.remoting.wire.codes``.
"""

from typing import Any

from twisted.python.reflect import namedAny
from zope.interface import implementer

from rocketd.remoting.interfaces import IProcessorPlugin, IRequestProcessor
from rocketd.remoting.wire.codes import PULL_CODES, SEND_CODES, RequestCode


@implementer(IProcessorPlugin)
class BuiltInProcessor:
    """Describes one processor class; its module is imported when the broker starts."""

    daemon = "broker"

    def __init__(self, name: str, pool: str, codes: tuple[RequestCode, ...], path: str) -> None:
        self.name = f"rocketd.broker.{name}"
        self.pool = pool
        self.codes = codes
        self.path = f"rocketd.broker.{path}"

    def create(self, daemon: Any) -> IRequestProcessor:
        """Make the processor."""
        processor: IRequestProcessor = namedAny(self.path)(daemon)
        return processor


send = BuiltInProcessor(
    "send",
    "send",
    SEND_CODES,
    "send.processor.SendMessageProcessor",
)
send_back = BuiltInProcessor(
    "send-back", "send", (RequestCode.CONSUMER_SEND_MSG_BACK,), "send.send_back.SendBackProcessor"
)
end_transaction = BuiltInProcessor(
    "end-transaction", "send", (RequestCode.END_TRANSACTION,), "transaction.processor.EndTransactionProcessor"
)
resume_check = BuiltInProcessor(
    "resume-check", "send", (RequestCode.RESUME_CHECK_HALF_MESSAGE,), "transaction.processor.ResumeCheckProcessor"
)
reply = BuiltInProcessor(
    "reply",
    "reply",
    (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    "clients.reply.ReplyMessageProcessor",
)
pull = BuiltInProcessor("pull", "pull", PULL_CODES, "pull.processor.PullMessageProcessor")
heartbeat = BuiltInProcessor(
    "heartbeat", "heartbeat", (RequestCode.HEART_BEAT,), "clients.heartbeats.ClientManageProcessor"
)
client = BuiltInProcessor(
    "client",
    "client",
    (RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG),
    "clients.heartbeats.ClientManageProcessor",
)
consumer = BuiltInProcessor(
    "consumer",
    "consumer",
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET),
    "clients.consumer_requests.ConsumerManageProcessor",
)
query = BuiltInProcessor(
    "query", "query", (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID), "admin.query.QueryMessageProcessor"
)
offset = BuiltInProcessor(
    "offset",
    "query",
    (
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    ),
    "admin.query.QueueOffsetProcessor",
)
lock = BuiltInProcessor(
    "lock",
    "admin",
    (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ),
    "clients.queue_lock_requests.QueueLockProcessor",
)
admin = BuiltInProcessor(
    "admin",
    "admin",
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
    ),
    "admin.changes.AdminBrokerProcessor",
)
state = BuiltInProcessor(
    "state",
    "admin",
    (
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    ),
    "admin.state.AdminStateProcessor",
)
table_changes = BuiltInProcessor(
    "table-changes", "admin", (RequestCode.AWAIT_TABLE_CHANGES,), "replication.table_requests.TableChangesProcessor"
)
lag = BuiltInProcessor("lag", "lag", (RequestCode.GET_CONSUMER_LAG,), "lag.processor.LagProcessor")
statistics = BuiltInProcessor(
    "statistics",
    "admin",
    (
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONSUME_STATS,
    ),
    "admin.statistics.StatisticsProcessor",
)
client_relay = BuiltInProcessor(
    "client-relay",
    "admin",
    (
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    ),
    "clients.relay.ClientRelayProcessor",
)
offset_reset = BuiltInProcessor(
    "offset-reset",
    "admin",
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET),
    "clients.offset_reset.OffsetResetProcessor",
)
clean_up = BuiltInProcessor(
    "clean-up",
    "send",
    (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.DELETE_EXPIRED_COMMITLOG),
    "admin.clean_up.CleanUpProcessor",
)
consume_queue = BuiltInProcessor(
    "consume-queue", "query", (RequestCode.QUERY_CONSUME_QUEUE,), "admin.consume_queue.ConsumeQueueProcessor"
)
acl_config = BuiltInProcessor(
    "acl-config",
    "admin",
    (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    ),
    "admin.accounts.AclConfigProcessor",
)
audit = BuiltInProcessor("audit", "admin", (RequestCode.GET_ADMIN_CHANGES,), "admin.audit.AuditProcessor")
group_problems = BuiltInProcessor(
    "group-problems", "admin", (RequestCode.GET_GROUP_PROBLEMS,), "lag.group_problems.GroupProblemsProcessor"
)
