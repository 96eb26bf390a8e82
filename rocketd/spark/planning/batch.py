"""The ranges of a batch read: fixed once, so that every try of every task reads the same messages."""

from rocketd.spark.errors import DataLossError, OptionError
from rocketd.spark.options import ReadOptions
from rocketd.spark.options.positions import ExactOffsets
from rocketd.spark.planning.limits import first_rows
from rocketd.spark.planning.losses import log, ranges_between, report_losses, within
from rocketd.spark.planning.offsets import Bounds, bounds_of, end_offsets, start_offsets
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.ranges import Catalog, Offsets, QueueRange


def planned_ranges(catalog: Catalog, options: ReadOptions) -> list[QueueRange]:
    """What the options ask for, within what there is now. Raises OptionError, DataLossError, BrokerError."""
    bounds = bounds_of(catalog, chosen_queues(catalog, options))
    starts = start_offsets(catalog, bounds, options)
    ends = end_offsets(catalog, bounds, options)
    starts = _checked_starts(starts, bounds, options)
    there, lost = within(ranges_between(starts, ends), bounds)
    report_losses(lost, fail=options.fail_on_data_loss)
    return first_rows(there, options.max_rows)


def _checked_starts(starts: Offsets, bounds: Bounds, options: ReadOptions) -> Offsets:
    """The starts, none behind the end of its queue. A start behind the wanted end leaves nothing to read."""
    checked: Offsets = {}
    for queue, start in starts.items():
        end = bounds[queue][1]
        if start > end:
            text = f"{queue} is to be read from {start}, and ends at {end}"
            if isinstance(options.starting, ExactOffsets):
                raise OptionError(f"option startingOffsets: {text}")
            if options.fail_on_data_loss:
                raise DataLossError(f"{text}: it was made anew, or its store has lost messages")
            log.warning("%s; nothing of it is read, as failOnDataLoss is false", text)
        checked[queue] = min(start, end)
    return checked
