"""The typed headers of requests that only administration sends.

Answers to the CommandCustomHeader classes that mqadmin uses; declared as those in ``headers`` are. Times are Unix
milliseconds.
"""

from rocketd.remoting.headers import Header, Long

# ---------------------------------------------------------------- offsets of groups


class ResetOffsetRequestHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), RESET_CONSUMER_CLIENT_OFFSET (220): to a time, -1 for the end."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool


class CloneGroupOffsetRequestHeader(Header):
    """CLONE_GROUP_OFFSET (314); without a topic, those of all topics of the group."""

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
    """GET_GROUP_PROBLEMS (30001); without a group, those of all."""

    consumer_group: str | None = None
