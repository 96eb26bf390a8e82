"""The options of reads, each declared once.

They combine the options of Spark's Kafka source, of rocketmq-spark and of rocketmq-flink. Shared options have Spark's
names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from rocketd.spark.errors import OptionError
from rocketd.spark.options import kinds, positions
from rocketd.spark.options.connect import ConnectOptions, check_connection
from rocketd.spark.options.declare import declared, option, read_values
from rocketd.spark.options.positions import (
    Earliest,
    ExactOffsets,
    Latest,
    PerQueue,
    Position,
    QueueName,
    SinceTime,
    SinceTimes,
)
from rocketd.spark.ranges import ReadPlan

_DEFAULT_BATCH_BYTES: Final = 8 * 1024 * 1024
_MAX_BATCH_BYTES: Final = 1024**3


@dataclass(frozen=True, slots=True)
class ReadOptions(ConnectOptions):
    """The checked options of a read. Secrets are left out of the repr.

    `stream` tells a stream from a batch: some options are limited to one of them, and defaults differ.
    """

    stream: bool = False

    store: str = option(
        kinds.PATH,
        "",
        "Directory of a broker's store (its storePathRootDir). It is read in place of a cluster. All executors must "
        "see it.",
    )
    commit_log: str = option(
        kinds.PATH,
        "",
        "Directory of the commit log, or several separated by commas, if it is outside the store "
        "(storePathCommitLog, readOnlyCommitLogStorePaths).",
    )
    broker_name: str = option(
        kinds.TEXT,
        "",
        "With store: name of the broker, because the files do not have it. With namesrv: the only broker to read.",
        shown="broker-a with store, all with namesrv",
    )
    subscribe: tuple[str, ...] = option(kinds.NAMES, (), "Topics to read.")
    subscribe_pattern: str = option(
        kinds.PATTERN,
        "",
        "Pattern of the topics to read. A stream also reads matching topics created later.",
    )
    assign: tuple[QueueName, ...] = option(positions.ASSIGNED, (), "Queues to read.")
    starting_offsets: Position | None = option(
        positions.START,
        None,
        "First offsets to read. A queue without an offset of the group starts at the earliest; a group without any offset "
        "is refused. A stream with a checkpoint continues there and ignores this option.",
        shown="earliest, in a stream latest",
    )
    ending_offsets: Position | None = option(
        positions.END,
        None,
        "End offsets: the offset after the last message to read.",
        shown="latest",
        only="batch",
    )
    starting_timestamp: int | None = option(
        kinds.TIME,
        None,
        "First store time to read. Each queue starts at its first message stored at or after this time, exact to the "
        "millisecond. If all messages are newer, it starts at the first existing one. If all are older, "
        "timestampStrategy decides.",
    )
    ending_timestamp: int | None = option(
        kinds.TIME,
        None,
        "End of the store times to read. Each queue ends before its first message stored at or after this time. If "
        "all messages are newer, none is read. If all are older, all messages existing at planning are read.",
        only="batch",
    )
    starting_offsets_by_timestamp: PerQueue = option(
        positions.TIMES,
        (),
        "First store time of each queue, as in startingTimestamp.",
    )
    ending_offsets_by_timestamp: PerQueue = option(
        positions.TIMES,
        (),
        "End of the store times of each queue, as in endingTimestamp.",
        only="batch",
    )
    timestamp_strategy: str = option(
        kinds.choice("latest", "error"),
        "latest",
        "Start of a queue without messages since the starting time: latest starts after its last message, error "
        "fails. A stream started there reads all later messages, even if the starting time is in the future.",
    )
    sub_expression: frozenset[str] | None = option(
        kinds.TAGS,
        None,
        "Tags of the messages to read. A broker leaves out the others.",
        shown="*",
    )
    sql92: str = option(kinds.SQL92, "", "Condition over the properties of the messages to read.")
    keys: tuple[str, ...] = option(
        kinds.NAMES,
        (),
        "Keys of the messages to read. A message needs one of them.",
    )
    max_rows: int | None = option(
        kinds.COUNT,
        None,
        "Maximum number of messages, from the start of the queues. Each queue gets a share in proportion to its "
        "length. Messages count before tags, sql92, keys and WHERE filter them.",
        only="batch",
    )
    max_offsets_per_trigger: int | None = option(
        kinds.COUNT,
        None,
        "Maximum number of messages in a micro-batch. Each queue gets a share in proportion to its backlog.",
        only="stream",
    )
    max_bytes_per_trigger: int | None = option(
        kinds.SIZE,
        None,
        "Approximate maximum size of the records in a micro-batch. A micro-batch has at least one message.",
        only="stream",
    )
    min_offsets_per_trigger: int | None = option(
        kinds.COUNT,
        None,
        "Number of new messages to wait for before a micro-batch. maxTriggerDelay limits the time. A run with "
        "trigger(availableNow=True) does not wait.",
        only="stream",
    )
    max_trigger_delay: float = option(
        kinds.DURATION,
        900.0,
        "Maximum time for which minOffsetsPerTrigger delays messages.",
        shown="15m",
        only="stream",
    )
    min_partitions: int | None = option(
        kinds.COUNT,
        None,
        "Minimum number of tasks, if there are as many messages.",
        shown="chosen by size",
    )
    max_bytes_per_partition: int = option(
        kinds.SIZE,
        512 * 1024 * 1024,
        "Approximate maximum size of the records read by one task.",
        shown="512m",
    )
    fail_on_data_loss: bool = option(
        kinds.FLAG,
        True,
        "Whether the read fails if messages of its range are deleted. If false, it warns with the lost ranges, and "
        "continues.",
    )
    decompress: bool = option(kinds.FLAG, True, "Whether compressed bodies are decompressed.")
    verify_crc: bool = option(kinds.FLAG, False, "Whether the CRC of each body is checked.")
    commit_group: str = option(
        kinds.TEXT,
        "",
        "Consumer group that gets the finished offsets, for tools that show the lag. A read never starts from them.",
        only="stream",
    )
    batch_bytes: int = option(
        kinds.SIZE,
        _DEFAULT_BATCH_BYTES,
        "Size of the records in one Arrow batch, at most 1g.",
        shown="8m",
    )

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool = False) -> Self:
        """Parse the options passed by Spark. Raises OptionError with one clear sentence for the first problem."""
        what = "a streaming read" if stream else "a batch read"
        values = read_values(READ_OPTIONS, given, what, elsewhere=_elsewhere)
        for one in READ_OPTIONS:
            if one.field in values and one.only and (one.only == "stream") is not stream:
                raise OptionError(f"option {one.name} is for {_PLURAL[one.only]} only, and this is {what}")
        _check_together(values, stream)
        return cls(**values, stream=stream)

    @staticmethod
    def check(given: Mapping[str, str]) -> None:
        """Raise OptionError for options that are wrong in batches and streams alike."""
        _check_together(read_values(READ_OPTIONS, given, "a read", elsewhere=_elsewhere), stream=True)

    @property
    def starting(self) -> Position:
        """The start position, from whichever option sets it."""
        if self.starting_timestamp is not None:
            return SinceTime(self.starting_timestamp)
        if self.starting_offsets_by_timestamp:
            return SinceTimes(self.starting_offsets_by_timestamp)
        return self.starting_offsets or (Latest() if self.stream else Earliest())

    @property
    def ending(self) -> Position:
        """The end position, from whichever option sets it."""
        if self.ending_timestamp is not None:
            return SinceTime(self.ending_timestamp)
        if self.ending_offsets_by_timestamp:
            return SinceTimes(self.ending_offsets_by_timestamp)
        return self.ending_offsets or Latest()

    def read_plan(self, columns: tuple[str, ...]) -> ReadPlan:
        """Return the part of the options that a task needs."""
        return ReadPlan(columns, self.decompress, self.verify_crc, self.batch_bytes, self.sub_expression, self.sql92)


READ_OPTIONS: Final = declared(ReadOptions)
"""All options of reads, in the order of the reference."""

_PLURAL: Final = {"batch": "batch reads", "stream": "streams"}
_ONE_OF: Final = (
    ("subscribe", "subscribe_pattern", "assign"),
    ("store", "namesrv"),
    ("starting_offsets", "starting_timestamp", "starting_offsets_by_timestamp"),
    ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp"),
    ("sub_expression", "sql92"),
)
_CLUSTER_ONLY: Final = (*(one.field for one in declared(ConnectOptions)), "commit_group")
_NAMES: Final = {one.field: one.name for one in READ_OPTIONS}


def _check_together(values: Mapping[str, Any], stream: bool) -> None:
    """Raise OptionError for contradicting options, and for missing required options."""
    for group in _ONE_OF:
        given = [_NAMES[name] for name in group if name in values]
        if len(given) > 1:
            raise OptionError(f"options {' and '.join(given)} contradict each other: give one of them")
    for group in _ONE_OF[:2]:
        if not any(name in values for name in group):
            names = ", ".join(_NAMES[name] for name in group)
            raise OptionError(f"one of the options {names} must be given")
    if "store" in values:
        for name in _CLUSTER_ONLY:
            if name in values:
                raise OptionError(f"option {_NAMES[name]} is for a cluster (namesrv), and this reads a store's files")
    elif "commit_log" in values:
        raise OptionError("option commitLog goes with store, and this reads a cluster")
    if "max_trigger_delay" in values and "min_offsets_per_trigger" not in values:
        raise OptionError("option maxTriggerDelay needs minOffsetsPerTrigger: give that as well")
    maximum, minimum = values.get("max_offsets_per_trigger"), values.get("min_offsets_per_trigger")
    if maximum is not None and minimum is not None and minimum > maximum:
        raise OptionError(
            f"option minOffsetsPerTrigger is {minimum}, more than maxOffsetsPerTrigger, which is {maximum}"
        )
    if values.get("batch_bytes", 0) > _MAX_BATCH_BYTES:
        raise OptionError(f"option batchBytes is {values['batch_bytes']}; accepted is at most {_MAX_BATCH_BYTES}")
    if not stream and isinstance(values.get("starting_offsets"), Latest):
        raise OptionError("option startingOffsets is 'latest', so a batch read has nothing to read")
    _check_times(values)
    check_connection(values)


def _check_times(values: Mapping[str, Any]) -> None:
    start, end = values.get("starting_timestamp"), values.get("ending_timestamp")
    if start is not None and end is not None and start > end:
        raise OptionError(f"option startingTimestamp is {start}, which is after endingTimestamp, {end} (ms)")
    start, end = values.get("starting_offsets"), values.get("ending_offsets")
    if isinstance(start, ExactOffsets) and isinstance(end, ExactOffsets):
        ends = dict(end.offsets)
        for name, offset in start.offsets:
            if 0 <= ends.get(name, -1) < offset:
                raise OptionError(
                    f"option startingOffsets starts {name} at {offset}, behind its end in endingOffsets, {ends[name]}"
                )


def _elsewhere(name: str) -> str:
    known = {
        "path": "; load() takes no path: name the store's directory by option store",
        "topic": "; did you mean subscribe?",
        "topics": "; did you mean subscribe?",
        "nameserver": "; did you mean namesrv?",
        "tags": "; did you mean subExpression?",
    }
    return known.get(name.lower(), "")
