"""What a read may be told: each option is declared here, once.

Answers to the options of Spark's Kafka source, of rocketmq-spark and of rocketmq-flink, under Spark's names where both
have one.
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
_MOST_BATCH_BYTES: Final = 1024**3


@dataclass(frozen=True, slots=True)
class ReadOptions(ConnectOptions):
    """The options of a read, checked. The values of secrets are in no repr.

    `stream` says which of both they are for: some are for one alone, and defaults differ.
    """

    stream: bool = False

    store: str = option(
        kinds.PATH,
        "",
        "Directory of a broker's store (its storePathRootDir), which is read in place of a cluster. "
        "All executors must see it.",
    )
    commit_log: str = option(
        kinds.PATH,
        "",
        "Directory of the commit log, or several separated by commas, where it is not below the store "
        "(storePathCommitLog, readOnlyCommitLogStorePaths).",
    )
    broker_name: str = option(
        kinds.TEXT,
        "",
        "With store: the broker's name, which the files do not hold. With namesrv: only this broker is read.",
        shown="broker-a with store, all with namesrv",
    )
    subscribe: tuple[str, ...] = option(kinds.NAMES, (), "Topics to read.")
    subscribe_pattern: str = option(
        kinds.PATTERN, "", "Read each topic whose whole name matches. A stream takes up new ones as they come."
    )
    assign: tuple[QueueName, ...] = option(positions.ASSIGNED, (), "Queues to read.")
    starting_offsets: Position | None = option(
        positions.START,
        None,
        "Where to start. A group that has no offset for a queue starts it at the earliest. "
        "A stream that goes on from its checkpoint does not ask.",
        shown="earliest, in a stream latest",
    )
    ending_offsets: Position | None = option(
        positions.END, None, "Where to end: the offset behind the last one read.", shown="latest", only="batch"
    )
    starting_timestamp: int | None = option(
        kinds.TIME,
        None,
        "Start each queue at its first message that was stored at or after this time, to the millisecond: a broker's own "
        "search may name another message near it, and is only where ours begins. Where all messages are newer, that is "
        "the first that is still there; where all are older, timestampStrategy decides.",
    )
    ending_timestamp: int | None = option(
        kinds.TIME,
        None,
        "End each queue before its first message that was stored at or after this time, as exactly. Where all messages are "
        "newer, none is read; where all are older, all that are there when the read is planned.",
        only="batch",
    )
    starting_offsets_by_timestamp: PerQueue = option(
        positions.TIMES, (), "The same as startingTimestamp, with a time for each queue."
    )
    ending_offsets_by_timestamp: PerQueue = option(
        positions.TIMES, (), "The same as endingTimestamp, with a time for each queue.", only="batch"
    )
    timestamp_strategy: str = option(
        kinds.choice("latest", "error"),
        "latest",
        "What a starting time does with a queue that has no message since then: start behind its last one, or fail. A "
        "stream that started there reads all that comes, also what is stored before a time that is still to come.",
    )
    sub_expression: frozenset[str] | None = option(
        kinds.TAGS, None, "Read only messages with one of these tags; a broker leaves the others out.", shown="*"
    )
    sql92: str = option(kinds.SQL92, "", "Read only messages whose properties make this true.")
    keys: tuple[str, ...] = option(kinds.NAMES, (), "Read only messages that have one of these keys.")
    max_rows: int | None = option(
        kinds.COUNT,
        None,
        "Read at most so many messages, from the start of the queues, each with a share like its length. "
        "Counted before tags, sql92, keys and WHERE leave any out.",
        only="batch",
    )
    max_offsets_per_trigger: int | None = option(
        kinds.COUNT,
        None,
        "At most so many messages in a micro-batch, each queue with a share like its backlog.",
        only="stream",
    )
    max_bytes_per_trigger: int | None = option(
        kinds.SIZE,
        None,
        "At most about so many bytes of records in a micro-batch; one message goes always.",
        only="stream",
    )
    min_offsets_per_trigger: int | None = option(
        kinds.COUNT,
        None,
        "Wait until there are so many new messages, or until maxTriggerDelay is over. "
        "A run with trigger(availableNow=True) does not wait.",
        only="stream",
    )
    max_trigger_delay: float = option(
        kinds.DURATION, 900.0, "How long minOffsetsPerTrigger may hold back what is there.", shown="15m", only="stream"
    )
    min_partitions: int | None = option(
        kinds.COUNT, None, "At least so many tasks, if there are as many messages.", shown="as many as pay"
    )
    max_bytes_per_partition: int = option(
        kinds.SIZE, 512 * 1024 * 1024, "A task reads at most about so many bytes of records.", shown="512m"
    )
    fail_on_data_loss: bool = option(
        kinds.FLAG, True, "Fail when messages of the wanted range are gone; else warn, naming the ranges, and go on."
    )
    decompress: bool = option(kinds.FLAG, True, "Decompress bodies that were sent compressed.")
    verify_crc: bool = option(kinds.FLAG, False, "Check the CRC of every body.")
    commit_group: str = option(
        kinds.TEXT,
        "",
        "Commit what is done as the offsets of this consumer group, for tools that show its lag. "
        "Never used to start again.",
        only="stream",
    )
    batch_bytes: int = option(
        kinds.SIZE, _DEFAULT_BATCH_BYTES, "Bytes of records in one Arrow batch, at most 1g.", shown="8m"
    )

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool = False) -> Self:
        """Options from what Spark hands over. Raises OptionError, one clear sentence, for whatever is wrong."""
        what = "a streaming read" if stream else "a batch read"
        values = read_values(READ_OPTIONS, given, what, elsewhere=_elsewhere)
        for one in READ_OPTIONS:
            if one.field in values and one.only and (one.only == "stream") is not stream:
                raise OptionError(f"option {one.name} is for {_PLURAL[one.only]} only, and this is {what}")
        _check_together(values, stream)
        return cls(**values, stream=stream)

    @staticmethod
    def check(given: Mapping[str, str]) -> None:
        """Raises OptionError for what is wrong with options of a batch and of a stream alike."""
        _check_together(read_values(READ_OPTIONS, given, "a read", elsewhere=_elsewhere), stream=True)

    @property
    def starting(self) -> Position:
        """Where to start, whichever option says so."""
        if self.starting_timestamp is not None:
            return SinceTime(self.starting_timestamp)
        if self.starting_offsets_by_timestamp:
            return SinceTimes(self.starting_offsets_by_timestamp)
        return self.starting_offsets or (Latest() if self.stream else Earliest())

    @property
    def ending(self) -> Position:
        """Where to end, whichever option says so."""
        if self.ending_timestamp is not None:
            return SinceTime(self.ending_timestamp)
        if self.ending_offsets_by_timestamp:
            return SinceTimes(self.ending_offsets_by_timestamp)
        return self.ending_offsets or Latest()

    def read_plan(self, columns: tuple[str, ...]) -> ReadPlan:
        """What a task needs to know."""
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
    """Options that contradict each other, and those of which one must be there."""
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
        raise OptionError("option maxTriggerDelay bounds what minOffsetsPerTrigger holds back: give that as well")
    most, least = values.get("max_offsets_per_trigger"), values.get("min_offsets_per_trigger")
    if most is not None and least is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, which is {most}")
    if values.get("batch_bytes", 0) > _MOST_BATCH_BYTES:
        raise OptionError(f"option batchBytes is {values['batch_bytes']}; accepted is at most {_MOST_BATCH_BYTES}")
    if not stream and isinstance(values.get("starting_offsets"), Latest):
        raise OptionError("option startingOffsets is 'latest', where a batch read has nothing left to read")
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
