"""What of a source is still to be archived, and what of it is gone."""

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
    """Ranges to read, and ranges that are lost since they were asked for first; both sorted. `queues` are all those that
    were looked at.
    """

    ranges: list[QueueRange]
    gaps: list[QueueRange]
    queues: list[Queue]


def remaining(
    archive: Archive, catalog: Catalog, options: ReadOptions, *, from_earliest: bool, again: bool = False
) -> Remaining:
    """What the options ask for and the archive does not have. Raises OptionError, ArchiveError, BrokerError.

    With `from_earliest` each queue goes on where the archive ends, whatever the source has thrown away since. Asked
    `again`, queues that are not there are left out, as brokers come and go.
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
    """The offsets of a range that are in none of the others, which are sorted."""
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
