"""The arguments that jobs which read an archive have in common: which archive, and which of its messages."""

import argparse
from typing import Any

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.selection import Selection
from rocketd.spark.errors import OptionError
from rocketd.spark.options.kinds import SIZE, TIME, Kind
from rocketd.spark.options.positions import END, START, ExactOffsets, PerQueue
from rocketd.spark.ranges import Queue


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    """The archive, and what of it."""
    group = parser.add_argument_group("archive")
    group.add_argument("--archive", metavar="DIR", required=True, help="directory of the archive")
    group.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this topic; repeatable")
    group.add_argument("--broker-name", default="", metavar="NAME", help="only what was archived of this broker")
    group.add_argument("--from", dest="from_", metavar="WHERE", help="a store time, or first offsets as JSON")
    group.add_argument("--until", metavar="WHERE", help="a store time, or ends as JSON")


def selection_of(args: argparse.Namespace, archive: Archive) -> Selection:
    """What the arguments select of an archive. Raises OptionError for topics, brokers or queues that it does not have."""
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
    """Bytes that an argument tells. Raises OptionError."""
    try:
        return SIZE.read(text)
    except ValueError:
        raise OptionError(f"{name} {text}: give {SIZE.accepted}") from None


def _read(name: str, kind: Kind[Any], text: str) -> Any:
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
