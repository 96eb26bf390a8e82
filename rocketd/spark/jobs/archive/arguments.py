"""The arguments shared by jobs that read an archive: the archive, and the selection of messages."""

from typing import Any

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.running.options import Arguments, Section, option
from rocketd.spark.options.kinds import SIZE, TIME, OptionKind
from rocketd.spark.options.positions import END, START, ExactOffsets, PerQueue
from rocketd.spark.ranges import Queue


def selection_section() -> Section:
    """Return the options for the archive, and for the selection of its messages."""
    return Section(
        "archive",
        [
            option("--archive", metavar="DIR", required=True, help="directory of the archive"),
            option("--topic", multiple=True, metavar="NAME", help="topic to select (default: all); repeatable"),
            option("--broker-name", default="", metavar="NAME", help="broker to select (default: all)"),
            option("--from", "from_", metavar="WHERE", help="start: a store time, or first offsets as JSON"),
            option("--until", metavar="WHERE", help="end: a store time, or end offsets as JSON"),
        ],
    )


def selection_of(args: Arguments, archive: Archive) -> Selection:
    """Return the selection of the arguments. Raises OptionError for topics, brokers or queues missing in the archive."""
    queues = archive.queues
    for topic in args.topic:
        if not any(queue.topic == topic for queue in queues):
            raise OptionError(f"--topic {topic}: the archive has {_some({queue.topic for queue in queues})}")
    if args.broker_name and not any(queue.broker == args.broker_name for queue in queues):
        raise OptionError(
            f"--broker-name {args.broker_name}: the archive has {_some({queue.broker for queue in queues})}"
        )
    given: dict[str, Any] = {"topics": frozenset(args.topic), "broker": args.broker_name}
    for name, text, kind, at, ms in (
        ("--from", args.from_, START, "starts", "start_ms"),
        ("--until", args.until, END, "ends", "end_ms"),
    ):
        if not text:
            continue
        if text.lstrip().startswith("{"):
            position = _read(name, kind, text)
            if not isinstance(position, ExactOffsets):
                raise OptionError(f"{name} {text}: give a time, or offsets as JSON")
            given[at] = _of_queues(name, position.offsets, queues)
        else:
            given[ms] = _read(name, TIME, text)
    return Selection(**given)


def size_of(name: str, text: str) -> int:
    """Return the bytes given in an argument. Raises OptionError."""
    try:
        return SIZE.read(text)
    except ValueError:
        raise OptionError(f"{name} {text}: give {SIZE.accepted}") from None


def _read(name: str, kind: OptionKind[Any], text: str) -> Any:
    try:
        return kind.read(text)
    except ValueError:
        raise OptionError(f"{name} {text}: give {TIME.accepted}, or offsets as JSON") from None


def _of_queues(name: str, offsets: PerQueue, queues: list[Queue]) -> tuple[tuple[Queue, int], ...]:
    found: dict[Queue, int] = {}
    for wanted, offset in offsets:
        there = [queue for queue in queues if wanted.names(queue)]
        if not there:
            raise OptionError(f"{name}: the archive has no queue {wanted}")
        found |= dict.fromkeys(there, offset)
    return tuple(sorted(found.items()))


def _some(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
