"""How far a micro-batch goes: shares of a limit, fair to all queues, the same whenever it is worked out again. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from rocketd.spark.planning.splits import Sizer
from rocketd.spark.ranges import Offsets, Queue, QueueRange

_SMALLEST: Final = 91
"""Bytes of the smallest record, without a body: what bounds how many fit."""
_GUESS: Final = 512


def new_messages(starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> int:
    """How many messages there are between."""
    return sum(max(0, end - starts.get(queue, 0)) for queue, end in ends.items())


def by_rows(starts: Mapping[Queue, int], ends: Mapping[Queue, int], most: int) -> Offsets:
    """Ends such that there are at most `most` messages, each queue with a share in proportion to its backlog.

    A queue with a backlog gets one at least; where there are more queues than messages, they take turns.
    """
    backlog = _backlog(starts, ends)
    shares = fair_shares([backlog[queue] for queue in backlog], most, turn=sum(starts.values()))
    return {**starts, **{queue: starts[queue] + share for queue, share in zip(backlog, shares, strict=True)}}


def by_bytes(starts: Mapping[Queue, int], ends: Mapping[Queue, int], most: int, size: Sizer) -> Offsets:
    """Ends such that there are at most about `most` bytes, shared in the same way; of the queues that have no part
    in that, one gives a message all the same.
    """
    backlog = _backlog(starts, ends)
    if not backlog:
        return dict(ends)
    shares = fair_shares([count * most for count in backlog.values()], most, turn=0)
    result = dict(starts)
    for queue, share in zip(backlog, shares, strict=True):
        result[queue] += _fitting(queue, starts[queue], backlog[queue], share, size)
    # Of those whose share is too small for a message one has its turn, else they might wait for ever.
    if waiting := [queue for queue in backlog if result[queue] == starts[queue]]:
        result[waiting[sum(starts.values()) % len(waiting)]] += 1
    return result


def _backlog(starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> dict[Queue, int]:
    return {queue: ends[queue] - starts[queue] for queue in sorted(starts) if ends[queue] > starts[queue]}


def _fitting(queue: Queue, start: int, count: int, share: int, size: Sizer) -> int:
    """How many of the messages from `start` on have at most `share` bytes together."""
    messages = min(count, share // _SMALLEST)
    while messages:
        known = size(QueueRange(queue, start, start + messages))
        have = messages * _GUESS if known is None else known
        if have <= share:
            break
        messages = min(messages - 1, messages * share // have)
    return messages


def fair_shares(backlogs: Sequence[int], most: int, *, turn: int) -> list[int]:
    """Parts of `most`, one for each backlog (all above 0) and none greater than it, in proportion to them.

    Each is 1 at least; with fewer than one for each, consecutive ones from number `turn` on get 1.
    """
    total, queues = sum(backlogs), len(backlogs)
    if total <= most:
        return list(backlogs)
    if most < queues:
        chosen = {(turn + step) % queues for step in range(most)}
        return [int(number in chosen) for number in range(queues)]
    spare = most - queues
    rest = total - queues
    shares = [1 + (backlog - 1) * spare // rest for backlog in backlogs]
    fractions = sorted(range(queues), key=lambda number: (-((backlogs[number] - 1) * spare % rest), number))
    for number in fractions[: most - sum(shares)]:
        shares[number] += 1
    return shares


def is_held_back(messages: int, least: int | None, waited: float, longest: float) -> bool:
    """Whether so few new messages wait for more; `waited` is for how long (s) there have been any."""
    return bool(least) and 0 < messages < (least or 0) and waited < longest


def first_rows(ranges: Sequence[QueueRange], most: int | None) -> list[QueueRange]:
    """The ranges cut so that there are at most `most` messages, each with a share like its length."""
    if most is None:
        return list(ranges)
    shares = fair_shares([one.count for one in ranges], most, turn=0)
    return [
        QueueRange(one.queue, one.start, one.start + share) for one, share in zip(ranges, shares, strict=True) if share
    ]
