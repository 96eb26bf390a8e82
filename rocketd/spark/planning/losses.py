"""Lost messages: the parts of wanted ranges that are gone, and the reaction to them."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from rocketd.spark.errors import DataLossError, OptionError
from rocketd.spark.options import ReadOptions
from rocketd.spark.options.positions import ExactOffsets
from rocketd.spark.planning.offsets import Bounds
from rocketd.spark.ranges import Offsets, OnLoss, Queue, QueueRange

log = logging.getLogger(__name__)

_SHOWN = 10


def checked_starts(starts: Mapping[Queue, int], bounds: Bounds, options: ReadOptions) -> Offsets:
    """Return the starts, none after the end of its queue.

    Raises OptionError or DataLossError for a start after the end. With failOnDataLoss=false, such a queue starts at its
    end.
    """
    checked: Offsets = {}
    for queue, start in starts.items():
        end = bounds[queue][1]
        if start > end:
            text = f"{queue} is to be read from {start}, and ends at {end}"
            if isinstance(options.starting, ExactOffsets):
                raise OptionError(f"option startingOffsets: {text}")
            if options.fail_on_data_loss:
                raise DataLossError(
                    f"{text}: it was made anew, or its store has lost messages; start elsewhere, or set "
                    "failOnDataLoss=false to start at its end"
                )
            log.warning("%s; it is read from its end on, as failOnDataLoss is false", text)
        checked[queue] = min(start, end)
    return checked


def ranges_between(starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> list[QueueRange]:
    """Return the ranges that are not empty, sorted."""
    return [QueueRange(queue, starts[queue], ends[queue]) for queue in sorted(starts) if ends[queue] > starts[queue]]


def within(ranges: Iterable[QueueRange], bounds: Bounds) -> tuple[list[QueueRange], list[QueueRange]]:
    """Split the ranges into parts within the bounds of their queues, and lost parts. Both are sorted."""
    there: list[QueueRange] = []
    lost: list[QueueRange] = []
    for one in sorted(ranges):
        low, end = bounds.get(one.queue, (0, 0))
        first, last = min(max(one.start, low), one.end), max(min(one.end, end), one.start)
        if first >= last:
            lost.append(one)
            continue
        there.append(QueueRange(one.queue, first, last))
        lost += [
            QueueRange(one.queue, start, stop) for start, stop in ((one.start, first), (last, one.end)) if stop > start
        ]
    return there, lost


def loss_text(lost: Sequence[QueueRange]) -> str:
    """Describe the lost ranges."""
    more = f" and {len(lost) - _SHOWN} more ranges" if len(lost) > _SHOWN else ""
    messages = sum(one.count for one in lost)
    return f"{messages} messages are not there any more: {', '.join(map(str, lost[:_SHOWN]))}{more}"


def report_losses(lost: Sequence[QueueRange], *, fail: bool, hint: str = "") -> None:
    """Raise DataLossError that names the lost ranges, or log a warning. Does nothing without losses."""
    if not lost:
        return
    if fail:
        raise DataLossError(
            f"{loss_text(lost)}; {hint or 'start later, or set failOnDataLoss=false to go on without them'}"
        )
    log.warning("%s; going on without them, as failOnDataLoss is false", loss_text(lost))


def warn_of_loss(lost: QueueRange) -> None:
    """The `on_loss` of reads with failOnDataLoss=false: log a warning and go on."""
    report_losses([lost], fail=False)


def on_loss(fail: bool) -> OnLoss | None:
    """Return the reaction of a task to messages that disappear while it reads."""
    return None if fail else warn_of_loss
