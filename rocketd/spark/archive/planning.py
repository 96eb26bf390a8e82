"""Finds the messages of a source that are not archived yet, and those that are gone."""

from collections.abc import Mapping
from dataclasses import dataclass

from rocketd.spark.archive.archive import Archive
from rocketd.spark.errors import ArchiveError
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.losses import within
from rocketd.spark.planning.offsets import bounds_of, end_offsets, start_offsets
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.ranges import Catalog, Queue, QueueRange


@dataclass(frozen=True, slots=True)
class Remaining:
    """Ranges to read, and ranges lost in the source; both sorted. `queues` are all queues examined."""

    ranges: list[QueueRange]
    gaps: list[QueueRange]
    queues: list[Queue]


def remaining(
    archive: Archive, catalog: Catalog, options: ReadOptions, *, from_earliest: bool, again: bool = False
) -> Remaining:
    """Return the ranges named by the options but missing in the archive.

    Raises OptionError, ArchiveError, ClusterError.

    With `from_earliest`, each queue continues at the end of its archived part, even if the source has deleted messages
    since. With `again`, missing queues are left out, because brokers come and go.
    """
    queues = chosen_queues(catalog, options, again=again)
    bounds = bounds_of(catalog, queues)
    _check_same(archive, {queue: end for queue, (_, end) in bounds.items()})
    starts = start_offsets(catalog, bounds, options)
    ends = end_offsets(catalog, bounds, options)
    wanted = []
    for queue in sorted(bounds):
        known = archive.ranges(queue)
        start = min(starts[queue], known[0].start) if known and from_earliest else starts[queue]
        wanted += without(QueueRange(queue, start, ends[queue]), known)
    there, lost = within(wanted, bounds)
    return Remaining(there, lost, sorted(bounds))


def without(part: QueueRange, known: list[QueueRange]) -> list[QueueRange]:
    """Return the offsets of a range that are in none of the others, which are sorted."""
    left = []
    at = part.start
    for one in known:
        if one.start < part.end and one.end > at:
            if one.start > at:
                left.append(QueueRange(part.queue, at, one.start))
            at = one.end
    if at < part.end:
        left.append(QueueRange(part.queue, at, part.end))
    return left


def _check_same(archive: Archive, ends: Mapping[Queue, int]) -> None:
    for queue, end in ends.items():
        known = archive.ranges(queue)
        if known and known[-1].end > end:
            raise ArchiveError(
                f"the archive {archive.root} has {queue} up to offset {known[-1].end}, the source ends at {end}: "
                "it is another one, or was made anew; archive it into another directory"
            )
