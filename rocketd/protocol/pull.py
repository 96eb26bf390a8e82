"""Requests for the messages of a queue, and the codes of their answers.

Counterpart: `PullAPIWrapper` (Apache). Pure functions.
"""

from typing import Final

from rocketd.common.sysflag import PULL_SUBSCRIPTION
from rocketd.protocol.queues import QueueLike
from rocketd.remoting.bodies.tables import SubscriptionData
from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.remoting.wire.codes import ResponseCode

BY_TAG: Final = "TAG"
"""The type of a filter with a list of tags. The other type is SQL92."""

ANY_TAG: Final = "*"
"""The expression of a filter for all messages."""

PULLED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
"""Codes of answers other than refusals. Only the first comes with messages; the others name the offset of the next pull."""


def everything(topic: str) -> SubscriptionData:
    """Return a subscription to all messages of a topic, for a pull outside any consumer."""
    return SubscriptionData(topic, ANY_TAG)


def pull_header(
    group: str,
    queue: QueueLike,
    subscription: SubscriptionData,
    offset: int,
    limit: int,
    *,
    sys_flag: int = PULL_SUBSCRIPTION,
    suspend_ms: int = 0,
    commit_offset: int = 0,
) -> PullMessageRequestHeader:
    """Return the header of a request for at most ``limit`` messages from ``offset`` on.

    The subscription's expression is sent only if ``sys_flag`` has PULL_SUBSCRIPTION. Otherwise the broker uses the
    expression from the group's heartbeats. A broker without a message holds the request for ``suspend_ms`` if ``sys_flag``
    has PULL_SUSPEND.
    """
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=limit,
        sys_flag=sys_flag,
        commit_offset=commit_offset,
        suspend_timeout_millis=suspend_ms,
        sub_version=subscription.sub_version,
        subscription=subscription.sub_string if sys_flag & PULL_SUBSCRIPTION else None,
        expression_type=subscription.expression_type,
        bname=queue.broker_name,
    )
