"""A pull as a request: what tasks and planning ask a broker for the messages of a queue with.

`rocketd.client.consumer.pull` makes the same header for consumers, out of their subscriptions: the client imports Twisted,
which must not get into tasks.
"""

from typing import Final

from rocketd.common.sysflag import PULL_SUBSCRIPTION
from rocketd.remoting.codes import ResponseCode
from rocketd.remoting.headers import PullMessageRequestHeader
from rocketd.spark.ranges import Queue

BY_TAG: Final = "TAG"
"""The type of a filter that is tags; the other is SQL92."""

ANY_TAG: Final = "*"
FOUND_NOTHING: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def pull_header(
    group: str, queue: Queue, offset: int, most: int, kind: str = BY_TAG, expression: str = ANY_TAG
) -> PullMessageRequestHeader:
    """Ask for at most so many messages from an offset on, of those that the filter wants; the broker answers at once."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=most,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
        expression_type=kind,
        bname=queue.broker,
    )
