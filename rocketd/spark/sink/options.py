"""The options of writes, each declared once.

They combine the options of Spark's Kafka sink and of rocketmq-spark. Options of Apache's client have the names used
there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from rocketd.common.names import BROKER_ONLY_TOPICS, group_fault, topic_fault
from rocketd.spark.errors import OptionError
from rocketd.spark.options import kinds
from rocketd.spark.options.connect import ConnectOptions, check_connection
from rocketd.spark.options.declare import declared, option, read_values
from rocketd.spark.options.kinds import OptionKind

AT_LEAST_ONCE: Final = "at-least-once"
TRANSACTIONAL: Final = "transactional"
EFFECTIVELY_ONCE: Final = "effectively-once"

ROUND_ROBIN: Final = "round-robin"
BY_KEY: Final = "key"
BY_COLUMN: Final = "column"

_LEAST_BATCH_BYTES: Final = 1024
_CHECKPOINT: Final = "checkpointlocation"
_OF_SPARK: Final = (_CHECKPOINT, "queryname")
"""Options that Spark adds to a stream, in lower case."""


def _id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", text.strip(), re.ASCII):
        raise ValueError("no id")
    return text.strip()


def _topic(text: str) -> str:
    if topic_fault(text.strip()) or text.strip() in BROKER_ONLY_TOPICS:
        raise ValueError("no topic")
    return text.strip()


def _group(text: str) -> str:
    if group_fault(text.strip()):
        raise ValueError("no group")
    return text.strip()


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("below 0")
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError("no rate")
    return number


def _folder(text: str) -> str:
    path = re.sub("^file:/*(?=/)", "", text.strip())
    if not path.startswith("/") or path.strip("/") == "":
        raise ValueError("no absolute path")
    return path


ID: Final = OptionKind("up to 64 letters, digits and . _ -, not beginning with a dot", _id)
TOPIC: Final = OptionKind("a topic that clients may send to: up to 127 letters, digits and % | - _", _topic)
GROUP: Final = OptionKind("up to 255 letters, digits and % | - _", _group)
WHOLE: Final = OptionKind("a whole number from 0 on", _whole)
RATE: Final = OptionKind("a number from 0 on; 0 means no limit", _rate)
FOLDER: Final = OptionKind(
    "absolute path of a folder shared by the driver and all executors; file: is the only accepted URL", _folder
)


@dataclass(frozen=True, slots=True)
class WriteOptions(ConnectOptions):
    """The checked options of a write. Secrets are left out of the repr. `stream` tells a stream from a batch."""

    stream: bool = False
    checkpoint: str = field(default="")

    topic: str = option(TOPIC, "", "Topic for all rows. Without it, each row needs the column topic.")
    delivery: str = option(
        kinds.choice(AT_LEAST_ONCE, TRANSACTIONAL, EFFECTIVELY_ONCE),
        AT_LEAST_ONCE,
        "Delivery guarantee. With at-least-once, a repeated task sends its rows again. With transactional, the rows "
        "of a batch become visible after all its tasks are done. With effectively-once, each row is sent once, also "
        "if tasks or the driver crash.",
    )
    sink_id: str = option(
        ID,
        "",
        "With effectively-once: permanent name of this writer. Two writers must not share one.",
        shown="id of the streaming query",
    )
    job_id: str = option(
        ID,
        "",
        "With effectively-once: name of this write within the sink. A later write with the same name finishes an "
        "interrupted one, and does nothing after a complete one.",
        shown="a new one for each write",
        only="batch",
    )
    staging_dir: str = option(
        FOLDER,
        "",
        "With effectively-once: folder for the rows to send, and for the ledger.",
        shown="staging below the checkpoint, if that is a folder",
    )
    queue_selector: str = option(
        kinds.choice(ROUND_ROBIN, BY_KEY, BY_COLUMN),
        ROUND_ROBIN,
        "Choice of a row's queue: in turn, by the hash of the column queue_key (or keys) like Apache's "
        "SelectMessageQueueByHash, or by the columns queue_id and broker.",
    )
    batch_bytes: int = option(
        kinds.SIZE,
        256 * 1024,
        "Approximate size of the messages sent to a queue in one request.",
        shown="256k",
    )
    compress_over: int = option(
        WHOLE,
        4096,
        "Size in bytes from which bodies are compressed with zlib. 0 means never. A compressed message is sent alone "
        "in its request.",
    )
    max_message_size: int = option(
        kinds.SIZE,
        4 * 1024 * 1024,
        "Maximum size of a message, as in the brokers' setting maxMessageSize.",
        shown="4m",
    )
    send_timeout: float = option(kinds.DURATION, 10.0, "Timeout of a send.", shown="10s")
    retries: int = option(
        WHOLE,
        10,
        "Number of further attempts of a task after a temporary refusal or a missing answer. The pauses grow to 5 s: "
        "ten attempts outlast the restart of a broker.",
    )
    producer_group: str = option(GROUP, "rocketd-spark", "Producer group of the writer.")
    messages_per_second: float = option(
        RATE,
        0.0,
        "Maximum number of messages per second. It applies to each task; with effectively-once, to the whole write.",
        shown="no limit",
    )
    lock_timeout: float = option(
        kinds.DURATION,
        60.0,
        "With effectively-once: time to wait for another process writing for this sink.",
        shown="60s",
    )

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool = False) -> Self:
        """Parse the options passed by Spark. Raises OptionError with one clear sentence for the first problem."""
        what = "a streaming write" if stream else "a batch write"
        own = {name.lower(): text for name, text in given.items()}
        checkpoint = own.get(_CHECKPOINT, "") if stream else ""
        mine = {name: text for name, text in given.items() if not (stream and name.lower() in _OF_SPARK)}
        values = read_values(WRITE_OPTIONS, mine, what, elsewhere=_elsewhere)
        for one in WRITE_OPTIONS:
            if one.field in values and one.only and (one.only == "stream") is not stream:
                raise OptionError(f"option {one.name} is not for {what}")
        options = cls(**values, stream=stream, checkpoint=checkpoint)
        options._check(values)
        return options

    def _check(self, values: Mapping[str, Any]) -> None:
        if not self.namesrv:
            raise OptionError(f"option namesrv must be given; accepted is {kinds.ADDRESSES.accepted}")
        check_connection(values)
        if not _LEAST_BATCH_BYTES <= self.batch_bytes <= self.max_message_size:
            raise OptionError(
                f"option batchBytes is {self.batch_bytes}; accepted is {_LEAST_BATCH_BYTES} to maxMessageSize, which is "
                f"{self.max_message_size}"
            )
        if self.delivery == EFFECTIVELY_ONCE:
            if not self.stream and not self.sink_id:
                raise OptionError(
                    f"option sinkId must be given for delivery=effectively-once; accepted is {ID.accepted}"
                )
            self.staging  # noqa: B018 - raises
            return
        for name, shown in _FOR_EFFECTIVELY_ONCE.items():
            if name in values:
                raise OptionError(f"option {shown} is for delivery=effectively-once, and this is {self.delivery}")

    @property
    def staging(self) -> str:
        """The staging folder. Raises OptionError if none is set."""
        if self.staging_dir:
            return self.staging_dir
        if self.checkpoint:
            try:
                return _folder(self.checkpoint).rstrip("/") + "/staging"
            except ValueError:
                pass
        raise OptionError(
            f"option stagingDir must be given for delivery=effectively-once; accepted is {FOLDER.accepted}"
        )


WRITE_OPTIONS: Final = declared(WriteOptions)
"""All options of writes, in the order of the reference."""

_FOR_EFFECTIVELY_ONCE: Final = {
    one.field: one.name for one in WRITE_OPTIONS if one.field in ("sink_id", "job_id", "staging_dir", "lock_timeout")
}


def _elsewhere(name: str) -> str:
    known = {
        "path": "; save() takes no path: name the topic by option topic",
        "topics": "; did you mean topic?",
        "nameserver": "; did you mean namesrv?",
        "group": "; did you mean producerGroup?",
        "tag": "; tags are a column",
        "tags": "; tags are a column",
        "keys": "; keys are a column",
    }
    return known.get(name.lower(), "")
