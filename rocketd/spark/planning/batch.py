"""The ranges of a batch read, fixed once: every attempt of every task reads the same messages."""

from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.limits import first_rows
from rocketd.spark.planning.losses import checked_starts, ranges_between, report_losses, within
from rocketd.spark.planning.offsets import bounds_of, end_offsets, start_offsets
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.ranges import Catalog, QueueRange


def planned_ranges(catalog: Catalog, options: ReadOptions) -> list[QueueRange]:
    """Return the ranges named by the options, within the present bounds.

    Raises OptionError, DataLossError, ClusterError.
    """
    bounds = bounds_of(catalog, chosen_queues(catalog, options))
    starts = start_offsets(catalog, bounds, options)
    ends = end_offsets(catalog, bounds, options)
    starts = checked_starts(starts, bounds, options)
    there, lost = within(ranges_between(starts, ends), bounds)
    report_losses(lost, fail=options.fail_on_data_loss)
    return first_rows(there, options.max_rows)
