"""The target of a job's messages: a topic, with each message sent once, or an archive of rows."""

import contextlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from rocketd.spark.archive.archive import Archive
from rocketd.spark.archive.format.layout import settings_path
from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.running.options import Alternatives, Arguments, Section, number, option
from rocketd.spark.options.connect import ConnectOptions
from rocketd.spark.options.declare import declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECT_NAMES = tuple(one.name for one in declared(ConnectOptions))
"""The connection options, which reads and writes share."""

_RUN_FILE = "run"


def target_section() -> Section:
    """Return the options for a topic or an archive as the target."""
    return Section(
        "target",
        [
            option("--to-topic", metavar="NAME", help="topic to send to; each message is sent once"),
            option("--to-archive", metavar="DIR", help="archive to write to, as rows"),
            *target_cluster_options(),
            option(
                "--state",
                metavar="DIR",
                help="with --to-topic: directory of the progress; a new run continues a killed one",
            ),
        ],
        [Alternatives(("--to-topic", "--to-archive"), required=True)],
    )


def target_cluster_options() -> list[click.Option]:
    """Return the options for the target cluster, if it is not the cluster of the source."""
    return [
        option("--to-namesrv", metavar="HOST:PORT", help="name servers of the target (default: those of the source)"),
        option("--to-credentials", metavar="FILE", help="account file for the target (default: that of the source)"),
        option("--rate", type=number, metavar="N", help="maximum number of messages sent per second"),
    ]


def cluster_options(args: Arguments, source: Mapping[str, str]) -> dict[str, str]:
    """Return write options for the target cluster. Raises OptionError if no cluster is named."""
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
    """The target of rows: the write options, and the directory of a resumable run, "" for archives."""

    description: str
    options: Mapping[str, str] = field(repr=False)
    state: str = ""

    @classmethod
    def of(cls, job: str, args: Arguments, source: Mapping[str, str]) -> "Target":
        """Return the target of the arguments of `target_section`. Raises OptionError for contradicting arguments."""
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
        """Write a frame once. An interrupted write is finished by the next call with the same state."""
        options = {**self.options, **more}
        if self.state:
            options["jobId"] = _run_id(self.state)
        frame.write.format("rocketd").options(**options).mode("append").save()
        if self.state:
            with contextlib.suppress(FileNotFoundError):  # another process finished the same run
                os.unlink(os.path.join(self.state, _RUN_FILE))


def _run_id(state: str) -> str:
    """Return the id of the interrupted run, or a new id, which is kept until the run is done."""
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
