"""Requests to send messages, and their answers.

Counterpart: `SendMessageRequestHeader`, `SendResult` (Apache). Pure functions.
"""

from enum import IntEnum
from typing import Final

import msgspec

from rocketd.common.names import AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUES
from rocketd.protocol.queues import QueueLike
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketd.remoting.wire.codes import ResponseCode

STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
"""Codes of answers if the messages are stored."""


class SendStatus(IntEnum):
    """What has happened to a stored message at the time of the answer. The numbers are those of the protocol.

    Counterpart: `SendStatus` (Apache).
    """

    SEND_OK = 0
    """It is flushed and replicated as the broker is configured."""
    FLUSH_DISK_TIMEOUT = 10
    """It was not flushed in time."""
    SLAVE_NOT_AVAILABLE = 11
    """It was not replicated, because no slave is near enough."""
    FLUSH_SLAVE_TIMEOUT = 12
    """It was not replicated in time."""


SEND_STATUS: Final = {int(status): status for status in SendStatus}
"""The statuses by response code."""


class SendResult(msgspec.Struct, frozen=True):
    """The place of a stored message, and its status."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True


def send_header(
    group: str,
    topic: str,
    queue: QueueLike,
    properties: str,
    *,
    born_ms: int,
    flag: int = 0,
    sys_flag: int = 0,
    batch: bool = False,
    template: str = AUTO_CREATE_TOPIC,
    max_queues: int = DEFAULT_TOPIC_QUEUES,
) -> SendMessageRequestHeader:
    """Return the header of a send of ``topic``'s messages to a queue.

    ``born_ms`` is the time of the send in Unix milliseconds. A broker without the topic creates it like the topic
    ``template``, with at most ``max_queues`` queues.
    """
    return SendMessageRequestHeaderV2(
        producer_group=group,
        topic=topic,
        default_topic=template,
        default_topic_queue_nums=max_queues,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        flag=flag,
        properties=properties,
        reconsume_times=0,
        batch=batch,
        bname=queue.broker_name,
    )


def send_fields(
    group: str,
    topic: str,
    queue: QueueLike,
    properties: str,
    *,
    born_ms: int,
    flag: int = 0,
    sys_flag: int = 0,
    batch: bool = False,
    template: str = AUTO_CREATE_TOPIC,
    max_queues: int = DEFAULT_TOPIC_QUEUES,
) -> dict[str, str]:
    """Return the fields of ``send_header`` as written by ``write_header``, for a fifth of the time."""
    return {
        "a": group,
        "b": topic,
        "c": template,
        "d": str(max_queues),
        "e": str(queue.queue_id),
        "f": str(sys_flag),
        "g": str(born_ms),
        "h": str(flag),
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if batch else "false",
        "n": queue.broker_name,
    }
