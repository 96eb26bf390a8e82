"""What trace records say of latencies, failures, and messages that nobody has consumed.

Joins are by message id, and by request id where several groups or attempts consume one message. In Spark's expressions.
"""

from typing import TYPE_CHECKING, Any

from rocketd.spark.jobs.sketch import bucket_sql
from rocketd.spark.jobs.trace_records import END_TRANSACTION, PUB, SUB_AFTER, SUB_BEFORE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEND, DELIVER, CONSUME = "send", "store to consume", "consume"
"""What is measured: a send until its answer, from then until a consumer has the message, and what the listener takes."""

HALF, DELAYED = 1, 3
"""Kinds of messages that nobody may have consumed yet, as records number them."""


def of_type(records: "DataFrame", kind: str) -> "DataFrame":
    """The records of one type that can be read."""
    from pyspark.sql import functions as f

    return records.where((f.col("type") == kind) & f.col("good"))


def published(records: "DataFrame") -> "DataFrame":
    """A row for each message that was sent: id, topic, and when the broker had it, in ms. A batch has several ids."""
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
    """A row for each measurement, in ms, with the time it belongs to. A topic that is not in the traces is null."""
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
    """A row for each time that a listener has had a message: topic, group, time, cost in ms, success, context code."""
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
    """Counts by measure, topic, group, window of time (its begin in ms) and bucket of the sketch; `skewed` of them were
    below zero, as clocks differ.
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
    """A row for each thing that failed: sends, listeners by how they came back, transactions that were not committed."""
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
    """Counts of what `failed`, by what, topic, group and how."""
    from pyspark.sql import functions as f

    return rows.groupBy("what", "topic", "group", "how").agg(f.count(f.lit(1)).alias("messages"))


def unconsumed(records: "DataFrame") -> "DataFrame":
    """A row for each message that no consumer has had: id, topic, when it was stored in ms.

    Left out are half messages that were not committed, and delayed ones: they may be waiting.
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
    """By topic, how many messages are `unconsumed`, and the ids of the oldest."""
    from pyspark.sql import functions as f

    return (
        rows.groupBy("topic")
        .agg(f.count(f.lit(1)).alias("messages"), f.min_by("msg_id", "stored", samples).alias("ids"))
        .orderBy(f.desc("messages"), "topic")
    )


def row_counts(records: "DataFrame") -> dict[str, Any]:
    """How many records of each type there are, how many cannot be read, and the newest time in ms."""
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
