"""Requests about the offsets of a queue: its ends, the offset of a time, and the progress of consumer groups.

Counterpart: the offset methods of `MQClientAPIImpl` (Apache). Pure functions.
"""

from rocketd.protocol.queues import QueueLike
from rocketd.protocol.typed_request import TypedRequest, no_result
from rocketd.remoting.bodies.tables import ConsumerOffsetSerializeWrapper
from rocketd.remoting.headers.client import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
    read_header,
)
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand


def min_offset(queue: QueueLike) -> TypedRequest[int]:
    """Ask for the offset of the queue's first message."""
    return TypedRequest(RequestCode.GET_MIN_OFFSET, _offset, _header(queue))


def max_offset(queue: QueueLike) -> TypedRequest[int]:
    """Ask for the end of the queue: the offset of the next message to be stored."""
    return TypedRequest(RequestCode.GET_MAX_OFFSET, _offset, _header(queue))


def search_offset(queue: QueueLike, timestamp_ms: int) -> TypedRequest[int]:
    """Ask for the offset of the first message stored at or after a time in Unix milliseconds.

    Apache's brokers return the nearest message, or any of those of one time.
    """
    header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms, queue.broker_name)
    return TypedRequest(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, _offset, header)


def earliest_time(queue: QueueLike) -> TypedRequest[int | None]:
    """Ask for the store time of the first message, in Unix milliseconds; None if the queue has no message."""
    return TypedRequest(RequestCode.GET_EARLIEST_MSG_STORETIME, _time, _header(queue))


def group_offset(group: str, queue: QueueLike) -> TypedRequest[int | None]:
    """Ask for the next offset of a consumer group; None if the broker has no such offset.

    If Apache's broker does not know the group, it answers 0 if the queue's first message is still in memory.
    """
    header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, queue.broker_name)
    good = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    return TypedRequest(RequestCode.QUERY_CONSUMER_OFFSET, _offset_if_found, header, good)


def group_offsets() -> TypedRequest[dict[str, dict[int, int]]]:
    """Ask for the next offsets of all consumer groups at a broker: ``topic@group`` to queue id to offset."""
    return TypedRequest(RequestCode.GET_ALL_CONSUMER_OFFSET, _offset_table)


def commit_offset(group: str, queue: QueueLike, offset: int, *, reset: bool = False) -> TypedRequest[None]:
    """Store the next offset of a consumer group. With ``reset``, the broker notes it as a change by an administrator."""
    header = UpdateConsumerOffsetRequestHeader(
        group, queue.topic, queue.queue_id, offset, queue.broker_name, reset or None
    )
    return TypedRequest(RequestCode.UPDATE_CONSUMER_OFFSET, no_result, header)


def _header(queue: QueueLike) -> QueueRequestHeader:
    return QueueRequestHeader(queue.topic, queue.queue_id, queue.broker_name)


def _offset(answer: RemotingCommand) -> int:
    return read_header(OffsetResponseHeader, answer).offset


def _offset_if_found(answer: RemotingCommand) -> int | None:
    return None if answer.code == ResponseCode.QUERY_NOT_FOUND else _offset(answer)


def _time(answer: RemotingCommand) -> int | None:
    time = read_header(TimestampResponseHeader, answer).timestamp
    return None if time < 0 else time


def _offset_table(answer: RemotingCommand) -> dict[str, dict[int, int]]:
    return ConsumerOffsetSerializeWrapper.decode(answer.body).offset_table if answer.body else {}
