"""Batch reads through Spark: of a store's files, of a store whose broker is running, and of clusters."""

import json
import os
import zlib
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as f

import rocketd.spark
from rocketd.spark.columns import COLUMNS, DEFAULT_COLUMNS
from rocketd.spark.errors import DataLossError, NoAnswerError, OptionError, StoreFilesError
from rocketd.spark.options import ReadOptions
from rocketd.spark.ranges import Queue
from rocketd.spark.source import Source
from rocketd.spark.wire import RawMessage
from tests.support.stores import START_MS, messages, read_store, write_group_offsets, write_store

COUNT = 4000


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two topics: `orders` with 4 queues of 1000 messages, all kinds of them, and `payments` with 2 of 50."""
    root = tmp_path_factory.mktemp("batch") / "store"
    write_store(root, COUNT, variants=True)
    write_store(root, 100, topic="payments", queues=2)
    return str(root)


def load(spark, store, columns="queue_id, queue_offset", topic="orders", **options):
    """A read of some columns. `options` are as Spark's users write them."""
    chosen = {} if {"subscribe", "subscribePattern", "assign"} & set(options) else {"subscribe": topic}
    reader = spark.read.format("rocketd").options(store=store, **chosen, **options)
    names = [name.strip() for name in columns.split(",")] if columns else []
    return (reader.schema(", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)) if names else reader).load()


def spans(frame):
    """First and last offset and the number of rows of each queue."""
    grouped = frame.groupBy("queue_id").agg(f.min("queue_offset"), f.max("queue_offset"), f.count("*"))
    return {row[0]: tuple(row)[1:] for row in grouped.collect()}


def source_of(store, topic="orders", **options):
    """Return the same read without Spark: the planning and the tasks run in this process."""
    chosen = {} if {"subscribe", "subscribePattern", "assign"} & set(options) else {"subscribe": topic}
    return Source(
        ReadOptions.parse({"store": store, **chosen, **{name: str(value) for name, value in options.items()}})
    )


def rows_of(store, columns=("queue_id", "queue_offset"), **options):
    """The rows that such a read gives."""
    source = source_of(store, **options)
    return [row for part in source.plan() for batch in source.read(part, columns) for row in batch.to_pylist()]


def planned(store, **options):
    """First and last offset and the number of messages of each queue that such a read has."""
    ranges = source_of(store, **options).plan()
    read = [(one["queue_id"], one["queue_offset"]) for one in rows_of(store, **options)]
    assert read == [(one.queue.queue_id, offset) for one in ranges for offset in range(one.start, one.end)]
    return {one.queue.queue_id: (one.start, one.end - 1, one.count) for one in ranges}


def refused(kind, action):
    """The text of an error that crosses from Python through Spark."""
    with pytest.raises(Exception, match=kind.__name__) as caught:
        action()
    return str(caught.value)


# ---------------------------------------------------------------- rows


def test_all_columns_of_all_messages_equal_the_stores(spark, store):
    assert load(spark, store, "").columns == list(DEFAULT_COLUMNS)
    got = load(spark, store, ",".join(COLUMNS), brokerName="b").orderBy("commit_log_offset").toArrow()
    assert got.num_rows == COUNT
    expected = [record for record in read_store(store) if record.topic == "orders"]
    assert got.column("commit_log_offset").to_pylist() == [one.physical_offset for one in expected]
    assert got.column("properties_raw").to_pylist() == [one.properties for one in expected]
    assert {type(body) for body in got.column("body").to_pylist()} == {bytes}
    times = [datetime.fromtimestamp(one.store_timestamp / 1000, UTC) for one in expected]
    assert got.column("store_time").to_pylist() == times
    # Results of the parser are tested beside it; this tests that Spark changes nothing.
    direct = Source(ReadOptions.parse({"store": store, "subscribe": "orders", "brokerName": "b"}))
    rows = [row for part in direct.plan() for batch in direct.read(part, tuple(COLUMNS)) for row in batch.to_pylist()]
    rows.sort(key=lambda row: row["commit_log_offset"])
    assert got.to_pylist() == rows


def test_a_read_without_rows(spark, store):
    empty = load(spark, store, startingTimestamp="2200-01-01")
    assert empty.collect() == []
    assert load(spark, store, subExpression="nobody").count() == 0


def test_columns_may_be_declared_not_null_and_in_any_order(spark, store):
    reader = spark.read.format("rocketd").options(store=store, subscribe="payments")
    frame = reader.schema("tags string, queue_offset bigint not null, properties map<string,string>").load()
    assert frame.columns == ["tags", "queue_offset", "properties"]
    assert frame.where("queue_offset = 7").first().properties["CLUSTER"] == "DefaultCluster"


def test_read_of_the_package(spark, store):
    frame = rocketd.spark.read(spark, columns=["tags"], store=store, subscribe=["payments"], max_rows=10)
    assert (frame.columns, frame.count()) == (["tags"], 10)


def test_sql_over_a_view(spark, store):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW paid USING rocketd OPTIONS (store '{store}', subscribe 'payments')")
    assert spark.sql("SELECT count(*), count(tags) FROM paid").first() == (100, 76)


# ---------------------------------------------------------------- read messages


def test_topics_pattern_and_queues(spark, store):
    both = load(spark, store, "topic", subscribe="orders, payments").groupBy("topic").count().collect()
    assert dict(map(tuple, both)) == {"orders": COUNT, "payments": 100}
    assert len(rows_of(store, subscribePattern="pay.*")) == 100
    assert set(spans(load(spark, store, assign='{"orders": [1, 3]}'))) == {1, 3}


def test_offsets(spark, store):
    start = json.dumps({"orders": {"broker-a": {"0": 10, "1": -2, "2": 990, "3": -1}}})
    end = json.dumps({"orders": {"0": 20, "1": 5, "2": -1, "3": -1}})
    assert spans(load(spark, store, startingOffsets=start, endingOffsets=end)) == {
        0: (10, 19, 10),
        1: (0, 4, 5),
        2: (990, 999, 10),
    }


def test_times(spark, store):
    # Of each 100 messages, all have one time.
    start, end = START_MS + 1000, START_MS + 2000
    expected = dict.fromkeys(range(4), (250, 499, 250))
    assert planned(store, startingTimestamp=start, endingTimestamp=end) == expected
    iso = [datetime.fromtimestamp(moment / 1000, UTC).isoformat() for moment in (start, end)]
    assert spans(load(spark, store, startingTimestamp=iso[0], endingTimestamp=iso[1])) == expected
    by_queue = json.dumps({"orders": {"0": start, "1": iso[1], "2": START_MS + 999_999, "3": 0}})
    assert planned(store, startingOffsetsByTimestamp=by_queue) == {
        0: (250, 999, 750),
        1: (500, 999, 500),
        3: (0, 999, 1000),
    }
    late = {"startingTimestamp": START_MS + 999_999, "timestampStrategy": "error"}
    with pytest.raises(OptionError, match=r"no message of orders/broker-a/0, .* is from then or later"):
        source_of(store, **late).plan()


def test_a_group_of_the_stopped_broker(store):
    write_group_offsets(store, {("orders", "readers"): {0: 900, 2: 950}})
    assert planned(store, startingOffsets="group:readers") == {
        0: (900, 999, 100),
        1: (0, 999, 1000),
        2: (950, 999, 50),
        3: (0, 999, 1000),
    }


def test_filters_of_options(spark, store):
    rows = load(spark, store, "tags", subExpression="TagA || TagC").groupBy("tags").count().collect()
    assert {row[0] for row in rows} == {"TagA", "TagC"}
    every = [record.properties.decode() for record in read_store(store) if record.topic == "orders"]
    wanted = sum("TAGS\x01TagA" in text or "TAGS\x01TagC" in text for text in every)
    assert sum(row[1] for row in rows) == wanted
    assert rows_of(store, ("keys",), keys="key-0,key-3,nobody") == [{"keys": "key-0"}, {"keys": "key-3"}]
    assert rows_of(store, keys="key-11") == [{"queue_id": 3, "queue_offset": 2}]
    numbered = load(spark, store, "properties", sql92="a >= 50 AND CLUSTER IS NULL").collect()
    assert {int(row[0]["a"]) >= 50 for row in numbered} == {True}
    assert 0 < len(numbered) < COUNT / 10


def test_at_most_so_many_rows(store):
    assert planned(store, maxRows=10) == {0: (0, 2, 3), 1: (0, 2, 3), 2: (0, 1, 2), 3: (0, 1, 2)}


def test_bodies_are_unpacked_by_default_or_left_packed(store):
    columns = ("queue_id", "queue_offset", "sys_flag", "body")
    stored = rows_of(store, columns, decompress="false")
    plain = rows_of(store, columns, verifyCrc="true")
    packed = [(one["body"], other["body"]) for one, other in zip(stored, plain, strict=True) if one["sys_flag"] & 1]
    assert len(packed) == COUNT / 10
    assert all(zlib.decompress(body) == whole for body, whole in packed)


# ---------------------------------------------------------------- tasks


def test_tasks(spark, store):
    def count(**options):
        source = source_of(store, **options)
        return len(source.tasks(source.plan(), cores=2))

    assert (count(topic="payments"), count(), count(minPartitions=5)) == (1, 2, 5)
    assert count(maxBytesPerPartition="200k") > 20
    split = load(spark, store, maxBytesPerPartition="1m", batchBytes="10k")
    assert split.rdd.getNumPartitions() == count(maxBytesPerPartition="1m") > 5
    assert spans(split) == dict.fromkeys(range(4), (0, 999, 1000))


def test_rows_of_a_task_are_in_order(spark, store):
    frame = load(spark, store, minPartitions=3).withColumn("task", f.spark_partition_id())
    rows = [(row.task, row.queue_id, row.queue_offset) for row in frame.collect()]
    assert rows == sorted(rows)


@pytest.mark.parametrize("body_size", [3000, 700_000])
def test_large_batches_reach_spark_whole(spark, tmp_path, body_size):
    """Of one Arrow batch of the parser: many rows in a part, and rows that are larger than a part is."""
    count = 8_000_000 // body_size
    write_store(tmp_path, count, queues=1, body_size=body_size, log_file_size=1 << 25)
    columns = ("queue_offset", "tags", "properties", "body")
    source = source_of(str(tmp_path))
    assert len([batch for part in source.plan() for batch in source.read(part, columns)]) <= 2
    frame = load(spark, str(tmp_path), ", ".join(columns))
    assert [row.asDict() for row in frame.collect()] == [
        {**row, "properties": dict(row["properties"])} for row in rows_of(str(tmp_path), columns)
    ]
    parts = frame.selectExpr("count(*)", "sum(octet_length(body))").collect()[0]
    assert parts[0] == count
    assert parts[1] >= count * body_size


def test_frame_is_a_snapshot_of_its_plan(spark, tmp_path):
    root = tmp_path / "store"
    write_store(root, 400)
    frame = load(spark, str(root), "queue_id, queue_offset, body")
    first = frame.collect()
    write_store(root, messages(400, first=400))
    assert frame.collect() == first
    assert len(first) == 400
    # While its tasks run, too: when the first row has come, there are more.
    rows = load(spark, str(root), "queue_id, queue_offset", minPartitions=8).toLocalIterator()
    begun = [next(rows)]
    write_store(root, messages(400, first=800))
    assert len(begun + list(rows)) == 800
    assert load(spark, str(root)).count() == 1200


# ---------------------------------------------------------------- filters of queries


def test_queries_over_one_frame_are_independent(spark, store):
    frame = load(spark, store, "queue_id, queue_offset, tags")
    some = frame.where("queue_id = 1 and queue_offset >= 100 and queue_offset < 200")
    for pushed in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        try:
            assert spans(some) == {1: (100, 199, 100)}
            assert spans(frame) == dict.fromkeys(range(4), (0, 999, 1000))
            assert frame.union(some).count() == COUNT + 100
            frame.createOrReplaceTempView("narrowed")
            counts = "select (select count(*) from narrowed where queue_id = 2), (select count(*) from narrowed)"
            assert tuple(spark.sql(counts).first()) == (1000, COUNT)
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# ---------------------------------------------------------------- errors


def test_wrong_options_raise_when_the_read_is_made(spark, store):
    reader = spark.read.format("rocketd").options(store=store, subscrbe="orders")
    assert "did you mean subscribe?" in refused(OptionError, reader.load)


def test_wrong_reads_raise(spark, store):
    assert "did you mean orders?" in refused(OptionError, load(spark, store, subscribe="order").count)
    assert "is for streams only" in refused(OptionError, load(spark, store, maxOffsetsPerTrigger=5).count)
    reader = spark.read.format("rocketd").options(store=store, subscribe="orders")
    assert "did you mean queue_offset?" in refused(OptionError, reader.schema("queueoffset bigint").load().count)
    assert "queue_id of messages is int, and the schema says bigint" in refused(
        OptionError, reader.schema("queue_id bigint").load().count
    )


def test_missing_store_raises(spark, tmp_path):
    assert str(tmp_path) in refused(StoreFilesError, load(spark, str(tmp_path / "nowhere")).count)


def test_lost_messages_raise_or_are_left_out(spark, tmp_path):
    root = str(tmp_path / "store")
    write_store(root, 8000, log_file_size=1 << 20)
    start = json.dumps({"orders": {str(queue): 0 for queue in range(4)}})
    first, second, *_ = sorted(os.listdir(os.path.join(root, "commitlog")))
    os.remove(os.path.join(root, "commitlog", first))
    text = refused(DataLossError, load(spark, root, startingOffsets=start).count)
    assert "messages are not there any more: orders/broker-a/0[0, " in text
    left = load(spark, root, startingOffsets=start, failOnDataLoss="false")
    kept = sum(record.physical_offset >= int(second) for record in read_store(root))
    assert left.count() == kept
    assert 0 < kept < 8000
    # Without an option for the start the read covers the messages that are there.
    assert len(rows_of(root)) == kept


def test_messages_deleted_during_the_read_raise(tmp_path):
    root = str(tmp_path / "store")
    write_store(root, 8000, log_file_size=1 << 20)
    source = source_of(root)
    ranges = source.plan()
    os.remove(os.path.join(root, "commitlog", min(os.listdir(os.path.join(root, "commitlog")))))
    with pytest.raises(DataLossError, match="orders/broker-a/0"):
        list(source.read(ranges[0], ("queue_offset",)))
    lost = []
    read = sum(batch.num_rows for batch in source.read(ranges[0], ("queue_offset",), lost.append))
    assert read + sum(one.count for one in lost) == 2000
    assert {one.queue.queue_id for one in lost} == {0}


# ---------------------------------------------------------------- live


def test_batch_read_from_a_cluster(spark, live_cluster):
    topic = live_cluster.create_topic(2)
    for queue_id in range(2):
        some = [RawMessage(topic, b"%d" % number, tags=f"Tag{number % 3}", keys=f"k{number}") for number in range(60)]
        live_cluster.send(topic, some, queue_id)

    def frame(columns="queue_id, queue_offset", **options):
        schema = ", ".join(f"{name.strip()} {COLUMNS[name.strip()].ddl}" for name in columns.split(","))
        reader = spark.read.format("rocketd").options(namesrv=live_cluster.namesrv, subscribe=topic, **options)
        return reader.schema(schema).load()

    rows = frame("broker, topic, queue_id, queue_offset, body, keys").orderBy("queue_id", "queue_offset").collect()
    assert [tuple(row) for row in rows] == [
        ("broker-a", topic, queue_id, number, b"%d" % number, f"k{number}")
        for queue_id in range(2)
        for number in range(60)
    ]
    start = json.dumps({topic: {"broker-a": {"0": 50, "1": -1}}})
    assert spans(frame(startingOffsets=start)) == {0: (50, 59, 10)}
    assert frame("tags", subExpression="Tag0||Tag1").count() == 80
    assert frame("queue_id, tags").where("tags = 'Tag2' and queue_id = 0").count() == 20
    assert frame(sql92="KEYS = 'k7'").count() == 2
    assert frame(keys="k7").count() == 2
    live_cluster.catalog.commit_group("batch-readers", {Queue(topic, "broker-a", 1): 55})
    assert spans(frame(startingOffsets="group:batch-readers", minPartitions=4)) == {0: (0, 59, 60), 1: (55, 59, 5)}
    assert "groups with offsets: batch-readers" in refused(
        OptionError, frame(startingOffsets="group:batch-reader").count
    )
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert frame(startingTimestamp=tomorrow).count() == 0
    assert frame(endingTimestamp=tomorrow, brokerName="broker-a").count() == 120
    lost = json.dumps({topic: {"broker-a": {"0": 70, "1": 0}}})
    assert "60 messages" not in refused(DataLossError, frame(endingOffsets=lost).count)
    assert "does not exist" in refused(
        OptionError,
        spark.read.format("rocketd").options(namesrv=live_cluster.namesrv, subscribe="none-such").load().count,
    )


def test_store_of_running_broker_is_read(spark, rocketd_cluster):
    topic = rocketd_cluster.create_topic(1)
    rocketd_cluster.send(topic, [b"%d" % number for number in range(100)])
    root = str(rocketd_cluster.directory / "store")
    assert load(spark, root, topic=topic).count() == 100
    rocketd_cluster.send(topic, [b"%d" % number for number in range(50)])
    assert load(spark, root, "body", topic=topic).distinct().count() == 100
    assert load(spark, root, topic=topic).count() == 150


def test_missing_cluster_raises(spark):
    options = {"namesrv": "127.0.0.1:1", "subscribe": "t", "retryTimeout": "200ms", "timeout": "5s"}
    assert "127.0.0.1:1" in refused(NoAnswerError, spark.read.format("rocketd").options(**options).load().count)
