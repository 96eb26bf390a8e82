"""The queries of the comparison, for each side as its users write them.

Each function runs one query to its end and returns how many rows it has seen, None where only Spark knows. They run in
the driver process of their side (``benchmarks.spark.driver``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from tests.support import wire

TOPIC = "SparkBench"
TAG_HEADER = "TAGS"
STREAM_BATCHES = 3


@dataclass(frozen=True)
class Place:
    """Where a side finds its messages and puts its results."""

    spark: Any
    scratch: Path
    rows: int
    kafka: str = ""
    store: str = ""
    namesrv: str = ""
    broker: str = ""

    def fresh(self, name: str) -> str:
        """A directory for results that is not there yet."""
        number = 0
        while (self.scratch / f"{name}-{number}").exists():
            number += 1
        return str(self.scratch / f"{name}-{number}")


Query = Callable[[Place], int | None]


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _kafka(place: Place, *, headers: bool = False) -> Any:
    reader = place.spark.read.format("kafka").option("kafka.bootstrap.servers", place.kafka)
    reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").option("endingOffsets", "latest")
    return reader.option("includeHeaders", str(headers).lower()).load()


def _kafka_count(place: Place) -> int:
    return int(_kafka(place).count())


def _kafka_tags(place: Place) -> int:
    tag = f"cast(element_at(filter(headers, h -> h.key = '{TAG_HEADER}'), 1).value as string)"
    return sum(
        row["count"] for row in _kafka(place, headers=True).selectExpr(f"{tag} as tag").groupBy("tag").count().collect()
    )


def _kafka_body(place: Place) -> None:
    _noop(_kafka(place).select("value"))


def _kafka_full(place: Place) -> None:
    _noop(_kafka(place, headers=True))


def _kafka_parquet(place: Place) -> None:
    _kafka(place, headers=True).write.option("compression", "zstd").parquet(place.fresh("parquet"))


def _kafka_stream(place: Place) -> None:
    reader = place.spark.readStream.format("kafka").option("kafka.bootstrap.servers", place.kafka)
    reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").option("includeHeaders", "true")
    frame = reader.option("maxOffsetsPerTrigger", str(-(-place.rows // STREAM_BATCHES))).load()
    writer = frame.writeStream.format("parquet").option("compression", "zstd").option("path", place.fresh("stream"))
    _finished(writer.option("checkpointLocation", place.fresh("checkpoint")))


def _finished(writer: Any) -> None:
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


KAFKA: dict[str, Query] = {
    "count": _kafka_count,
    "tags": _kafka_tags,
    "body": _kafka_body,
    "full": _kafka_full,
    "parquet": _kafka_parquet,
    "stream": _kafka_stream,
}


def _rocketd(place: Place, columns: str = "", *, broker: bool = False) -> Any:
    reader = place.spark.read.format("rocketd").option("subscribe", TOPIC)
    reader = reader.option("namesrv", place.namesrv) if broker else reader.option("store", place.store)
    return (reader.schema(columns) if columns else reader).load()


def _rocketd_count(place: Place) -> int:
    return int(_rocketd(place, "queue_offset bigint").count())


def _rocketd_tags(place: Place) -> int:
    return sum(row["count"] for row in _rocketd(place, "tags string").groupBy("tags").count().collect())


def _rocketd_body(place: Place) -> None:
    _noop(_rocketd(place, "body binary"))


def _rocketd_full(place: Place) -> None:
    _noop(_rocketd(place))


def _rocketd_broker(place: Place) -> None:
    _noop(_rocketd(place, broker=True))


def _rocketd_broker_large(place: Place) -> None:
    """Where an operator lets the broker answer as much at once as Kafka does: 1 MB of a partition."""
    _set_most_of_a_pull(place, 1024 * 1024, 1024 * 1024, 2000, 2000)
    try:
        _rocketd_broker(place)
    finally:
        _set_most_of_a_pull(place, 256 * 1024, 64 * 1024, 32, 8)


def _set_most_of_a_pull(place: Place, bytes_in_memory: int, bytes_on_disk: int, in_memory: int, on_disk: int) -> None:
    settings = {
        "maxTransferBytesOnMessageInMemory": bytes_in_memory,
        "maxTransferBytesOnMessageInDisk": bytes_on_disk,
        "maxTransferCountOnMessageInMemory": in_memory,
        "maxTransferCountOnMessageInDisk": on_disk,
    }
    body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
    answer = wire.call(place.broker, RequestCode.UPDATE_BROKER_CONFIG, body=body)
    if answer.code != ResponseCode.SUCCESS:
        raise RuntimeError(f"the broker did not take its settings: {answer.code}")


def _rocketd_parquet(place: Place) -> None:
    _rocketd(place).write.option("compression", "zstd").parquet(place.fresh("parquet"))


def _rocketd_archive(place: Place) -> None:
    from rocketd.spark.cli import load_job
    from rocketd.spark.jobs.running.context import JobContext

    job = load_job("archive")
    words = ["--store", place.store, "--topic", TOPIC, "--to", place.fresh("archive"), "--quiet"]
    context = JobContext("archive", spark=place.spark)
    try:
        report = job.run(context, job.read(words))
    finally:
        context.close()
    if report.facts["messages"] != place.rows:
        raise RuntimeError(f"{report.facts['messages']} of {place.rows} messages were archived")


def _rocketd_stream(place: Place) -> None:
    reader = place.spark.readStream.format("rocketd").option("store", place.store).option("subscribe", TOPIC)
    reader = reader.option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", str(-(-place.rows // STREAM_BATCHES))).schema("range string").load()
    writer = frame.writeStream.format("rocketd").option("archive", place.fresh("stream"))
    _finished(writer.option("checkpointLocation", place.fresh("checkpoint")))


def _parquet_read(place: Place) -> None:
    _noop(place.spark.read.parquet(str(place.scratch / "parquet-0")))


ROCKETD: dict[str, Query] = {
    "count": _rocketd_count,
    "tags": _rocketd_tags,
    "body": _rocketd_body,
    "full": _rocketd_full,
    "parquet": _rocketd_parquet,
    "archive": _rocketd_archive,
    "stream": _rocketd_stream,
    "broker": _rocketd_broker,
    "broker_large": _rocketd_broker_large,
    "parquet_read": _parquet_read,
}


def load_kafka(place: Place) -> None:
    """Send what the store has to Kafka, queue by queue as partitions, properties as headers."""
    frame = _rocketd(
        place, "queue_id int, queue_offset bigint, keys string, properties map<string,string>, body binary"
    )
    headers = (
        "transform(map_entries(properties), e -> struct(e.key as key, cast(e.value as binary) as value)) as headers"
    )
    rows = frame.selectExpr("queue_id as partition", "cast(keys as binary) as key", "body as value", headers)
    rows.write.format("kafka").option("kafka.bootstrap.servers", place.kafka).option("topic", TOPIC).save()
