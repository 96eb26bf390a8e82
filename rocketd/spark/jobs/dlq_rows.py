"""Dead letters and retried messages as rows: whose they are, where they came from, and how they go back there.

Pure functions over Arrow batches, done in Spark's tasks. Imports neither PySpark nor Twisted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, retry_topic
from rocketd.common.properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC

READ_COLUMNS = (
    "topic", "broker", "queue_id", "queue_offset", "store_time", "reconsume_times", "msg_id", "uniq_key", "tags", "keys",
    "flag", "properties", "body",
)  # fmt: skip
GROUP_COLUMNS = tuple(name for name in READ_COLUMNS if name not in ("flag", "body"))

FACTS_DDL = (
    "kind string, group string, origin string, cause string, id string, store_time timestamp, reconsume_times int"
)
SENT_DDL = (
    "topic string, uniq_key string, tags string, keys string, flag int, properties map<string,string>, body binary"
)

DEAD, RETRIED = "dead", "retried"


def topics_of(group: str, *, retried: bool) -> list[str]:
    """Where a group's dead letters are, and what it is to try again."""
    return [dlq_topic(group), *([retry_topic(group)] if retried else [])]


def all_topics(*, retried: bool) -> str:
    """A pattern for those of all groups."""
    return f"({DLQ_PREFIX}|{RETRY_PREFIX}).+" if retried else f"{DLQ_PREFIX}.+"


def origin_topic(properties: pa.MapArray) -> pa.StringArray:
    """The topic each message was sent to, null where nobody knows."""
    return _property(properties, RETRY_TOPIC)


def origin_id(batch: pa.RecordBatch) -> pa.StringArray:
    """The id each message had in its own topic; where that is not noted, its id where it is now."""
    noted = _property(batch.column("properties"), ORIGIN_MESSAGE_ID)
    return pc.coalesce(noted, batch.column("msg_id"))


def _property(properties: pa.MapArray, name: str) -> pa.StringArray:
    found = pc.map_lookup(properties, pa.scalar(name), "last")
    return pc.if_else(pc.equal(pc.binary_length(found), 0), pa.scalar(None, pa.string()), found)


@dataclass(frozen=True, slots=True)
class Facts:
    """Makes of messages what they are grouped by. `cause` is the property that tells why a message failed."""

    cause: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each message, with the columns of FACTS_DDL."""
        for batch in batches:
            yield self.of(batch)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of one batch."""
        topic, properties = batch.column("topic"), batch.column("properties")
        dead = pc.starts_with(topic, DLQ_PREFIX)
        prefix = f"^({DLQ_PREFIX}|{RETRY_PREFIX})"
        return pa.RecordBatch.from_arrays(
            [
                pc.if_else(dead, DEAD, RETRIED),
                pc.replace_substring_regex(topic, prefix, ""),
                origin_topic(properties),
                _property(properties, self.cause),
                origin_id(batch),
                batch.column("store_time"),
                batch.column("reconsume_times"),
            ],
            names=["kind", "group", "origin", "cause", "id", "store_time", "reconsume_times"],
        )


@dataclass(frozen=True, slots=True)
class Redriven:
    """Makes of dead letters the messages to send: to `topic`, or to that which each one came from.

    `to_group` sends them to the topic that only their own group reads again. Those of which nobody knows where they came
    from are left out.
    """

    topic: str = ""
    to_group: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages, with the columns of SENT_DDL."""
        for batch in batches:
            yield self.of(batch)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of one batch."""
        properties = batch.column("properties")
        if self.topic:
            topic: pa.Array = pa.repeat(pa.scalar(self.topic, pa.string()), batch.num_rows)
        elif self.to_group:
            topic = pc.replace_substring_regex(batch.column("topic"), f"^({DLQ_PREFIX}|{RETRY_PREFIX})", RETRY_PREFIX)
            topic = pc.if_else(pc.is_null(origin_topic(properties)), pa.scalar(None, pa.string()), topic)
        else:
            topic = origin_topic(properties)
        table = pa.RecordBatch.from_arrays(
            [
                topic,
                *(batch.column(name) for name in ("uniq_key", "tags", "keys", "flag")),
                _with_origin(properties, origin_id(batch)),
                batch.column("body"),
            ],
            names=["topic", "uniq_key", "tags", "keys", "flag", "properties", "body"],
        )
        return table.filter(pc.is_valid(topic))


def _with_origin(properties: pa.MapArray, ids: pa.StringArray) -> pa.MapArray:
    """Properties that name the original message, and no delay: they are to go out at once."""
    rows = []
    for found, origin in zip(properties.to_pylist(), ids.to_pylist(), strict=True):
        kept = dict(found or ())
        kept.pop(DELAY, None)
        kept[ORIGIN_MESSAGE_ID] = origin
        rows.append(list(kept.items()))
    return pa.array(rows, properties.type)
