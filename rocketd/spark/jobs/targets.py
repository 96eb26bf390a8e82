"""Where a job puts the messages that it makes: a topic, each message once, or an archive of rows."""

import argparse
import contextlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.layout import settings_path
from rocketd.spark.errors import OptionError
from rocketd.spark.options.connect import ConnectOptions
from rocketd.spark.options.declare import declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECT_NAMES = tuple(one.name for one in declared(ConnectOptions))
"""The options that say how a cluster is reached: reads and writes share them."""

_RUN_FILE = "run"


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Topic or archive, and what goes with them."""
    group = parser.add_argument_group("target")
    where = group.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-topic", metavar="NAME", help="send to this topic, each message once")
    where.add_argument("--to-archive", metavar="DIR", help="write to this archive, as rows")
    add_cluster_arguments(group)
    group.add_argument(
        "--state",
        metavar="DIR",
        help="with --to-topic: keeps what is to be sent and what was; a run that was killed goes on from it",
    )


def add_cluster_arguments(group: argparse._ActionsContainer) -> None:
    """The cluster that is sent to, where it is not the one that is read."""
    group.add_argument("--to-namesrv", metavar="HOST:PORT", help="its name servers (default: those of the source)")
    group.add_argument("--to-credentials", metavar="FILE", help="account for it (default: that of the source)")
    group.add_argument("--rate", type=float, metavar="N", help="send at most so many messages a second")


def cluster_options(args: argparse.Namespace, source: Mapping[str, str]) -> dict[str, str]:
    """Write options for the cluster that is sent to. Raises OptionError when none is named."""
    options = {name: value for name, value in source.items() if name in CONNECT_NAMES}
    if args.to_namesrv:
        options["namesrv"] = args.to_namesrv
    if args.to_credentials:
        options["credentialsFile"] = args.to_credentials
    if "namesrv" not in options:
        raise OptionError("--to-namesrv must say where to send: the source names no cluster")
    if args.rate is not None:
        options["messagesPerSecond"] = str(args.rate)
    return options


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: the write options, and the directory of a run that can be gone on with, "" for archives."""

    description: str
    options: Mapping[str, str] = field(repr=False)
    state: str = ""

    @classmethod
    def of(cls, job: str, args: argparse.Namespace, source: Mapping[str, str]) -> "Target":
        """The target of the arguments of `add_target_arguments`. Raises OptionError for what does not go together."""
        if args.to_archive:
            for name in ("to_namesrv", "to_credentials", "rate", "state"):
                if getattr(args, name) is not None:
                    raise OptionError(f"--{name.replace('_', '-')} goes with --to-topic, and nothing is sent here")
            directory = os.path.abspath(args.to_archive)
            if os.path.exists(settings_path(directory)) and Archive.open(directory).commits:
                raise OptionError(
                    f"--to-archive {directory} has rows already, and this job makes a whole one: the run that wrote them "
                    "was done, even if it was killed then; use another directory to make it anew"
                )
            return cls(f"archive {directory}", {"archive": directory})
        if not args.state:
            raise OptionError("--state must name a directory, new or of the run that is to be gone on with")
        state = os.path.abspath(args.state)
        options = {
            **cluster_options(args, source),
            "topic": args.to_topic,
            "delivery": "effectively-once",
            "stagingDir": state,
            "sinkId": job,
        }
        return cls(f"topic {args.to_topic}", options, state)

    def write(self, frame: "DataFrame", **more: str) -> None:
        """Write a frame once. One that was cut short is finished by the next call with the same state."""
        options = {**self.options, **more}
        if self.state:
            options["jobId"] = _run_id(self.state)
        frame.write.format("rocketd").options(**options).mode("append").save()
        if self.state:
            with contextlib.suppress(FileNotFoundError):  # of another process that did the same run
                os.unlink(os.path.join(self.state, _RUN_FILE))


def _run_id(state: str) -> str:
    """The id of the run that was cut short, or that of a new one, which is kept until it is done."""
    os.makedirs(state, exist_ok=True)
    path = os.path.join(state, _RUN_FILE)
    try:
        with open(path, encoding="ascii") as file:
            found = file.read().strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = uuid.uuid4().hex
        temporary = f"{path}.new"
        with open(temporary, "w", encoding="ascii") as file:
            file.write(found)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    return found
