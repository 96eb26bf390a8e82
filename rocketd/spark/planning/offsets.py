"""The start and end of each queue: positions of the options, resolved into offsets.

The rules are those of Spark's Kafka source, with two differences. The offsets of a consumer group can be a start. A
starting time without later messages means the end, unless timestampStrategy is error.
"""

from collections.abc import Iterable, Mapping, Sequence

from rocketd.spark.errors import OptionError
from rocketd.spark.options import ReadOptions
from rocketd.spark.options.positions import (
    EARLIEST_MARK,
    LATEST_MARK,
    Earliest,
    ExactOffsets,
    GroupOffsets,
    Latest,
    PerQueue,
    Position,
    QueueName,
    SinceTime,
    SinceTimes,
)
from rocketd.spark.ranges import Catalog, Offsets, Queue

Bounds = Mapping[Queue, tuple[int, int]]
"""The lowest and the end offset of each queue. One plan asks once and uses the same bounds throughout."""

_SHOWN = 5


def bounds_of(catalog: Catalog, queues: Iterable[Queue]) -> dict[Queue, tuple[int, int]]:
    """Ask for the present lowest and end offset of each queue."""
    return {queue: catalog.bounds(queue) for queue in queues}


def start_offsets(catalog: Catalog, bounds: Bounds, options: ReadOptions) -> Offsets:
    """Return the start of each queue. Exact offsets are returned as given, even if the queue no longer has them.

    Raises OptionError if the position does not name exactly these queues, or if a time finds no message and
    timestampStrategy is error.
    """
    starts = _offsets(catalog, bounds, options.starting, _start_option(options))
    if options.timestamp_strategy == "error" and isinstance(options.starting, SinceTime | SinceTimes):
        empty = [str(queue) for queue, offset in starts.items() if offset >= bounds[queue][1]]
        if empty:
            raise OptionError(
                f"option {_start_option(options)}: no message of {_listed(empty)} is from then or later, and "
                "timestampStrategy is error"
            )
    return starts


def end_offsets(catalog: Catalog, bounds: Bounds, options: ReadOptions) -> Offsets:
    """Return the end of each queue. Raises OptionError if the position does not name exactly these queues."""
    return _offsets(catalog, bounds, options.ending, _end_option(options))


def _start_option(options: ReadOptions) -> str:
    if options.starting_timestamp is not None:
        return "startingTimestamp"
    return "startingOffsetsByTimestamp" if options.starting_offsets_by_timestamp else "startingOffsets"


def _end_option(options: ReadOptions) -> str:
    if options.ending_timestamp is not None:
        return "endingTimestamp"
    return "endingOffsetsByTimestamp" if options.ending_offsets_by_timestamp else "endingOffsets"


def _offsets(catalog: Catalog, bounds: Bounds, position: Position, option: str) -> Offsets:
    match position:
        case Earliest():
            return {queue: low for queue, (low, _) in bounds.items()}
        case Latest():
            return {queue: end for queue, (_, end) in bounds.items()}
        case GroupOffsets(group):
            return _of_group(catalog, bounds, group, option)
        case ExactOffsets(named):
            marks = {EARLIEST_MARK: 0, LATEST_MARK: 1}
            exact = by_queue(named, list(bounds), option)
            return {
                queue: bounds[queue][marks[offset]] if offset in marks else offset for queue, offset in exact.items()
            }
        case SinceTime(timestamp_ms):
            return {queue: _at(catalog, queue, span, timestamp_ms) for queue, span in bounds.items()}
        case SinceTimes(named):
            times = by_queue(named, list(bounds), option)
            return {queue: _at(catalog, queue, span, times[queue]) for queue, span in bounds.items()}


def _of_group(catalog: Catalog, bounds: Bounds, group: str, option: str) -> Offsets:
    """Return the group's offsets.

    A queue without a committed offset starts at the lowest, so that nothing unread is skipped. Raises OptionError if there
    are messages and none of the queues has an offset: the name may be mistyped.
    """
    committed = {queue: catalog.group_offset(group, queue) for queue in bounds}
    if any(low < end for low, end in bounds.values()) and all(offset is None for offset in committed.values()):
        topics = sorted({queue.topic for queue in bounds})
        known = sorted({known for topic in topics for known in catalog.known_groups(topic)})
        raise OptionError(
            f"option {option}: consumer group {group} has committed no offset in {_listed(topics)}; "
            + (f"groups with offsets: {_listed(known)}" if known else "no group has")
            + "; to read everything, use earliest"
        )
    return {queue: bounds[queue][0] if offset is None else offset for queue, offset in committed.items()}


def _at(catalog: Catalog, queue: Queue, span: tuple[int, int], timestamp_ms: int) -> int:
    low, end = span
    return min(max(catalog.offset_at(queue, timestamp_ms), low), end) if low < end else end


def by_queue(named: PerQueue, queues: Sequence[Queue], option: str) -> Offsets:
    """Return the number that an option gives to each of the queues.

    Raises OptionError if the option omits a queue, names one with two different values, or names one outside the read.
    """
    values: Offsets = {}
    for name, value in named:
        found = [queue for queue in queues if name.names(queue)]
        _check_named(name, found, option)
        if values.get(found[0], value) != value:
            raise OptionError(f"option {option} names {found[0]} twice, with different values")
        values[found[0]] = value
    missing = [str(queue) for queue in queues if queue not in values]
    if missing:
        raise OptionError(
            f"option {option} leaves out {_listed(missing)}: name every queue that is read, or choose them by assign"
        )
    return {queue: values[queue] for queue in queues}


def _check_named(name: QueueName, found: Sequence[Queue], option: str) -> None:
    if not found:
        raise OptionError(f"option {option} names {name}, which is not among the queues that are read")
    if len(found) > 1:
        brokers = ", ".join(queue.broker for queue in found)
        raise OptionError(f"option {option}: {name} is on brokers {brokers}, so say on which one")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
