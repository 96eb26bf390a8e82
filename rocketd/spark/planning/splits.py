"""Ranges cut and grouped into tasks. Few large tasks are faster than many small ones. Pure."""

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Final

from rocketd.spark.ranges import QueueRange

Sizer = Callable[[QueueRange], int | None]
"""Estimates the size of a range in bytes, or returns None if unknown."""

_GUESS: Final = 512
"""Bytes of a record, if the size is unknown."""
_WORTH_A_TASK: Final = 4 * 1024 * 1024
"""Bytes below which an additional task costs more than it saves."""
_NEAR: Final = 0.05
"""A cut this near to the border of two queues is moved to the border; the distance is a fraction of a task."""


def into_tasks(
    ranges: Sequence[QueueRange], size: Sizer, *, min_partitions: int | None, max_bytes: int, cores: int
) -> list[tuple[QueueRange, ...]]:
    """Return the ranges of each task, in order. Together they are exactly the given ranges, and no task is empty.

    There are at least `min_partitions` tasks if there are as many messages, and more if `max_bytes` requires it.
    Without `min_partitions` there are as many tasks as `cores`, if the data is large enough to benefit.
    """
    ranges = [one for one in ranges if one.count]
    weights = [_weight(one, size) for one in ranges]
    total = sum(weights)
    if not total:
        return []
    paying = min(cores, -(-total // _WORTH_A_TASK))
    wanted = max(1, min_partitions or paying, -(-total // max_bytes))
    return _cut(ranges, weights, min(wanted, sum(one.count for one in ranges)))


def _weight(one: QueueRange, size: Sizer) -> int:
    known = size(one)
    return max(one.count, known if known is not None else one.count * _GUESS)


def _cut(ranges: Sequence[QueueRange], weights: Sequence[int], tasks: int) -> list[tuple[QueueRange, ...]]:
    """Lay the ranges end to end and cut that line into pieces of equal weight, each with at least one message."""
    borders = list(accumulate((one.count for one in ranges), initial=0))
    heights = list(accumulate(weights, initial=0))
    cuts = [0]
    for number in range(1, tasks):
        target = heights[-1] * number / tasks
        cut = _position(target, heights, borders, heights[-1] / tasks * _NEAR)
        cuts.append(min(max(cut, cuts[-1] + 1), borders[-1] - (tasks - number)))
    cuts.append(borders[-1])
    return [_piece(ranges, borders, start, end) for start, end in pairwise(cuts)]


def _position(target: float, heights: Sequence[int], borders: Sequence[int], near: float) -> int:
    """Return the message position at this weight, or the border of two ranges if one is near."""
    index = min(bisect_right(heights, target) - 1, len(heights) - 2)
    if target - heights[index] <= near:
        return borders[index]
    if heights[index + 1] - target <= near:
        return borders[index + 1]
    part = (target - heights[index]) / (heights[index + 1] - heights[index])
    return borders[index] + round(part * (borders[index + 1] - borders[index]))


def _piece(ranges: Sequence[QueueRange], borders: Sequence[int], start: int, end: int) -> tuple[QueueRange, ...]:
    first = bisect_right(borders, start) - 1
    pieces: list[QueueRange] = []
    for one, at in zip(ranges[first:], borders[first:], strict=False):
        if at >= end:
            break
        low, high = max(start - at, 0), min(end - at, one.count)
        pieces.append(QueueRange(one.queue, one.start + low, one.start + high))
    return tuple(pieces)


def cores_here() -> int:
    """The cores available to this process: the only number known about the cluster during planning."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
