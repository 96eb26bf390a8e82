"""Names with a meaning: system topics and groups, prefixes, and allowed characters.

Counterpart: `TopicValidator` and the constants of `MixAll` (Apache). Pure functions. A refusal is the remark of
Apache's broker, so tools show the same text.
"""

import re
from typing import Final

AUTO_CREATE_TOPIC: Final = "TBW102"
"""Template of topics created by their first message."""
DEFAULT_TOPIC_QUEUES: Final = 4
"""Number of queues requested by producers for such a topic, unless set otherwise."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Topic of waiting messages with an individual delivery time. Apache has it from 5.0 on."""
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""System topics of every broker. A broker adds the topics named after itself and its cluster."""

NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""System topics written only by the broker itself, as in Apache 4.9.7."""

BROKER_ONLY_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {TIMER_TOPIC}
"""All topics refused in sends."""

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
PRESET_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
"""Groups that exist on every broker from its first start."""
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Header field that tells a query by unique key from one by the sender's keys."""

ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

TOPIC_MAX_LENGTH: Final = 127
GROUP_MAX_LENGTH: Final = 255
CONSUMER_GROUP_MAX_LENGTH: Final = TOPIC_MAX_LENGTH - len(RETRY_PREFIX)
"""Maximum length of a consumer group whose retry topic can be stored."""

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]*", re.ASCII)


def is_legal_name(name: str) -> bool:
    """Return whether a topic or group has only allowed characters."""
    return _LEGAL.fullmatch(name) is not None


def topic_fault(topic: str) -> str | None:
    """Return the fault of a topic's name in Apache's words, None without one."""
    if not topic.strip():
        return "The specified topic is blank."
    if not is_legal_name(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_MAX_LENGTH:
        return "The specified topic is longer than topic max length."
    return None


def group_fault(group: str) -> str | None:
    """Return the fault of a group's name, None without one."""
    if not group.strip():
        return "the group is blank"
    if len(group) > GROUP_MAX_LENGTH:
        return f"the group has more than {GROUP_MAX_LENGTH} characters"
    if not is_legal_name(group):
        return "the group has illegal characters; allowed are letters, digits and % | - _"
    return None


def consumer_group_fault(group: str) -> str | None:
    """Return the fault of a consumer group's name, None without one."""
    fault = group_fault(group)
    if fault is None and len(group) > CONSUMER_GROUP_MAX_LENGTH:
        fault = (
            f"the consumer group has {len(group)} characters, but its retry topic can only be stored if it has at most "
            f"{CONSUMER_GROUP_MAX_LENGTH}"
        )
    return fault


def is_storable(topic: str) -> bool:
    """Return whether a topic's name is possible as a directory name and in a record."""
    return (
        0 < len(topic.encode("utf-8", "replace")) <= TOPIC_MAX_LENGTH
        and topic.isprintable()
        and "/" not in topic
        and topic not in (".", "..")
    )


def retry_topic(group: str) -> str:
    """Return the topic of a group's messages to be consumed again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of a group's dead letters."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic for replies of request-reply in a cluster."""
    return f"{cluster}_{REPLY_TOPIC_POSTFIX}"


def room_of_broker(broker_name: str) -> str | None:
    """Return the machine room in a name like ``room@broker``; None if the name does not have exactly these two parts."""
    # "room@broker@" still has two parts: Java's split drops empty parts at the end.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def is_system_group(group: str) -> bool:
    """Return whether the broker itself consumes under this name."""
    return group.startswith(SYSTEM_GROUP_PREFIX)
