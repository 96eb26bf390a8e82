"""Requests about the offsets of a queue: bounds, times, and committed offsets of consumer groups."""

import struct
from bisect import bisect_left
from collections.abc import Callable

from rocketd.protocol import offsets as requests
from rocketd.protocol.cluster import runtime_info
from rocketd.protocol.pull import PULLED, everything, pull_header
from rocketd.remoting.headers.client import PullMessageResponseHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.faults import PASSING, header_of
from rocketd.store.format.record import store_timestamp_of

_QUEUE_OFFSET = struct.Struct(">q")
QUEUE_OFFSET_POSITION = 20
"""The position of the queue offset in a record."""
_SIZE = struct.Struct(">i")


def max_offset(cluster: ClusterClient, queue: Queue) -> int:
    """Return the offset after the last message, according to the master."""
    return cluster.answer(queue.broker, requests.max_offset(queue))


def bounds(cluster: ClusterClient, queue: Queue) -> tuple[int, int]:
    """Return the lowest offset with a message, and the offset after the last message, according to the master.

    The lower bound never exceeds the upper one. Both are 0 for a queue that never had messages.
    """
    return cluster.patiently(lambda: bounds_at(cluster, cluster.master(queue.broker), queue))


def bounds_at(cluster: ClusterClient, address: str, queue: Queue) -> tuple[int, int]:
    """Return the bounds according to the broker at this address, without retries."""
    upper = cluster.answer_at(queue.broker, address, requests.max_offset(queue))
    lower = cluster.answer_at(queue.broker, address, requests.min_offset(queue))
    return min(max(lower, 0), upper), upper


def dispatch_behind(cluster: ClusterClient, broker: str) -> int:
    """Return the bytes of the log that are not yet in the broker's queues; 0 if the broker does not tell."""
    try:
        return int(cluster.answer(broker, runtime_info())["dispatchBehindBytes"])
    except ClusterError as error:
        if error.retriable:
            raise
        return 0  # the account lacks the permission
    except (KeyError, ValueError):
        return 0


def earliest_time(cluster: ClusterClient, queue: Queue) -> int | None:
    """Return the store time (ms) of the first existing message, or None without messages."""
    return cluster.answer(queue.broker, requests.earliest_time(queue))


# ---------------------------------------------------------------- times


def peek(cluster: ClusterClient, queue: Queue, offset: int, limit: int = 1) -> tuple[int, bytes]:
    """Return the offset to go on from, and at most `limit` records from an offset on; empty bytes without records."""
    header = pull_header(cluster.options.group, queue, everything(queue.topic), offset, limit)
    answer = cluster.ask(queue.broker, RequestCode.PULL_MESSAGE, header, good=PULLED)
    following = header_of(PullMessageResponseHeader, answer).next_begin_offset
    return following, (answer.body or b"") if answer.code == ResponseCode.SUCCESS else b""


def stored_at(cluster: ClusterClient, queue: Queue, offset: int) -> int | None:
    """Return the store time (ms) of the message at an offset, or None without a readable one."""
    _, records = peek(cluster, queue, offset)
    is_there = bool(records) and _QUEUE_OFFSET.unpack_from(records, QUEUE_OFFSET_POSITION)[0] == offset
    return store_timestamp_of(records) if is_there else None


def offset_at(cluster: ClusterClient, queue: Queue, timestamp_ms: int) -> int:
    """Return the first offset stored at or after this time, or the end offset if there is none.

    An Apache broker's search returns the nearest message, or any message of the same millisecond. So its answer is only the
    start of a search over the store times of single messages. If a broker's clock was set back, several offsets may
    qualify; the result is one of them.
    """
    lower, upper = bounds(cluster, queue)
    if lower >= upper:
        return upper
    hint = cluster.answer(queue.broker, requests.search_offset(queue, timestamp_ms))

    def reached(offset: int) -> bool:
        """Tell whether the message at this offset was stored at or after the time. False for a lost message."""
        _, records = peek(cluster, queue, offset)
        return bool(records) and store_timestamp_of(records) >= timestamp_ms

    return first_true(reached, lower, upper, hint)


def first_true(test: Callable[[int], bool], lower: int, upper: int, hint: int) -> int:
    """Return the first number from `lower` below `upper` for which `test` holds, or `upper` if there is none.

    The test must hold for all later numbers too. The search begins at `hint` and doubles its steps, so a good hint is
    cheap.
    """
    low, high = lower, upper  # the result is between low and high
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


def mean_size(cluster: ClusterClient, queue: Queue, start: int, end: int, samples: int = 3) -> float | None:
    """Estimate the mean size of a record (bytes) from a few pulls spread over the offsets; None without messages."""
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


def group_offset(cluster: ClusterClient, group: str, queue: Queue) -> int | None:
    """Return the committed offset of a consumer group, or None if it has not committed.

    Brokers answer 0 for a group that is new to a young queue. Such an answer is accepted only if the group is in the
    table of committed offsets.
    """
    offset = cluster.answer(queue.broker, requests.group_offset(group, queue))
    if offset != 0:
        return None if offset is None or offset < 0 else offset
    try:
        table = all_group_offsets(cluster, queue.broker)
    except ClusterError as error:
        if error.code is None or error.code in PASSING:
            raise
        return offset  # the account may not read the table of offsets
    return offset if queue.queue_id in table.get(f"{queue.topic}@{group}", {}) else None


def all_group_offsets(cluster: ClusterClient, broker: str) -> dict[str, dict[int, int]]:
    """Return the committed offsets of all groups at a broker: ``topic@group`` to queue id to offset."""
    return cluster.answer(broker, requests.group_offsets())


def commit_offset(cluster: ClusterClient, group: str, queue: Queue, offset: int) -> None:
    """Commit the next offset that a group reads."""
    cluster.answer(queue.broker, requests.commit_offset(group, queue, offset))
