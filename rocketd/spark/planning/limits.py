"""The size of a micro-batch: fair shares of a limit for all queues, the same at each computation. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from rocketd.spark.planning.splits import Sizer
from rocketd.spark.ranges import Offsets, Queue, QueueRange

_SMALLEST: Final = 91
"""Bytes of the smallest record, without a body: it bounds how many records fit."""
_GUESS: Final = 512


def new_messages(starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> int:
    """Count the messages between the starts and the ends."""
    return sum(max(0, end - starts.get(queue, 0)) for queue, end in ends.items())


def by_rows(starts: Mapping[Queue, int], ends: Mapping[Queue, int], maximum: int) -> Offsets:
    """Return ends with at most `maximum` messages in total, each queue with a share in proportion to its backlog.

    A queue with a backlog gets at least one message. If there are more queues than messages, they take turns.
    """
    backlog = _backlog(starts, ends)
    shares = fair_shares([backlog[queue] for queue in backlog], maximum, turn=sum(starts.values()))
    return {**starts, **{queue: starts[queue] + share for queue, share in zip(backlog, shares, strict=True)}}


def by_bytes(starts: Mapping[Queue, int], ends: Mapping[Queue, int], maximum: int, size: Sizer) -> Offsets:
    """Return ends with at most about `maximum` bytes in total, shared in the same way.

    One of the queues whose share is too small for a message gives one message nevertheless.
    """
    backlog = _backlog(starts, ends)
    if not backlog:
        return dict(ends)
    shares = fair_shares([count * maximum for count in backlog.values()], maximum, turn=0)
    result = dict(starts)
    for queue, share in zip(backlog, shares, strict=True):
        result[queue] += _fitting(queue, starts[queue], backlog[queue], share, size)
    # Of the queues whose share is too small for a message, one takes its turn. Otherwise they might wait forever.
    if waiting := [queue for queue in backlog if result[queue] == starts[queue]]:
        result[waiting[sum(starts.values()) % len(waiting)]] += 1
    return result


def _backlog(starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> dict[Queue, int]:
    return {queue: ends[queue] - starts[queue] for queue in sorted(starts) if ends[queue] > starts[queue]}


def _fitting(queue: Queue, start: int, count: int, share: int, size: Sizer) -> int:
    """Return how many messages from `start` on fit into `share` bytes together."""
    messages = min(count, share // _SMALLEST)
    while messages:
        known = size(QueueRange(queue, start, start + messages))
        have = messages * _GUESS if known is None else known
        if have <= share:
            break
        messages = min(messages - 1, messages * share // have)
    return messages


def fair_shares(backlogs: Sequence[int], maximum: int, *, turn: int) -> list[int]:
    """Split `maximum` in proportion to the backlogs (all above 0). A share is at most its backlog.

    Each share is at least 1. If there are fewer units than backlogs, consecutive backlogs from index `turn` on get 1.
    """
    total, queues = sum(backlogs), len(backlogs)
    if total <= maximum:
        return list(backlogs)
    if maximum < queues:
        chosen = {(turn + step) % queues for step in range(maximum)}
        return [int(number in chosen) for number in range(queues)]
    spare = maximum - queues
    rest = total - queues
    shares = [1 + (backlog - 1) * spare // rest for backlog in backlogs]
    fractions = sorted(range(queues), key=lambda number: (-((backlogs[number] - 1) * spare % rest), number))
    for number in fractions[: maximum - sum(shares)]:
        shares[number] += 1
    return shares


def is_held_back(messages: int, minimum: int | None, waited: float, longest: float) -> bool:
    """Tell whether a micro-batch waits for more messages. `waited` is the time (s) since the question began."""
    return bool(minimum) and 0 < messages < (minimum or 0) and waited < longest


def first_rows(ranges: Sequence[QueueRange], maximum: int | None) -> list[QueueRange]:
    """Cut the ranges to at most `maximum` messages in total, each with a share in proportion to its length."""
    if maximum is None:
        return list(ranges)
    shares = fair_shares([one.count for one in ranges], maximum, turn=0)
    return [
        QueueRange(one.queue, one.start, one.start + share) for one, share in zip(ranges, shares, strict=True) if share
    ]
