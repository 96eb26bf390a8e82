"""Latencies, failures and unconsumed messages, computed from trace records.

Records are joined by message id, and also by request id if several groups or attempts consume a message. Everything is
done in Spark's expressions.
"""

from typing import TYPE_CHECKING, Any

from rocketd.spark.jobs.trace.records import END_TRANSACTION, PUB, SUB_AFTER, SUB_BEFORE
from rocketd.spark.jobs.trace.sketch import bucket_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEND, DELIVER, CONSUME = "send", "store to consume", "consume"
"""The measures: from a send to its answer, from there until a consumer has the message, and the time of the listener."""

HALF, DELAYED = 1, 3
"""Message types, as numbered in records, that may not be consumed yet."""


def of_type(records: "DataFrame", kind: str) -> "DataFrame":
    """Return the readable records of one type."""
    from pyspark.sql import functions as f

    return records.where((f.col("type") == kind) & f.col("good"))


def published(records: "DataFrame") -> "DataFrame":
    """Return a row for each message sent: id, topic, and the time (ms) at which the broker had it.

    A batch has several ids.
    """
    from pyspark.sql import functions as f

    one = of_type(records, PUB).where("success")
    return (
        one.select(
            f.explode(f.split("msg_id", ",")).alias("msg_id"),
            "topic",
            (f.col("time") + f.col("cost")).alias("stored"),
            "message_type",
        )
        .groupBy("msg_id")
        .agg(
            f.max("topic").alias("topic"), f.max("stored").alias("stored"), f.max("message_type").alias("message_type")
        )
    )


def measured(records: "DataFrame") -> "DataFrame":
    """Return a row for each measurement in ms, with its time. A topic missing in the traces is null."""
    from pyspark.sql import functions as f

    sends = (
        of_type(records, PUB).where("success").select(f.lit(SEND).alias("measure"), "topic", "group", "time", "cost")
    )
    messages = published(records).select("msg_id", "topic", "stored")
    before = of_type(records, SUB_BEFORE).select("request_id", "msg_id", "group", "time", "retry_times")
    first = before.where("retry_times = 0").join(messages, "msg_id")
    deliveries = first.select(
        f.lit(DELIVER).alias("measure"), "topic", "group", "time", (f.col("time") - f.col("stored")).alias("cost")
    )
    consumed = attempts(records).select(f.lit(CONSUME).alias("measure"), "topic", "group", "time", "cost")
    return sends.unionAll(deliveries).unionAll(consumed).withColumnRenamed("cost", "value")


def attempts(records: "DataFrame") -> "DataFrame":
    """Return a row for each call of a listener: topic, group, time, cost in ms, success, context code."""
    from pyspark.sql import functions as f

    messages = published(records).select("msg_id", f.col("topic").alias("of_topic"))
    before = of_type(records, SUB_BEFORE).select(
        "request_id", "msg_id", f.col("group").alias("of_group"), f.col("time").alias("began")
    )
    after = of_type(records, SUB_AFTER).select(
        "request_id", "msg_id", "group", "time", "cost", "success", "context_code"
    )
    joined = after.join(before.dropDuplicates(["request_id", "msg_id"]), ["request_id", "msg_id"], "left")
    return joined.join(messages, "msg_id", "left").select(
        f.col("of_topic").alias("topic"),
        f.coalesce("group", "of_group").alias("group"),
        f.coalesce("time", f.col("began") + f.col("cost")).alias("time"),
        "cost",
        "success",
        "context_code",
    )


def in_buckets(measurements: "DataFrame", window_ms: int) -> "DataFrame":
    """Count measurements by measure, topic, group, window (its start in ms) and bucket of the sketch.

    `skewed` counts those below zero, caused by differences between clocks.
    """
    from pyspark.sql import functions as f

    return (
        measurements.select(
            "measure",
            "topic",
            "group",
            (f.floor(f.col("time") / window_ms) * window_ms).alias("window"),
            f.expr(bucket_sql("value")).alias("bucket"),
            (f.col("value") < 0).cast("int").alias("below"),
        )
        .groupBy("measure", "topic", "group", "window", "bucket")
        .agg(f.count(f.lit(1)).alias("messages"), f.sum("below").alias("skewed"))
    )


def failed(records: "DataFrame") -> "DataFrame":
    """Return a row for each failure: failed sends, failed listener calls with their result, uncommitted transactions."""
    from pyspark.sql import functions as f

    columns = ("topic", "group", "time")
    sends = of_type(records, PUB).where("NOT success").select(f.lit(SEND).alias("what"), *columns, f.lit("failed"))
    consumed = attempts(records).where("NOT success")
    ends = of_type(records, END_TRANSACTION).where("state <> 'COMMIT_MESSAGE'")
    return (
        sends.unionAll(consumed.select(f.lit(CONSUME), *columns, f.col("context_code").cast("string")))
        .unionAll(ends.select(f.lit("transaction"), *columns, "state"))
        .toDF("what", *columns, "how")
    )


def failures(rows: "DataFrame") -> "DataFrame":
    """Count the rows of `failed` by what, topic, group and how."""
    from pyspark.sql import functions as f

    return rows.groupBy("what", "topic", "group", "how").agg(f.count(f.lit(1)).alias("messages"))


def unconsumed(records: "DataFrame") -> "DataFrame":
    """Return a row for each message without a consumer: id, topic, and store time in ms.

    Uncommitted half messages and delayed messages are left out, because they may still be waiting.
    """
    from pyspark.sql import functions as f

    seen = of_type(records, SUB_BEFORE).select("msg_id").distinct()
    committed = of_type(records, END_TRANSACTION).where("state = 'COMMIT_MESSAGE'").select("msg_id").distinct()
    messages = published(records)
    half = f.col("message_type") == HALF
    plain = messages.where(~half & (f.col("message_type") != DELAYED))
    whole = plain.unionAll(messages.where(half).join(committed, "msg_id", "left_semi"))
    return whole.join(seen, "msg_id", "left_anti").select("msg_id", "topic", "stored")


def never_consumed(rows: "DataFrame", samples: int) -> "DataFrame":
    """Return for each topic the number of unconsumed messages, and the ids of the oldest."""
    from pyspark.sql import functions as f

    return (
        rows.groupBy("topic")
        .agg(f.count(f.lit(1)).alias("messages"), f.min_by("msg_id", "stored", samples).alias("ids"))
        .orderBy(f.desc("messages"), "topic")
    )


def row_counts(records: "DataFrame") -> dict[str, Any]:
    """Count the records by type and the unreadable ones, and return the newest time in ms."""
    from pyspark.sql import functions as f

    rows = (
        records.groupBy("type")
        .agg(f.count_if("good").alias("good"), f.count_if(~f.col("good")).alias("bad"), f.max("time").alias("newest"))
        .collect()
    )
    return {
        "records": {row["type"]: row["good"] for row in sorted(rows, key=lambda row: str(row["type"]))},
        "unreadable": sum(row["bad"] for row in rows),
        "newest": max((row["newest"] for row in rows if row["newest"] is not None), default=None),
    }
