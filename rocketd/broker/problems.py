"""The broker's refusals, each declared once: see ``rocketd.remoting.problems`` for the form."""

from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.problems import Problem

FAQ = "See http://rocketmq.apache.org/docs/faq/ for further details."

SEND_QUEUE_TOO_OLD = Problem(
    id="send-queue-too-old",
    code=ResponseCode.SYSTEM_BUSY,
    remark=(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {period}ms, "
        "size of queue: {queued}"
    ),
    cause="the request waited longer than {limit} ms; the slowest step of the last seconds was {cause}",
    advice="retry after 100 ms or on another broker; a slow disk, too few brokers or a stalled machine do this",
    setting="waitTimeMillsInSendQueue",
)

HELD_PULLS_EXCEEDED = Problem(
    id="held-pulls-exceeded",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]system busy, start flow control for a while",
    cause="{held} pulls wait, at most {limit} may, and at most {limit_of_connection} of one connection",
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
    advice="retry after 100 ms; too few brokers or a stalled machine do this",
    setting="waitTimeMillsInPullQueue and its like",
)

STORE_BUSY = Problem(
    id="store-busy",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[REJECTREQUEST]system busy, start flow control for a while",
    cause="the append that is under way has taken {append} ms so far",
    advice="retry after 100 ms or on another broker; a disk that hangs does this",
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
    advice="retry after 100 ms or on another broker; a disk that hangs does this",
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
    advice="send to a topic of your own",
)

TOPIC_NOT_EXIST = Problem(
    id="topic-not-exist",
    code=ResponseCode.TOPIC_NOT_EXIST,
    remark="topic[{topic}] not exist, apply first please!\n" + FAQ,
    cause="the topic was not created, and the template {template} allows no creation (autoCreateTopicEnable={enabled})",
    advice="create the topic with updateTopic, or allow automatic creation",
    setting="autoCreateTopicEnable",
)

QUEUE_ID_ILLEGAL = Problem(
    id="queue-id-illegal",
    code=ResponseCode.SYSTEM_ERROR,
    remark="request queueId[{queue_id}] is illegal, {topic} Producer: {producer}",
    cause="the topic has {write} queues to write and {read} to read, numbered from 0",
    advice="refresh the route, or send with a queue id below that",
)

PULL_QUEUE_ID_ILLEGAL = Problem(
    id="pull-queue-id-illegal",
    code=ResponseCode.SYSTEM_ERROR,
    remark="queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{read}] consumer:[{consumer}]",
    cause="the topic has {read} queues to read, numbered from 0",
    advice="refresh the route, or pull with a queue id below that",
)

NEW_TOPICS_LIMITED = Problem(
    id="new-topics-limited",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]topic[{name}] is not created yet, too many new topics",
    cause="sends may create {limit} topics in a second, in bursts of five seconds' worth",
    advice="retry after a second, create the topic with updateTopic, or raise the setting; 0 means no limit",
    setting="maxNewTopicsPerSecond",
)

NEW_GROUPS_LIMITED = Problem(
    id="new-groups-limited",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]consumer group[{name}] is not created yet, too many new groups",
    cause="clients may create {limit} groups in a second, in bursts of five seconds' worth",
    advice="retry after a second, create the group with updateSubGroup, or raise the setting; 0 means no limit",
    setting="maxNewGroupsPerSecond",
)

HEARTBEAT_GROUPS_LIMITED = Problem(
    id="heartbeat-groups-limited",
    code=ResponseCode.SYSTEM_BUSY,
    remark="[OVERLOAD]{refused} of {total} consumer groups of the heartbeat are not registered yet, too many new groups",
    cause="one heartbeat may bring {limit} new groups, and maxNewGroupsPerSecond bounds all clients together",
    advice="nothing: the next heartbeats register the rest; or create the groups with updateSubGroup",
    setting="maxNewGroupsPerHeartbeat",
)

TOO_MANY_QUEUES_LOCKED = Problem(
    id="too-many-queues-locked",
    code=ResponseCode.SYSTEM_ERROR,
    remark="the request names {count} queues to lock or unlock",
    cause="one request may name {limit}",
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

OFFSET_OF_UNKNOWN_GROUP = Problem(
    id="offset-of-unknown-group",
    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    remark="the offset of group {group} in topic {topic} is not kept",
    cause="this broker does not know the group: nobody of it has sent a heartbeat or pulled",
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
    advice="send a time that is nearer, or have the broker's operator allow longer ones",
    setting="timerMaxDelaySec",
)

TIMER_NO_NUMBER = Problem(
    id="timer-no-number",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=_TIMER_REMARK,
    cause="the property {name} of the message is {found}, which is no whole number",
    advice="give it a whole number of {unit}",
)

TIMER_CANCELLATION = Problem(
    id="timer-cancellation",
    code=ResponseCode.MESSAGE_ILLEGAL,
    remark=_TIMER_REMARK,
    cause="the message is to cancel another (TIMER_DEL_UNIQKEY), and has no time to come itself",
    advice="send it while the other still waits, with the time of the other or any that is to come",
)

TIMER_NOT_ENABLED = Problem(
    id="timer-not-enabled",
    code=ResponseCode.SYSTEM_ERROR,
    remark="accurate timer message is not enabled, timerWheelEnable is false",
    cause="this broker delivers no messages at a time of their own",
    advice="use a delay level, or have the broker's operator allow it",
    setting="timerWheelEnable",
)

SERVICE_NOT_AVAILABLE = Problem(
    id="service-not-available",
    code=ResponseCode.SERVICE_NOT_AVAILABLE,
    remark=(
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
        "[{disk}], messages are put to the slave, message store has been shut down, etc."
    ),
    cause="{found}",
    advice="free space on the disk or send to another broker",
    setting="rocketmq.broker.diskSpaceWarningLevelRatio",
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
    advice="delete light queues that nobody needs (deleteTopic), or raise the limit",
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
    advice="nothing: clients send one within 30 s and repeat the pull",
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
    advice="nothing: the client's next heartbeat brings the new one",
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
    advice="filter by tag, or have the broker's operator set enablePropertyFilter=true",
    setting="enablePropertyFilter",
)

FILTER_DATA_NOT_EXIST = Problem(
    id="filter-data-not-exist",
    code=ResponseCode.FILTER_DATA_NOT_EXIST,
    remark="The broker's consumer filter data is not exist!Your expression may be wrong!",
    cause="group {group} has no usable filter for topic {topic} here",
    advice="if the client's next heartbeat does not mend it, its expression cannot be parsed: the broker's log says why",
)

FILTER_DATA_NOT_LATEST = Problem(
    id="filter-data-not-latest",
    code=ResponseCode.FILTER_DATA_NOT_LATEST,
    remark="the consumer's consumer filter data not latest",
    cause="the broker knows version {known}, the request has {asked}",
    advice="nothing: the client's next heartbeat brings the new one",
)

NO_ACCESS_KEY = Problem(
    id="acl-no-access-key",
    code=ResponseCode.SYSTEM_ERROR,
    remark="org.apache.rocketmq.acl.common.AclException: No accessKey is configured",
    cause="the request is not signed, and {host} is no global white address",
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
    advice="give the client the same secretKey as the broker's file, every digit of it",
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
    cause="which topics and groups the request touches cannot be told",
    advice="look for a client that is broken or no RocketMQ client at all",
)
