"""Typed headers of requests sent only by administration.

Counterpart: the `CommandCustomHeader` classes used by mqadmin (Apache), declared like those in ``client``. Times are
Unix milliseconds.
"""

from rocketd.remoting.headers.client import Header, Int, Long

# ---------------------------------------------------------------- offsets of groups


class ResetOffsetRequestHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), RESET_CONSUMER_CLIENT_OFFSET (220): to a time, or -1 for the end."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool


class CloneGroupOffsetRequestHeader(Header):
    """CLONE_GROUP_OFFSET (314). Without a topic, the offsets of all topics of the group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


# ---------------------------------------------------------------- questions to consumers


class GetConsumerStatusRequestHeader(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), GET_CONSUMER_STATUS_FROM_CLIENT (221). ``client_addr`` is a client id."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(Header):
    """GET_CONSUMER_RUNNING_INFO (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY (309)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


class GroupProblemsRequestHeader(Header):
    """GET_GROUP_PROBLEMS (30001). Without a group, the problems of all."""

    consumer_group: str | None = None


class AdminChangesRequestHeader(Header):
    """GET_ADMIN_CHANGES (30004): at most so many of the last changes."""

    count: Int = 100


# ---------------------------------------------------------------- statistics


class GetConsumeStatsRequestHeader(Header):
    """GET_CONSUME_STATS (208). Without a topic, all topics with offsets of the group."""

    consumer_group: str
    topic: str | None = None


class GetConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS (317): of all topics, or of ordered ones only."""

    is_order: bool


class QueryConsumeTimeSpanRequestHeader(Header):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class QueryCorrectionOffsetHeader(Header):
    """QUERY_CORRECTION_OFFSET (308). ``filter_groups`` are ignored groups, separated by commas."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class ConsumerLagRequestHeader(Header):
    """GET_CONSUMER_LAG (30002). Without a topic, all topics read by the group."""

    consumer_group: str
    topic: str | None = None


class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA (315): the name of a statistic, and a key within it."""

    stats_name: str
    stats_key: str


# ---------------------------------------------------------------- queues


class QueryConsumeQueueRequestHeader(Header):
    """QUERY_CONSUME_QUEUE (321): ``count`` entries from queue offset ``index`` on, tested with the filter of a group."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None
