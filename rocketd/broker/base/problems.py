"""The broker's refusals, each declared once: see ``rocketd.remoting.problems`` for the form."""

from rocketd.remoting.problems import Problem
from rocketd.remoting.wire.codes import ResponseCode

NOT_SET_REMARK = "not set any response code"
"""The remark Apache's broker leaves in answers without an explicit one."""

FAQ = "See http://rocketmq.apache.org/docs/faq/ for further details."

SEND_QUEUE_TOO_OLD = Problem(
    id="send-queue-too-old",
    code=ResponseCode.SYSTEM_BUSY,
    remark=(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {period}ms, "
        "size of queue: {queued}"
    ),
    cause="the request waited longer than {limit} ms; the slowest step of the last seconds was {cause}",
    advice=(
        "retry after 100 ms or on another broker; usual reasons are a slow disk, too few brokers or a stalled machine"
    ),
    setting="waitTimeMillsInSendQueue",
)

HELD_PULLS_EXCEEDED = Problem(
    id="held-pulls-exceeded",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]system busy, start flow control for a while",
    cause="{held} pulls wait; the limits are {limit} in all and {limit_of_connection} of one connection",
    advice="pull fewer queues over one connection, raise the limit, or spread the queues over more brokers",
    setting="maxHeldPulls or maxHeldPullsPerConnection",
)

QUEUE_TOO_OLD = Problem(
    id="queue-too-old",
    code=ResponseCode.SYSTEM_BUSY,
    remark=(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {period}ms, "
        "size of queue: {queued}"
    ),
    cause="the request waited longer than {limit} ms for the {pool} pool",
    advice="retry after 100 ms; usual reasons are too few brokers or a stalled machine",
    setting="waitTimeMillsInPullQueue and its like",
)

STORE_BUSY = Problem(
    id="store-busy",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[REJECTREQUEST]system busy, start flow control for a while",
    cause="the append that is under way has taken {append} ms so far",
    advice="retry after 100 ms or on another broker; the usual reason is a disk that hangs",
    setting="osPageCacheBusyTimeOutMills",
)

STORE_BUSY_IN_QUEUE = Problem(
    id="store-busy-in-queue",
    code=ResponseCode.SYSTEM_BUSY,
    remark=(
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {period}ms, "
        "size of queue: {queued}"
    ),
    cause="the append that is under way has taken {append} ms so far",
    advice="retry after 100 ms or on another broker; the usual reason is a disk that hangs",
    setting="osPageCacheBusyTimeOutMills",
)

NOT_YET_ACCEPTING = Problem(
    id="not-yet-accepting",
    code=ResponseCode.SYSTEM_ERROR,
    remark="broker unable to service, until {until}",
    cause="the broker is configured to refuse sends before that time",
    advice="send to another broker until then",
    setting="startAcceptSendRequestTimeStamp",
)

BROKER_FORBIDDEN = Problem(
    id="broker-forbidden",
    code=ResponseCode.NO_PERMISSION,
    remark="the broker[{broker}] {action} is forbidden",
    cause="the permission of the whole broker is {perm}",
    advice="use another broker, or give this one the permission again (4 read, 2 write, 6 both)",
    setting="brokerPermission",
)

TOPIC_FORBIDDEN = Problem(
    id="topic-forbidden",
    code=ResponseCode.NO_PERMISSION,
    remark="the topic[{topic}] {action} is forbidden",
    cause="the topic's permission on this broker is {perm}",
    advice="change the topic's permission with updateTopic",
)

SYSTEM_TOPIC_FORBIDDEN = Problem(
    id="system-topic-forbidden",
    code=ResponseCode.NO_PERMISSION,
    remark="Sending message to topic[{topic}] is forbidden.",
    cause="only the broker itself writes to this topic",
    advice="send to another topic",
)

TOPIC_NOT_EXIST = Problem(
    id="topic-not-exist",
    code=ResponseCode.TOPIC_NOT_EXIST,
    remark="topic[{topic}] not exist, apply first please!\n" + FAQ,
    cause=(
        "the topic was not created, and the template {template} does not allow automatic creation "
        "(autoCreateTopicEnable={enabled})"
    ),
    advice="create the topic with updateTopic, or allow automatic creation",
    setting="autoCreateTopicEnable",
)

QUEUE_ID_ILLEGAL = Problem(
    id="queue-id-illegal",
    code=ResponseCode.SYSTEM_ERROR,
    remark="request queueId[{queue_id}] is illegal, {topic} Producer: {producer}",
    cause="the topic has {write} queues to write and {read} to read, numbered from 0",
    advice="refresh the route, or send with a queue id below the larger number",
)

PULL_QUEUE_ID_ILLEGAL = Problem(
    id="pull-queue-id-illegal",
    code=ResponseCode.SYSTEM_ERROR,
    remark="queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{read}] consumer:[{consumer}]",
    cause="the topic has {read} queues to read, numbered from 0",
    advice="refresh the route, or pull with a queue id below that number",
)

NEW_TOPICS_LIMITED = Problem(
    id="new-topics-limited",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]topic[{name}] is not created yet, too many new topics",
    cause="sends may create {limit} topics per second, in bursts of up to five times as many, shared by addresses",
    advice="retry after a second, create the topic with updateTopic, or raise the setting; 0 means no limit",
    setting="maxNewTopicsPerSecond",
)

NEW_GROUPS_LIMITED = Problem(
    id="new-groups-limited",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]consumer group[{name}] is not created yet, too many new groups",
    cause="clients may create {limit} groups per second, in bursts of up to five times as many, shared by addresses",
    advice="retry after a second, create the group with updateSubGroup, or raise the setting; 0 means no limit",
    setting="maxNewGroupsPerSecond",
)

TOPICS_EXCEEDED = Problem(
    id="topics-exceeded",
    code=ResponseCode.TOPIC_NOT_EXIST,
    remark="topic[{name}] not exist, apply first please!",
    cause="the topic was not created: the broker has {found} topics, and sends create topics only up to {limit}",
    advice="create the topic with updateTopic, delete unused topics, or raise the setting; 0 means no limit",
    setting="maxTopics",
)

GROUPS_EXCEEDED = Problem(
    id="groups-exceeded",
    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    remark="consumer group[{name}] not exist",
    cause=(
        "the group was not created: the broker has {found} groups, and clients create groups by using them only up "
        "to {limit}"
    ),
    advice="create the group with updateSubGroup, delete unused groups, or raise the setting; 0 means no limit",
    setting="maxConsumerGroups",
)

GROUPS_BY_OFFSETS_LIMITED = Problem(
    id="groups-by-offsets-limited",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]consumer group[{name}] is not created yet, too many new groups",
    cause="offsets of unknown groups may create {limit} groups per second, in bursts of up to five times as many",
    advice="retry after a second, create the group with updateSubGroup, start a consumer of it, or raise the setting",
    setting="maxNewGroupsByOffsetsPerSecond",
)

HEARTBEAT_GROUPS_LIMITED = Problem(
    id="heartbeat-groups-limited",
    code=ResponseCode.SYSTEM_BUSY,
    remark=(
        "[OVERLOAD]{refused} of {total} consumer groups of the heartbeat are not registered yet, too many new groups"
    ),
    cause="one heartbeat may bring {limit} new groups, and maxNewGroupsPerSecond bounds all clients together",
    advice="do nothing: the next heartbeats register the rest; or create the groups with updateSubGroup",
    setting="maxNewGroupsPerHeartbeat",
)

TOO_MANY_GROUPS = Problem(
    id="too-many-groups",
    code=ResponseCode.SYSTEM_ERROR,
    remark="the heartbeat registers nothing: with it, the connection would have {count} {kind} groups",
    cause="a client may have {limit} producer groups and {limit} consumer groups on one connection",
    advice=(
        "divide the groups among several clients with different instance names, or raise the setting; 0 means no limit"
    ),
    setting="maxGroupsPerConnection",
)

TOO_MANY_SUBSCRIPTIONS = Problem(
    id="too-many-subscriptions",
    code=ResponseCode.SYSTEM_ERROR,
    remark="the heartbeat registers nothing: with it, the connection would have {count} subscriptions",
    cause="all consumer groups of a client may have {limit} subscriptions on one connection",
    advice=(
        "divide the groups among several clients with different instance names, or raise the setting; 0 means no limit"
    ),
    setting="maxSubscriptionsPerConnection",
)

GROUP_ILLEGAL = Problem(
    id="group-illegal",
    code=ResponseCode.SYSTEM_ERROR,
    remark="the specified group {group} is illegal",
    cause=(
        "its retry topic could not be stored: a topic may have {limit} bytes, without / and control characters, and "
        "that one would have {count} bytes"
    ),
    advice="use a group of at most 120 letters, digits and % | - _",
)

HEARTBEAT_TOO_LONG = Problem(
    id="heartbeat-too-long",
    code=ResponseCode.SYSTEM_ERROR,
    remark="the heartbeat registers nothing: its body has {count} bytes",
    cause="the body of a heartbeat may have {limit} bytes",
    advice=(
        "divide the groups among several clients with different instance names, or raise the setting; 0 means no limit"
    ),
    setting="maxHeartbeatBytes",
)

HEARTBEATS_UNDER_WAY = Problem(
    id="heartbeats-under-way",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]the heartbeat is refused, earlier ones are still being registered",
    cause=(
        "at most {limit} long heartbeats of a connection, and {bytes} bytes of all connections, are registered at a "
        "time"
    ),
    advice="do nothing: the client's next heartbeat registers the same",
)

TOO_MANY_QUEUES_LOCKED = Problem(
    id="too-many-queues-locked",
    code=ResponseCode.SYSTEM_ERROR,
    remark="the request names {count} queues to lock or unlock",
    cause="one request may name {limit} queues",
    advice="lock the queues in several requests, or raise the setting; 0 means no limit",
    setting="maxQueuesPerLockRequest",
)

OFFSET_OF_UNKNOWN_QUEUE = Problem(
    id="offset-of-unknown-queue",
    code=ResponseCode.TOPIC_NOT_EXIST,
    remark="the offset of group {group} in queue {queue} of topic {topic} is not kept",
    cause="this broker has no such queue",
    advice="refresh the route, and commit offsets to the broker that has the queue",
)

OFFSET_BEYOND_END = Problem(
    id="offset-beyond-end",
    code=ResponseCode.SYSTEM_ERROR,
    remark="the offset of group {group} in queue {queue} of topic {topic} is not kept",
    cause="the queue ends at {end}, before the offset {offset}: the topic was deleted and created again, or lost messages",
    advice="let the consumer pull: the broker corrects its offset; or commit an offset up to the end of the queue",
)

OFFSET_OF_UNKNOWN_GROUP = Problem(
    id="offset-of-unknown-group",
    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    remark="the offset of group {group} in topic {topic} is not kept",
    cause="this broker does not know the group: no member of it has sent a heartbeat or pulled",
    advice="create the group with updateSubGroup, or let a consumer of it start first",
)

TABLE_NOT_WRITTEN = Problem(
    id="table-not-written",
    code=ResponseCode.SYSTEM_ERROR,
    remark="{what} is done in memory only",
    cause="its file could not be written: {error}",
    advice=(
        "make the disk writable: the broker tries again every second until the file is written; "
        "if it stops before that, the change is lost"
    ),
)

TRANSACTION_FORBIDDEN = Problem(
    id="transaction-forbidden",
    code=ResponseCode.NO_PERMISSION,
    remark="the broker[{broker}] sending transaction message is forbidden",
    cause="this broker does not keep half messages",
    advice="send transactional messages to a broker that does",
    setting="rejectTransactionMessage",
)

BATCH_MALFORMED = Problem(
    id="batch-malformed",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=(
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit {limit}B, "
        "msg properties length limit 32KB."
    ),
    cause="{found}",
    advice="send whole messages of one topic, neither delayed nor transactional",
)

MESSAGE_ILLEGAL = Problem(
    id="message-illegal",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=(
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit {limit}B, "
        "msg properties length limit 32KB."
    ),
    cause="{found}",
    advice="make it smaller, or raise the limit on broker and clients alike",
    setting="maxMessageSize",
)

PROPERTY_ILLEGAL = Problem(
    id="property-illegal",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark="the message is illegal, its property {name} is not {wanted}",
    cause="its value is {found}, so it is damaged, and nothing is stored",
    advice="give it {wanted}; an agent that appends properties has to begin with the separator 0x02",
)

PROPERTIES_TOO_LONG = Problem(
    id="properties-too-long",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=(
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit {limit}B, "
        "msg properties length limit 32KB."
    ),
    cause="{found}",
    advice="put long values into the body: a record has no room for longer properties, and no setting changes that",
)

_TIMER_REMARK = (
    "timer message illegal, the delay time should not be bigger than the max delay {limit}ms; or if set del msg, "
    "the delay time should be bigger than the current time"
)

TIMER_ILLEGAL = Problem(
    id="timer-illegal",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=_TIMER_REMARK,
    cause="{found}",
    advice="send an earlier time, or ask the broker's operator to raise the limit",
    setting="timerMaxDelaySec",
)

TIMER_NO_NUMBER = Problem(
    id="timer-no-number",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=_TIMER_REMARK,
    cause="the property {name} of the message is {found}, which is not a whole number",
    advice="give it a whole number of {unit}",
)

TIMER_CANCELLATION = Problem(
    id="timer-cancellation",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=_TIMER_REMARK,
    cause="the message cancels another one (TIMER_DEL_UNIQKEY), but its own time is missing or not in the future",
    advice="send it while the other one still waits, with the time of that one or any other in the future",
)

TIMER_NOT_ENABLED = Problem(
    id="timer-not-enabled",
    code=ResponseCode.SYSTEM_ERROR,
    remark="accurate timer message is not enabled, timerWheelEnable is false",
    cause="this broker does not deliver messages at a time that they set",
    advice="use a delay level, or ask the broker's operator to allow it",
    setting="timerWheelEnable",
)

_NOT_AVAILABLE_REMARK = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
    "[{disk}], messages are put to the slave, message store has been shut down, etc."
)

SERVICE_NOT_AVAILABLE = Problem(
    id="service-not-available",
    code=ResponseCode.SERVICE_NOT_AVAILABLE,
    remark=_NOT_AVAILABLE_REMARK,
    cause="{found}",
    advice="free space on the disk or send to another broker",
    setting="rocketmq.broker.diskSpaceWarningLevelRatio",
)

SENT_TO_SLAVE = Problem(
    id="sent-to-slave",
    code=ResponseCode.SERVICE_NOT_AVAILABLE,
    remark=_NOT_AVAILABLE_REMARK,
    cause="{found}",
    advice="send to the master, whose address the route has with broker id 0",
    setting="brokerRole",
)

STEPPED_DOWN = Problem(
    id="stepped-down",
    code=ResponseCode.SERVICE_NOT_AVAILABLE,
    remark="service not available now: this master has stepped down",
    cause="{found}",
    advice=(
        "send to the other broker; the operator decides which of the two masters stays, as the log of this broker says"
    ),
    setting="singleMasterCheck",
)

CREATE_FILE_FAILED = Problem(
    id="create-file-failed",
    code=ResponseCode.SYSTEM_ERROR,
    remark="create mapped file failed, server is busy or broken.",
    cause="{found}",
    advice="look at the disk of the store: space, quota, permissions",
    setting="storePathCommitLog",
)

LIGHT_QUEUES_EXCEEDED = Problem(
    id="light-queues-exceeded",
    code=ResponseCode.SYSTEM_ERROR,
    remark=(
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num exceed "
        "maxLmqConsumeQueueNum config num, default limit 2w."
    ),
    cause="{found}",
    advice="delete unused light queues (deleteTopic), or raise the limit",
    setting="maxLmqConsumeQueueNum",
)

PAGE_CACHE_BUSY = Problem(
    id="page-cache-busy",
    code=ResponseCode.SYSTEM_ERROR,
    remark="[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    cause="{found}",
    advice="retry after 100 ms or on another broker",
    setting="osPageCacheBusyTimeOutMills",
)

STORE_FAILED = Problem(
    id="store-failed",
    code=ResponseCode.SYSTEM_ERROR,
    remark="{status}",
    cause="{found}",
    advice="look at the broker's log",
)

GROUP_NOT_EXIST = Problem(
    id="group-not-exist",
    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    remark="subscription group not exist, {group} \n" + FAQ,
    cause="the group was not created and automatic creation of groups is off",
    advice="create the group with updateSubGroup, or allow automatic creation",
    setting="autoCreateSubscriptionGroup",
)

PULL_GROUP_NOT_EXIST = Problem(
    id="pull-group-not-exist",
    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    remark="subscription group [{group}] does not exist, \n" + FAQ,
    cause="the group was not created and automatic creation of groups is off",
    advice="create the group with updateSubGroup, or allow automatic creation",
    setting="autoCreateSubscriptionGroup",
)

GROUP_FORBIDDEN = Problem(
    id="group-forbidden",
    code=ResponseCode.NO_PERMISSION,
    remark="subscription group no permission, {group}",
    cause="consumeEnable of the group is false",
    advice="enable it with updateSubGroup",
)

BROADCAST_FORBIDDEN = Problem(
    id="broadcast-forbidden",
    code=ResponseCode.NO_PERMISSION,
    remark="the consumer group[{group}] can not consume by broadcast way",
    cause="consumeBroadcastEnable of the group is false",
    advice="consume in clustering mode, or allow it with updateSubGroup",
)

PULL_TOPIC_NOT_EXIST = Problem(
    id="pull-topic-not-exist",
    code=ResponseCode.TOPIC_NOT_EXIST,
    remark="topic[{topic}] not exist, apply first please! \n" + FAQ,
    cause="no message was sent to the topic here and it was not created",
    advice="create the topic with updateTopic",
)

GROUP_NOT_ONLINE = Problem(
    id="group-not-online",
    code=ResponseCode.SUBSCRIPTION_NOT_EXIST,
    remark="the consumer's group info not exist\n" + FAQ,
    cause="no heartbeat of a member of {group} has come since this broker started",
    advice="do nothing: clients send a heartbeat within 30 s and repeat the pull",
)

SUBSCRIPTION_NOT_EXIST = Problem(
    id="subscription-not-exist",
    code=ResponseCode.SUBSCRIPTION_NOT_EXIST,
    remark="the consumer's subscription not exist\n" + FAQ,
    cause="the last heartbeat of group {group} did not name topic {topic}",
    advice="let all members of a group subscribe to the same topics",
)

SUBSCRIPTION_NOT_LATEST = Problem(
    id="subscription-not-latest",
    code=ResponseCode.SUBSCRIPTION_NOT_LATEST,
    remark="the consumer's subscription not latest",
    cause="the broker knows version {known}, the request has {asked}",
    advice="do nothing: the client's next heartbeat brings the new version",
)

SUBSCRIPTION_PARSE_FAILED = Problem(
    id="subscription-parse-failed",
    code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    remark="parse the consumer's subscription failed",
    cause="{found}",
    advice="subscribe with *, tags joined by || or, by SQL92, a condition such as `price > 10 AND region = 'north'`",
)

EXPRESSION_PARSE_FAILED = Problem(
    id="expression-parse-failed",
    code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    remark="the filter expression cannot be used",
    cause="{found}",
    advice="subscribe with a condition such as `price > 10 AND region = 'north'`",
)

FILTER_NOT_SUPPORTED = Problem(
    id="filter-not-supported",
    code=ResponseCode.SYSTEM_ERROR,
    remark="The broker does not support consumer to filter message by {kind}",
    cause="filters other than tags are switched off",
    advice="filter by tag, or ask the broker's operator to set enablePropertyFilter=true",
    setting="enablePropertyFilter",
)

FILTER_DATA_NOT_EXIST = Problem(
    id="filter-data-not-exist",
    code=ResponseCode.FILTER_DATA_NOT_EXIST,
    remark="The broker's consumer filter data is not exist!Your expression may be wrong!",
    cause="group {group} has no usable filter for topic {topic} here",
    advice=(
        "wait for the client's next heartbeat; if the error stays, the expression cannot be parsed, and the "
        "broker's log has the reason"
    ),
)

FILTER_DATA_NOT_LATEST = Problem(
    id="filter-data-not-latest",
    code=ResponseCode.FILTER_DATA_NOT_LATEST,
    remark="the consumer's consumer filter data not latest",
    cause="the broker knows version {known}, the request has {asked}",
    advice="do nothing: the client's next heartbeat brings the new version",
)

NO_ACCESS_KEY = Problem(
    id="acl-no-access-key",
    code=ResponseCode.SYSTEM_ERROR,
    remark="org.apache.rocketmq.acl.common.AclException: No accessKey is configured",
    cause="the request is not signed, and {host} is not a global white address",
    advice="give the client an access key and its secret, or add its address to globalWhiteRemoteAddresses",
    setting="aclEnable",
)

UNKNOWN_ACCESS_KEY = Problem(
    id="acl-unknown-access-key",
    code=ResponseCode.SYSTEM_ERROR,
    remark="org.apache.rocketmq.acl.common.AclException: No acl config for {access_key}",
    cause="no file of this broker has that account",
    advice="create it with updateAclConfig, or correct the access key of the client",
    setting="rocketmq.acl.plain.file",
)

SIGNATURE_WRONG = Problem(
    id="acl-signature-wrong",
    code=ResponseCode.SYSTEM_ERROR,
    remark="org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey={access_key}",
    cause="the request was not signed with the secret that this broker has for the account",
    advice="give the client exactly the secretKey of the broker's file",
    setting="rocketmq.acl.plain.file",
)

ADMIN_NEEDED = Problem(
    id="acl-admin-needed",
    code=ResponseCode.SYSTEM_ERROR,
    remark=(
        "org.apache.rocketmq.acl.common.AclException: Need admin permission for request code={code}, "
        "but accessKey={access_key} is not"
    ),
    cause="only accounts with admin: true may do this",
    advice="use an admin account, for mqadmin in conf/tools.yml",
    setting="rocketmq.acl.plain.file",
)

ACCESS_FORBIDDEN = Problem(
    id="acl-forbidden",
    code=ResponseCode.SYSTEM_ERROR,
    remark="org.apache.rocketmq.acl.common.AclException: No default permission for {resource}",
    cause="account {access_key} needs {needed} and has {owned}",
    advice="add an entry to topicPerms or groupPerms of the account, or raise its defaults",
    setting="rocketmq.acl.plain.file",
)

ACCESS_NOT_READABLE = Problem(
    id="acl-request-unreadable",
    code=ResponseCode.SYSTEM_ERROR,
    remark="org.apache.rocketmq.acl.common.AclException: {found}",
    cause="the topics and groups of the request cannot be read",
    advice="check the client: it is broken, or not a RocketMQ client",
)
