"""``rocketd spark compact``: the newest message of each key, written to a new topic or an archive.

Within a queue the offset decides, not the time: clocks of producers and brokers may go back, offsets do not. A key
should be in one queue. If it is in several, the newest messages of the queues are compared by store time, and the
report says so.
"""

import time
from typing import TYPE_CHECKING, Any

from rocketd.spark.errors import OptionError
from rocketd.spark.jobs.running.arguments import check_archive_arguments, source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.frames import archive_frame, frozen_options, message_frame
from rocketd.spark.jobs.running.options import Arguments, Section, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.jobs.running.targets import Target, target_section
from rocketd.spark.options.kinds import DURATION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = (
    "topic", "broker", "queue_id", "queue_offset", "flag", "born_time", "store_time", "uniq_key", "tags", "keys",
    "properties", "body",
)  # fmt: skip
_KEY_COLUMNS = ("broker", "topic", "queue_id", "queue_offset", "store_time", "keys", "tags", "uniq_key", "properties")
_PLACE = ["topic", "broker", "queue_id", "queue_offset"]
_PLAIN_KEYS = ("keys", "tags", "uniq_key")
DEFAULT_TOMBSTONE = "TOMBSTONE"


@job(
    "compact",
    source_section(archive=True),
    Section(
        "keys",
        [
            option(
                "--key",
                default="keys",
                metavar="FIELD",
                help="field of the key: keys, tags, uniq_key or properties.NAME (default: keys)",
            ),
            option(
                "--tombstone",
                default=DEFAULT_TOMBSTONE,
                metavar="NAME",
                help=f"property of tombstones; the value false means none (default: {DEFAULT_TOMBSTONE})",
            ),
            option(
                "--tombstones-kept",
                default="24h",
                metavar="DURATION",
                help="time for which tombstones stay (default: 24h)",
            ),
        ],
    ),
    target_section(),
)
def compact(context: JobContext, args: Arguments) -> Report:
    """Keep the newest message of each key.

    A message with the tombstone property deletes its key: earlier messages of the key are left out. The tombstone
    stays for --tombstones-kept, counted back from the newest message, so that readers of the result see it.
    Messages without a key are left out, and counted.
    """
    from pyspark.sql import functions as f

    began = time.monotonic()
    if args.archive:
        check_archive_arguments(args)
    given = source_options(args)
    target = Target.of("compact", args, given)
    key_of(args.key)
    kept = _seconds(args.tombstones_kept)
    options = {} if args.archive else frozen_options(given)
    if options is None:
        return Report({"target": target.description, "messages": 0, "written": 0})
    spark = context.spark()
    key = f.expr(key_of(args.key))

    def frame(columns: tuple[str, ...]) -> "DataFrame":
        if args.archive:
            return archive_frame(spark, args.archive, args.topic, columns)
        return message_frame(spark, options, columns)

    context.progress.begin("find the newest of each key")
    tombstone = f.coalesce(f.lower(f.col("properties")[args.tombstone]) != "false", f.lit(False))
    marked = frame(_KEY_COLUMNS).select(*_PLACE, "store_time", key.alias("key"), tombstone.alias("tombstone"))
    winners = _winners(marked).cache()
    try:
        totals = _first(
            marked.agg(
                f.count(f.lit(1)).alias("messages"),
                f.count_if(_has_no_key()).alias("without"),
                f.max(f.unix_micros("store_time")).alias("newest"),
            )
        )
        limit = (totals["newest"] or 0) - int(kept * 1_000_000)
        expired = f.col("tombstone") & (f.unix_micros("store_time") < limit)
        counts = _first(
            winners.agg(
                f.count(f.lit(1)).alias("keys"),
                f.count_if("tombstone").alias("tombstones"),
                f.count_if(expired).alias("expired"),
                f.count_if(f.col("queues") > 1).alias("spread"),
            )
        )
        context.progress.begin("write them")
        places = winners.where(~expired).select(*_PLACE)
        newest = frame(COLUMNS).join(places, _PLACE, "left_semi")
        more = {"queueSelector": "key"} if target.state else {}
        target.write(_in_order(newest, key, target), **more)
    finally:
        winners.unpersist()
        context.progress.end()
    facts: dict[str, Any] = {
        "target": target.description,
        "messages": totals["messages"],
        "without_key": totals["without"],
        "keys": counts["keys"],
        "tombstones": counts["tombstones"],
        "tombstones_expired": counts["expired"],
        "keys_in_several_queues": counts["spread"],
        "written": counts["keys"] - counts["expired"],
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report(facts)


def key_of(field: str) -> str:
    """Return the SQL expression of a key. Raises OptionError for an unknown field."""
    if field in _PLAIN_KEYS:
        return field
    column, _, name = field.partition(".")
    if column == "properties" and name and "'" not in name and "\\" not in name:
        return f"properties['{name}']"
    raise OptionError(
        f"--key {field} is not a field to compact by; there are {', '.join(_PLAIN_KEYS)} and properties.NAME"
    )


def _seconds(text: str) -> float:
    try:
        return DURATION.read(text)
    except ValueError:
        raise OptionError(f"--tombstones-kept is {text!r}; accepted is {DURATION.accepted}") from None


def _has_no_key() -> "Column":
    from pyspark.sql import functions as f

    return f.coalesce(f.col("key"), f.lit("")) == ""


def _first(frame: "DataFrame") -> Any:
    return frame.collect()[0]


def _winners(marked: "DataFrame") -> "DataFrame":
    """Return for each key the place, store time and tombstone mark of its newest message, and the number of its queues."""
    from pyspark.sql import functions as f

    of_queue = (
        marked.where(~_has_no_key())
        .groupBy("key", "topic", "broker", "queue_id")
        .agg(f.max_by(f.struct("queue_offset", "store_time", "tombstone"), "queue_offset").alias("newest"))
    )
    order = f.struct("newest.store_time", "topic", "broker", "queue_id")
    return (
        of_queue.groupBy("key")
        .agg(
            f.max_by(f.struct("topic", "broker", "queue_id", "newest.*"), order).alias("winner"),
            f.count(f.lit(1)).alias("queues"),
        )
        .select("key", "queues", "winner.*")
    )


def _in_order(newest: "DataFrame", key: "Column", target: Target) -> "DataFrame":
    """Return the rows in order of queue and offset, with the key that selects the queue if the target is a topic."""
    if target.state:
        newest = newest.withColumn("queue_key", key)
    return newest.sortWithinPartitions(*_PLACE)
