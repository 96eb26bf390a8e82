"""Questions about the offsets of a queue: bounds, times, and what a consumer group has committed."""

import struct
from bisect import bisect_left
from collections.abc import Callable

from rocketd.remoting.bodies import ConsumerOffsetSerializeWrapper, KVTable
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import (
    OffsetResponseHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketd.spark.errors import BrokerError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import Cluster
from rocketd.spark.wire.faults import PASSING, body_of, header_of
from rocketd.spark.wire.pull_request import FOUND_NOTHING, pull_header
from rocketd.store.record import store_timestamp_of

_QUEUE_OFFSET = struct.Struct(">q")
QUEUE_OFFSET_POSITION = 20
"""Where a record has its offset in the queue."""
_SIZE = struct.Struct(">i")


def max_offset(cluster: Cluster, queue: Queue) -> int:
    """The offset behind the last message, by the master."""
    return cluster.patiently(lambda: _offset(cluster, cluster.master(queue.broker), queue, RequestCode.GET_MAX_OFFSET))


def bounds(cluster: Cluster, queue: Queue) -> tuple[int, int]:
    """The lowest offset whose message is still there, and the one behind the last message, by the master.

    The lower is never above the upper; both are 0 for a queue that never had messages.
    """
    return cluster.patiently(lambda: bounds_at(cluster, cluster.master(queue.broker), queue))


def bounds_at(cluster: Cluster, address: str, queue: Queue) -> tuple[int, int]:
    """The bounds by the broker at this address, asked once."""
    upper = _offset(cluster, address, queue, RequestCode.GET_MAX_OFFSET)
    lower = _offset(cluster, address, queue, RequestCode.GET_MIN_OFFSET)
    return min(max(lower, 0), upper), upper


def _offset(cluster: Cluster, address: str, queue: Queue, code: RequestCode) -> int:
    header = QueueRequestHeader(queue.topic, queue.queue_id, queue.broker)
    return header_of(OffsetResponseHeader, cluster.ask_at(queue.broker, address, code, header)).offset


def dispatch_behind(cluster: Cluster, broker: str) -> int:
    """Bytes of the log that are not in the broker's queues yet; 0 where it does not tell."""
    try:
        answer = cluster.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(body_of(KVTable, answer).table["dispatchBehindBytes"])
    except BrokerError as error:
        if error.retriable:
            raise
        return 0  # an account that may not ask
    except (KeyError, ValueError):
        return 0


def earliest_time(cluster: Cluster, queue: Queue) -> int | None:
    """Store time in ms of the first message that is still there, None where there is none."""
    header = QueueRequestHeader(queue.topic, queue.queue_id, queue.broker)
    answer = cluster.ask(queue.broker, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    time = header_of(TimestampResponseHeader, answer).timestamp
    return None if time < 0 else time


# ---------------------------------------------------------------- times


def peek(cluster: Cluster, queue: Queue, offset: int, most: int = 1) -> tuple[int, bytes]:
    """The records from an offset on, at most so many, and the offset to go on from; empty where there are none."""
    header = pull_header(cluster.options.group, queue, offset, most)
    good = (ResponseCode.SUCCESS, *FOUND_NOTHING)
    answer = cluster.ask(queue.broker, RequestCode.PULL_MESSAGE, header, good=good)
    following = header_of(PullMessageResponseHeader, answer).next_begin_offset
    return following, (answer.body or b"") if answer.code == ResponseCode.SUCCESS else b""


def offset_at(cluster: Cluster, queue: Queue, timestamp_ms: int) -> int:
    """The first offset that was stored at or after this time, the end when there is none.

    A broker's own search names the nearer message, or any of those of one millisecond; so it is where the search begins
    here, by the store times of single messages. Where a broker's clock was set back, it is one of the places where
    times pass this one.
    """
    lower, upper = bounds(cluster, queue)
    if lower >= upper:
        return upper
    header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms, queue.broker)
    answer = cluster.ask(queue.broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    hint = header_of(OffsetResponseHeader, answer).offset

    def reached(offset: int) -> bool:
        """Whether the message there was stored at the time or later; one that is lost was not."""
        _, records = peek(cluster, queue, offset)
        return bool(records) and store_timestamp_of(records) >= timestamp_ms

    return first_true(reached, lower, upper, hint)


def first_true(test: Callable[[int], bool], lower: int, upper: int, hint: int) -> int:
    """The first number from `lower` below `upper` with which `test` holds, `upper` where it does with none.

    The test holds from some number on. The search begins at `hint` and doubles its steps, so a good hint is cheap.
    """
    low, high = lower, upper  # the result is from low up to high
    probe, step, upwards = min(max(hint, lower), upper - 1), 1, True
    if lower >= upper:
        return upper
    if test(probe):
        high, upwards = probe, False
    else:
        low = probe + 1
    while low < high:
        at = min(low + step - 1, high - 1) if upwards else max(high - step, low)
        if test(at):
            high = at
            if upwards:
                break
        else:
            low = at + 1
            if not upwards:
                break
        step *= 2
    return low + bisect_left(range(low, high), True, key=test)


def mean_size(cluster: Cluster, queue: Queue, start: int, end: int, samples: int = 3) -> float | None:
    """About how many bytes a record has, from a few pulls spread over the offsets; None where none is there."""
    count = size = 0
    for number in range(samples):
        at = start + (end - start) * number // samples
        _, records = peek(cluster, queue, at, 32)
        position = 0
        while position < len(records):
            (length,) = _SIZE.unpack_from(records, position)
            (offset,) = _QUEUE_OFFSET.unpack_from(records, position + QUEUE_OFFSET_POSITION)
            position += length
            if offset < end:
                count += 1
                size += length
    return size / count if count else None


# ---------------------------------------------------------------- groups


def group_offset(cluster: Cluster, group: str, queue: Queue) -> int | None:
    """What a consumer group has committed, None when it has not.

    Brokers answer 0 for a group that is new to a young queue; such an answer is believed only when the group is among
    those with offsets.
    """
    header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, queue.broker)
    good = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
    answer = cluster.ask(queue.broker, RequestCode.QUERY_CONSUMER_OFFSET, header, good=good)
    if answer.code != ResponseCode.SUCCESS:
        return None
    offset = header_of(OffsetResponseHeader, answer).offset
    if offset:
        return None if offset < 0 else offset
    try:
        table = all_group_offsets(cluster, queue.broker)
    except BrokerError as error:
        if error.code is None or error.code in PASSING:
            raise
        return offset  # an account that may not ask for all offsets
    return offset if queue.queue_id in table.get(f"{queue.topic}@{group}", {}) else None


def all_group_offsets(cluster: Cluster, broker: str) -> dict[str, dict[int, int]]:
    """What all groups have committed at a broker: ``topic@group`` to queue id to offset."""
    answer = cluster.ask(broker, RequestCode.GET_ALL_CONSUMER_OFFSET)
    return body_of(ConsumerOffsetSerializeWrapper, answer).offset_table if answer.body else {}


def commit_offset(cluster: Cluster, group: str, queue: Queue, offset: int) -> RemotingCommand:
    """Commit the next offset that a group reads."""
    header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset, queue.broker)
    return cluster.ask(queue.broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)
