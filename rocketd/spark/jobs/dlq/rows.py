"""Dead letters and retried messages as rows: their group, their origin, and the message to send back.

All work is done in Spark's expressions over the columns of messages, so that no row passes through Python.
"""

from typing import TYPE_CHECKING

from rocketd.common.message_properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rocketd.common.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, retry_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

READ_COLUMNS = (
    "topic", "broker", "queue_id", "queue_offset", "store_time", "reconsume_times", "msg_id", "uniq_key", "tags", "keys",
    "flag", "properties", "body",
)  # fmt: skip
GROUP_COLUMNS = tuple(name for name in READ_COLUMNS if name not in ("flag", "body"))

DEAD, RETRIED = "dead", "retried"

_PREFIX = f"^({DLQ_PREFIX}|{RETRY_PREFIX})"


def topics_of(group: str, *, retried: bool) -> list[str]:
    """Return the topics of a group's dead letters, and of its retries if requested."""
    return [dlq_topic(group), *([retry_topic(group)] if retried else [])]


def all_topics(*, retried: bool) -> str:
    """Return a pattern for these topics of all groups."""
    return f"({DLQ_PREFIX}|{RETRY_PREFIX}).+" if retried else f"{DLQ_PREFIX}.+"


def _property(name: str) -> "Column":
    """Return a property as a column, null if it is empty."""
    from pyspark.sql import functions as f

    return f.nullif(f.col("properties")[name], f.lit(""))


def origin_id() -> "Column":
    """Return the id of each message in its original topic; if unknown, its present id."""
    from pyspark.sql import functions as f

    return f.coalesce(_property(ORIGIN_MESSAGE_ID), f.col("msg_id"))


def facts(frame: "DataFrame", cause: str) -> "DataFrame":
    """Return the columns for grouping: kind, group, origin, cause and id, with store time and number of retries.

    `origin` is the topic that a message was sent to, null if unknown. `cause` is the property of that name.
    """
    from pyspark.sql import functions as f

    return frame.select(
        f.when(f.startswith("topic", f.lit(DLQ_PREFIX)), DEAD).otherwise(RETRIED).alias("kind"),
        f.regexp_replace("topic", _PREFIX, "").alias("group"),
        _property(RETRY_TOPIC).alias("origin"),
        _property(cause).alias("cause"),
        origin_id().alias("id"),
        "store_time",
        "reconsume_times",
    )


def redriven(frame: "DataFrame", topic: str, *, to_group: bool) -> "DataFrame":
    """Return the messages to send for dead letters: to a topic, or with "" to their original topics.

    `to_group` sends them to the retry topic, which only their group reads. Without `topic`, messages of unknown origin
    are left out. Properties name the original message, and contain no delay, so that messages go out at once.
    """
    from pyspark.sql import functions as f

    if topic:
        target = f.lit(topic)
    elif to_group:
        target = f.when(_property(RETRY_TOPIC).isNotNull(), f.regexp_replace("topic", _PREFIX, RETRY_PREFIX))
    else:
        target = _property(RETRY_TOPIC)
    kept = f.map_filter("properties", lambda name, _: ~name.isin(DELAY, ORIGIN_MESSAGE_ID))
    origin = f.create_map(f.lit(ORIGIN_MESSAGE_ID), origin_id())
    return frame.select(
        target.alias("topic"),
        *("uniq_key", "tags", "keys", "flag"),
        f.map_concat(f.coalesce(kept, f.create_map().cast("map<string,string>")), origin).alias("properties"),
        "body",
    ).where(f.col("topic").isNotNull())
